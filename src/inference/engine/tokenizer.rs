//! Converts text to token ids and back with the model's own `tokenizer.json`.

mod patterns;
mod screen;

use tokenizers::{DecoderWrapper, ModelWrapper, PostProcessor, PostProcessorWrapper, TokenizerImpl, TruncationParams};

use self::patterns::{Normaliser, PreTokenizer};
use super::error::LoadError;
use crate::foundation::base::caught;
use crate::foundation::base::limits::TOKENIZED_TEXT_BYTES_MAX;
use crate::foundation::chat::TokenId;

/// A `tokenizer.json` whose regex failures are reported.
type Inner = TokenizerImpl<ModelWrapper, Normaliser, PreTokenizer, PostProcessorWrapper, DecoderWrapper>;

/// A loaded `tokenizer.json`.
pub(super) struct Tokenizer {
    inner: Inner,
    /// Put before a text that is not a chat: BOS, or nothing.
    leading: Vec<TokenId>,
}

impl Tokenizer {
    /// Parses a `tokenizer.json`.
    pub(super) fn parse(json: &str) -> Result<Self, LoadError> {
        let malformed = |error| LoadError::malformed("tokenizer.json", error);
        let damaged = |why: String| LoadError::malformed("tokenizer.json", why);
        screen::screen(json).map_err(damaged)?;
        // The library panics on some damaged files.
        let parsed = caught(|| json.parse::<Inner>());
        let mut inner =
            parsed.map_err(|why| damaged(format!("the tokenizer cannot read it: {why}")))?.map_err(malformed)?;
        // Ignore truncation and padding, which are meant for training.
        inner.with_truncation(None).map_err(malformed)?;
        inner.with_padding(None);
        Ok(Self { inner, leading: Vec::new() })
    }

    /// Parses a `tokenizer.json` for an encoder: texts are truncated to `most` tokens, including the tokens added
    /// before and after.
    pub(super) fn parse_cutting(json: &str, most: usize) -> Result<Self, LoadError> {
        let mut tokenizer = Self::parse(json)?;
        let framing = tokenizer.inner.get_post_processor().map_or(0, |post| post.added_tokens(false));
        if most <= framing {
            let why = format!("it adds {framing} tokens to a text, but the model reads at most {most}");
            return Err(LoadError::malformed("tokenizer.json", why));
        }
        let cut = TruncationParams { max_length: most, ..TruncationParams::default() };
        tokenizer.inner.with_truncation(Some(cut)).map_err(|error| LoadError::malformed("tokenizer.json", error))?;
        Ok(tokenizer)
    }

    /// The ids of `text` with the tokens that the post-processor adds.
    pub(super) fn encode_framed(&self, text: &str) -> Result<Vec<TokenId>, String> {
        self.encoded(text, true)
    }

    /// Decides what is put before a text that is not a chat: the token `bos` if `add_bos`; by default what the
    /// post-processor puts there.
    pub(super) fn set_leading(&mut self, add_bos: Option<bool>, bos: Option<&str>) -> Result<(), LoadError> {
        self.leading = match add_bos {
            Some(false) => Vec::new(),
            Some(true) => bos.and_then(|bos| self.id_of(bos)).into_iter().collect(),
            None => {
                let malformed = |error| LoadError::malformed("tokenizer.json", error);
                let framed = caught(|| self.inner.encode("a", true));
                let framed = framed.map_err(|why| LoadError::malformed("tokenizer.json", why))?.map_err(malformed)?;
                let ids = framed.get_ids().iter().zip(framed.get_special_tokens_mask());
                ids.take_while(|(_, special)| **special == 1).map(|(id, _)| *id).collect()
            }
        };
        Ok(())
    }

    /// What is put before a text that is not a chat.
    pub(super) fn leading(&self) -> &[TokenId] {
        &self.leading
    }

    /// The ids of a text that is not a chat, after [`leading`](Self::leading) unless it begins with that itself.
    pub(super) fn encode_text(&self, text: &str) -> Result<Vec<TokenId>, String> {
        let ids = self.encode(text)?;
        if ids.starts_with(&self.leading) { Ok(ids) } else { Ok([&self.leading, ids.as_slice()].concat()) }
    }

    /// The ids of `text` without added tokens.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<TokenId>, String> {
        self.encoded(text, false)
    }

    fn encoded(&self, text: &str, framed: bool) -> Result<Vec<TokenId>, String> {
        if text.len() > TOKENIZED_TEXT_BYTES_MAX {
            return Err(format!("the text is longer than {TOKENIZED_TEXT_BYTES_MAX} bytes"));
        }
        let encoding = caught(|| self.inner.encode_fast(text, framed))
            .and_then(|encoding| encoding.map_err(|error| error.to_string()))
            .map_err(|why| format!("the tokenizer failed on the text: {why}"))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of `ids`; special tokens are written by name. Invalid UTF-8 becomes U+FFFD.
    pub(super) fn decode(&self, ids: &[TokenId]) -> String {
        // Fails only for a broken decoder pipeline, then for every text.
        caught(|| self.inner.decode(ids, false)).ok().and_then(Result::ok).unwrap_or_default()
    }

    /// The id of `token`.
    pub(super) fn id_of(&self, token: &str) -> Option<TokenId> {
        self.inner.token_to_id(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words `w0` to `w3`; `w0` is put before a text, `w1` after it.
    const FRAMING: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": null,
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "w0", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "w1", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"w0": {"id": "w0", "ids": [0], "tokens": ["w0"]},
                "w1": {"id": "w1", "ids": [1], "tokens": ["w1"]}}},
        "model": {"type": "WordLevel", "vocab": {"w0": 0, "w1": 1, "w2": 2, "w3": 3}, "unk_token": "w0"}}"#;

    #[test]
    fn a_text_begins_with_bos_where_the_tokenizer_says_so() {
        let mut plain: serde_json::Value = serde_json::from_str(FRAMING).unwrap();
        plain["post_processor"] = serde_json::Value::Null;
        let plain = plain.to_string();
        let check = |json: &str, add_bos, bos, ids: &[TokenId]| {
            let mut tokenizer = Tokenizer::parse(json).unwrap();
            tokenizer.set_leading(add_bos, bos).unwrap();
            assert_eq!(tokenizer.encode_text("w2 w3").unwrap(), ids, "{add_bos:?} {bos:?}");
            assert_eq!(tokenizer.encode("w2 w3").unwrap(), [2, 3]);
        };
        check(FRAMING, None, None, &[0, 2, 3]);
        check(FRAMING, Some(false), Some("w0"), &[2, 3]);
        check(FRAMING, Some(true), Some("w3"), &[3, 2, 3]);
        check(&plain, None, Some("w0"), &[2, 3]);
        check(&plain, Some(true), Some("w0"), &[0, 2, 3]);
        // It is not put before a text that begins with it.
        let mut tokenizer = Tokenizer::parse(FRAMING).unwrap();
        tokenizer.set_leading(None, None).unwrap();
        assert_eq!(tokenizer.encode_text("w0 w2").unwrap(), [0, 2]);
    }
}
