//! Text to token ids and back, by the model's own `tokenizer.json`.

mod patterns;

use tokenizers::{DecoderWrapper, ModelWrapper, PostProcessor, PostProcessorWrapper, TokenizerImpl, TruncationParams};

use self::patterns::{Normaliser, PreTokenizer};
use super::LoadError;
use crate::foundation::chat::TokenId;

/// A `tokenizer.json` whose patterns do not fail in silence.
type Inner = TokenizerImpl<ModelWrapper, Normaliser, PreTokenizer, PostProcessorWrapper, DecoderWrapper>;

/// A loaded `tokenizer.json`.
pub(super) struct Tokenizer(Inner);

impl Tokenizer {
    /// Reads the text of a `tokenizer.json`.
    pub(super) fn parse(json: &str) -> Result<Self, LoadError> {
        let malformed = |error| LoadError::malformed("tokenizer.json", error);
        let mut inner: Inner = json.parse().map_err(malformed)?;
        // Files made for training cut and pad; a conversation must be read whole.
        inner.with_truncation(None).map_err(malformed)?;
        inner.with_padding(None);
        Ok(Self(inner))
    }

    /// Reads the text of a `tokenizer.json` for an encoder: a text is cut so that it has at most `most` tokens, those
    /// put before and after it included.
    pub(super) fn parse_cutting(json: &str, most: usize) -> Result<Self, LoadError> {
        let mut tokenizer = Self::parse(json)?;
        let framing = tokenizer.0.get_post_processor().map_or(0, |post| post.added_tokens(false));
        if most <= framing {
            let why = format!("it puts {framing} tokens around a text, and {most} in all are what the model reads");
            return Err(LoadError::malformed("tokenizer.json", why));
        }
        let cut = TruncationParams { max_length: most, ..TruncationParams::default() };
        tokenizer.0.with_truncation(Some(cut)).map_err(|error| LoadError::malformed("tokenizer.json", error))?;
        Ok(tokenizer)
    }

    /// The ids of `text` with what the tokenizer puts before and after it.
    pub(super) fn encode_framed(&self, text: &str) -> Result<Vec<TokenId>, String> {
        self.encoded(text, true)
    }

    /// The ids of `text`; nothing is put before or after it.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<TokenId>, String> {
        self.encoded(text, false)
    }

    fn encoded(&self, text: &str, framed: bool) -> Result<Vec<TokenId>, String> {
        let encoding =
            self.0.encode_fast(text, framed).map_err(|error| format!("the tokenizer refuses the text: {error}"))?;
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
