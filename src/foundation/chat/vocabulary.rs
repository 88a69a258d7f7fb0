//! A model's tokens, for those who speak in ids.

use super::{Message, ModelError, TokenId};

/// Turns text into a model's tokens and back. The same text has the same ids that the model itself would read.
pub trait Vocabulary: Send + Sync {
    /// The ids of `text`; nothing is put before or after it.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] where the tokenizer refuses the text.
    fn encode(&self, text: &str) -> Result<Vec<TokenId>, ModelError>;

    /// The text of `ids`, special tokens by their names. Bytes that make no character become U+FFFD.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] where an id names no token.
    fn decode(&self, ids: &[TokenId]) -> Result<String, ModelError>;

    /// The ids of a conversation in the model's chat template, the beginning of the model's next turn included.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`], with what the template or the tokenizer objects to.
    fn chat(&self, messages: &[Message]) -> Result<Vec<TokenId>, ModelError>;

    /// The tokens that have a part to play, and the chat template.
    fn special(&self) -> SpecialTokens;
}

/// The tokens that have a part to play, by their texts, and the chat template. `None` means that the model has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpecialTokens {
    /// Begins a text.
    pub bos: Option<String>,
    /// Ends a text or a turn.
    pub eos: Option<String>,
    /// Fills up a batch.
    pub pad: Option<String>,
    /// Stands for what the tokenizer does not know.
    pub unk: Option<String>,
    /// Tokens that end the model's turn.
    pub ends: Vec<TokenId>,
    /// The Jinja source of the chat template.
    pub chat_template: Option<String>,
}
