//! What a stranger's model file reaches before any weight is read, for the targets in `fuzz/`: an error or not, never a
//! panic. No part of the interface.

use jiff::Timestamp;

use super::gguf::Gguf;
use super::template::{ChatTemplate, TokenizerConfig};
use super::tokenizer::Tokenizer;
use super::weights::Weights;
use crate::foundation::chat::{Message, Role};

/// A GGUF file's header and all that is made of it.
pub fn gguf_header(bytes: &[u8]) {
    if let Ok(gguf) = Gguf::read("fuzz.gguf", bytes, bytes.len() as u64) {
        let tokenizer = gguf.tokenizer();
        drop((gguf.config(), gguf.generation_config(), gguf.tokenizer_config(), gguf.tensors()));
        drop(tokenizer.and_then(|json| Tokenizer::parse(&json)));
    }
}

/// A safetensors file's header.
pub fn safetensors_header(bytes: &[u8]) {
    drop(Weights::from_bytes(bytes));
}

/// A chat template, compiled and rendered.
pub fn chat_template(source: &str) {
    if let Ok(template) = ChatTemplate::new(Some(source), &TokenizerConfig::default(), Timestamp::UNIX_EPOCH) {
        let said = [(Role::System, "Be kind."), (Role::User, "Hello"), (Role::Assistant, "Hi"), (Role::User, "Bye")];
        let messages = said.map(|(role, content)| Message { role, content: content.to_owned(), ids: None });
        drop(template.render(&messages, true));
    }
}
