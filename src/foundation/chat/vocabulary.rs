//! Access to a model's tokenizer and chat template.

use super::{Message, ModelError, TokenId};

/// Converts between text and the token ids that the model reads.
pub trait Vocabulary: Send + Sync {
    /// The ids of `text`, without BOS or EOS.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] if the tokenizer rejects the text.
    fn encode(&self, text: &str) -> Result<Vec<TokenId>, ModelError>;

    /// The ids of a text that is not a chat: after BOS where the tokenizer puts it before texts, unless the text begins with
    /// it. The model reads [`Prompt::Text`](super::Prompt::Text) as these.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] if the tokenizer rejects the text.
    fn encode_text(&self, text: &str) -> Result<Vec<TokenId>, ModelError>;

    /// The text of `ids`, special tokens included. Invalid UTF-8 becomes U+FFFD.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] if an id is not in the vocabulary.
    fn decode(&self, ids: &[TokenId]) -> Result<String, ModelError>;

    /// The ids of a conversation in the model's chat template, including the prefix of the model's next turn.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] with the error of the template or the tokenizer.
    fn chat(&self, messages: &[Message]) -> Result<Vec<TokenId>, ModelError>;

    /// As [`chat`](Self::chat), up to where an answer begins: a thought that the template opens is closed without words.
    ///
    /// # Errors
    /// See [`chat`](Self::chat).
    fn chat_to_answer(&self, messages: &[Message]) -> Result<Vec<TokenId>, ModelError> {
        self.chat(messages)
    }

    /// The special tokens and the chat template.
    fn special(&self) -> SpecialTokens;
}

/// The texts of special tokens, and the chat template. `None` means that the model has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpecialTokens {
    /// Beginning of text.
    pub bos: Option<String>,
    /// End of text or turn.
    pub eos: Option<String>,
    /// Padding.
    pub pad: Option<String>,
    /// Unknown token.
    pub unk: Option<String>,
    /// Ids that end the model's turn.
    pub ends: Vec<TokenId>,
    /// The Jinja source of the chat template.
    pub chat_template: Option<String>,
}
