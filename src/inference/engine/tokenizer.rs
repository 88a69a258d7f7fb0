//! Text to token ids and back, by the model's own `tokenizer.json`.

use super::LoadError;
use crate::foundation::chat::TokenId;

/// A loaded `tokenizer.json`.
pub(super) struct Tokenizer(tokenizers::Tokenizer);

impl Tokenizer {
    /// Reads the text of a `tokenizer.json`.
    pub(super) fn parse(json: &str) -> Result<Self, LoadError> {
        let malformed = |error| LoadError::malformed("tokenizer.json", error);
        let mut inner: tokenizers::Tokenizer = json.parse().map_err(malformed)?;
        // Files made for training cut and pad; a conversation must be read whole.
        inner.with_truncation(None).map_err(malformed)?;
        inner.with_padding(None);
        Ok(Self(inner))
    }

    /// The ids of `text`; nothing is put before or after it.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<TokenId>, String> {
        let encoding =
            self.0.encode_fast(text, false).map_err(|error| format!("the tokenizer refuses the text: {error}"))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of `ids`, special tokens by their names. Bytes that make no character become U+FFFD.
    pub(super) fn decode(&self, ids: &[TokenId]) -> String {
        // Only a broken decoder pipeline fails, and then on every text alike.
        self.0.decode(ids, false).unwrap_or_default()
    }

    /// The id of the token that is written `token`.
    pub(super) fn id_of(&self, token: &str) -> Option<TokenId> {
        self.0.token_to_id(token)
    }
}
