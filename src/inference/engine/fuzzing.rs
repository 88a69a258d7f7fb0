//! Entry points for the targets in `fuzz/`: everything that parses an untrusted model file before any weight is read.
//! Must return an error or nothing, never panic. Not part of the public API.

use jiff::Timestamp;

use super::gguf::Gguf;
use super::open::convert;
use super::template::{ChatTemplate, TokenizerConfig};
use super::tokenizer::Tokenizer;
use super::weights::Weights;
use crate::foundation::chat::{Message, Role};

/// Parses the header of a GGUF file and everything derived from it.
pub fn gguf_header(bytes: &[u8]) {
    if let Ok(gguf) = Gguf::read("fuzz.gguf", bytes, bytes.len() as u64) {
        drop((gguf.generation_config(), gguf.tokenizer_config(), convert(&gguf).ok()));
        drop(gguf.tokenizer().and_then(|json| Tokenizer::parse(&json)));
    }
}

/// Parses the header of a safetensors file.
pub fn safetensors_header(bytes: &[u8]) {
    drop(Weights::from_bytes(bytes));
}

/// Compiles and renders a chat template.
pub fn chat_template(source: &str) {
    if let Ok(template) = ChatTemplate::new(Some(source), &TokenizerConfig::default(), Timestamp::UNIX_EPOCH) {
        let conversation =
            [(Role::System, "Be kind."), (Role::User, "Hello"), (Role::Assistant, "Hi"), (Role::User, "Bye")];
        let messages = conversation.map(|(role, content)| Message { role, content: content.to_owned(), ids: None });
        drop(template.render(&messages, true));
    }
}
