//! Entry points for the targets in `fuzz/`: everything that parses an untrusted model file before any weight is read.
//! Must return an error or nothing, never panic. Not part of the public API.

use jiff::Timestamp;

use super::gguf::Gguf;
use super::models::{parse_language_model, standard_json};
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

/// Parses a `tokenizer.json` and uses it.
pub fn tokenizer_json(json: &str) {
    if let Ok(mut tokenizer) = Tokenizer::parse(json) {
        drop(tokenizer.set_leading(None, Some("<s>")));
        for text in ["Hello there, 12 dogs!", "<|user|>a\u{301}\n\n  b", ""] {
            if let Ok(ids) = tokenizer.encode_text(text, 100) {
                drop(tokenizer.decode(&ids));
            }
        }
        drop(tokenizer.decode(&[0, 1, 2, u32::MAX]));
    }
}

/// Parses a model's `config.json` and `tokenizer_config.json`.
pub fn model_config(json: &str) {
    drop(parse_language_model(&standard_json(json)));
    if let Ok(config) = TokenizerConfig::parse(json) {
        drop(ChatTemplate::new(config.template(), &config, Timestamp::UNIX_EPOCH));
    }
}

/// Compiles and renders a chat template.
pub fn chat_template(source: &str) {
    if let Ok(template) = ChatTemplate::new(Some(source), &TokenizerConfig::default(), Timestamp::UNIX_EPOCH) {
        let conversation =
            [(Role::System, "Be kind."), (Role::User, "Hello"), (Role::Assistant, "Hi"), (Role::User, "Bye")];
        let messages = conversation.map(|(role, content)| Message::new(role, content));
        drop(template.render(&messages, true, &serde_json::Map::new()));
    }
}
