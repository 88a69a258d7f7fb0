//! Converts text to token ids and back with the model's own `tokenizer.json`.

mod patterns;

use tokenizers::{DecoderWrapper, ModelWrapper, PostProcessor, PostProcessorWrapper, TokenizerImpl, TruncationParams};

use self::patterns::{Normaliser, PreTokenizer};
use super::error::LoadError;
use crate::foundation::chat::TokenId;

/// A `tokenizer.json` whose regex failures are reported.
type Inner = TokenizerImpl<ModelWrapper, Normaliser, PreTokenizer, PostProcessorWrapper, DecoderWrapper>;

/// A loaded `tokenizer.json`.
pub(super) struct Tokenizer(Inner);

impl Tokenizer {
    /// Parses a `tokenizer.json`.
    pub(super) fn parse(json: &str) -> Result<Self, LoadError> {
        let malformed = |error| LoadError::malformed("tokenizer.json", error);
        let mut inner: Inner = json.parse().map_err(malformed)?;
        // Ignore truncation and padding, which are meant for training.
        inner.with_truncation(None).map_err(malformed)?;
        inner.with_padding(None);
        Ok(Self(inner))
    }

    /// Parses a `tokenizer.json` for an encoder: texts are truncated to `most` tokens, including the tokens added
    /// before and after.
    pub(super) fn parse_cutting(json: &str, most: usize) -> Result<Self, LoadError> {
        let mut tokenizer = Self::parse(json)?;
        let framing = tokenizer.0.get_post_processor().map_or(0, |post| post.added_tokens(false));
        if most <= framing {
            let why = format!("it adds {framing} tokens to a text, but the model reads at most {most}");
            return Err(LoadError::malformed("tokenizer.json", why));
        }
        let cut = TruncationParams { max_length: most, ..TruncationParams::default() };
        tokenizer.0.with_truncation(Some(cut)).map_err(|error| LoadError::malformed("tokenizer.json", error))?;
        Ok(tokenizer)
    }

    /// The ids of `text` with the tokens that the post-processor adds.
    pub(super) fn encode_framed(&self, text: &str) -> Result<Vec<TokenId>, String> {
        self.encoded(text, true)
    }

    /// The ids of `text` without added tokens.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<TokenId>, String> {
        self.encoded(text, false)
    }

    fn encoded(&self, text: &str, framed: bool) -> Result<Vec<TokenId>, String> {
        let encoding =
            self.0.encode_fast(text, framed).map_err(|error| format!("the tokenizer failed on the text: {error}"))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of `ids`; special tokens are written by name. Invalid UTF-8 becomes U+FFFD.
    pub(super) fn decode(&self, ids: &[TokenId]) -> String {
        // Fails only for a broken decoder pipeline, then for every text.
        self.0.decode(ids, false).unwrap_or_default()
    }

    /// The id of `token`.
    pub(super) fn id_of(&self, token: &str) -> Option<TokenId> {
        self.0.token_to_id(token)
    }
}
