//! Converts text to token ids and back with the model's own `tokenizer.json`.

mod divide;
mod patterns;
mod screen;

use std::sync::{Mutex, PoisonError};

use tokenizers::{DecoderWrapper, ModelWrapper, PostProcessor, PostProcessorWrapper, TokenizerImpl, TruncationParams};

use self::patterns::{Normaliser, PreTokenizer};
use super::error::LoadError;
use crate::foundation::base::caught;
use crate::foundation::base::limits::{TOKENIZED_PIECE_BYTES, TOKENIZED_PIECE_BYTES_MAX, TOKENIZED_TEXT_BYTES_MAX};
use crate::foundation::chat::TokenId;

/// A `tokenizer.json` whose regex failures are reported.
type Inner = TokenizerImpl<ModelWrapper, Normaliser, PreTokenizer, PostProcessorWrapper, DecoderWrapper>;

/// A loaded `tokenizer.json`.
pub(super) struct Tokenizer {
    inner: Inner,
    /// Put before a text that is not a chat: BOS, or nothing.
    leading: Vec<TokenId>,
    /// Held while a piece of more than [`LARGE_BYTES`] is tokenised, for one takes a hundred megabytes.
    large: Mutex<()>,
}

/// Pieces from here on are tokenised one at a time, bytes.
const LARGE_BYTES: usize = 64 << 10;

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
        Ok(Self { inner, leading: Vec::new(), large: Mutex::default() })
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

    /// The ids of `text` with the tokens that the post-processor adds. Only the first [`TOKENIZED_PIECE_BYTES_MAX`] bytes
    /// are read: encoders truncate to far fewer tokens.
    pub(super) fn encode_framed(&self, text: &str) -> Result<Vec<TokenId>, String> {
        self.encoded(text.split_at(text.floor_char_boundary(TOKENIZED_PIECE_BYTES_MAX)).0, true)
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

    /// The ids of a text that is not a chat, after [`leading`](Self::leading) unless it begins with that itself. See
    /// [`encode_at_most`](Self::encode_at_most).
    pub(super) fn encode_text(&self, text: &str, most: usize) -> Result<Vec<TokenId>, String> {
        let ids = self.encode_at_most(text, most)?;
        if ids.starts_with(&self.leading) { Ok(ids) } else { Ok([&self.leading, ids.as_slice()].concat()) }
    }

    /// The ids of `text` without added tokens.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<TokenId>, String> {
        self.encode_at_most(text, usize::MAX)
    }

    /// The ids of `text` without added tokens, if they are not more than `most`; a text that has more is not read to its
    /// end. The library keeps about 240 bytes per byte of text, so a long text is read piece by piece; the ids are the same.
    pub(super) fn encode_at_most(&self, text: &str, most: usize) -> Result<Vec<TokenId>, String> {
        if text.len() > TOKENIZED_TEXT_BYTES_MAX {
            return Err(format!("the text is longer than {TOKENIZED_TEXT_BYTES_MAX} bytes"));
        }
        let (piece, mut rest) = text.split_at(self.divide(text)?);
        let mut ids = self.encoded(piece, false)?;
        while !rest.is_empty() && ids.len() <= most {
            let (piece, after) = rest.split_at(self.divide(rest)?);
            ids.extend(self.encoded(piece, false)?);
            rest = after;
        }
        if ids.len() > most {
            return Err(format!("the text has more than {most} tokens: shorten it"));
        }
        Ok(ids)
    }

    /// Where the first piece of `text` ends: the whole text if it is short.
    fn divide(&self, text: &str) -> Result<usize, String> {
        if text.len() <= TOKENIZED_PIECE_BYTES * 2 {
            return Ok(text.len());
        }
        let divides = |around: &str, at: usize| {
            let (before, after) = around.split_at(at);
            Ok(self.encoded(around, false)? == [self.encoded(before, false)?, self.encoded(after, false)?].concat())
        };
        // Without a pre-tokenizer, tokens are merged across words.
        let end = match self.inner.get_pre_tokenizer() {
            Some(_) => divide::first_end(text, TOKENIZED_PIECE_BYTES, TOKENIZED_PIECE_BYTES_MAX, divides)?,
            None => None,
        };
        match end {
            Some(end) => Ok(end),
            None if text.len() <= TOKENIZED_PIECE_BYTES_MAX => Ok(text.len()),
            None => Err(format!(
                "the text has {TOKENIZED_PIECE_BYTES_MAX} bytes in a row without a place at which the tokenizer could divide \
                 it: put white space into it"
            )),
        }
    }

    fn encoded(&self, text: &str, framed: bool) -> Result<Vec<TokenId>, String> {
        let _one = (text.len() > LARGE_BYTES).then(|| self.large.lock().unwrap_or_else(PoisonError::into_inner));
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
            assert_eq!(tokenizer.encode_text("w2 w3", 9).unwrap(), ids, "{add_bos:?} {bos:?}");
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
        assert_eq!(tokenizer.encode_text("w0 w2", 9).unwrap(), [0, 2]);
    }

    /// The bundled tokenizer with another normalizer and splitting.
    fn variant(normalizer: &str, pre_tokenizer: &str) -> Tokenizer {
        let mut json: serde_json::Value = serde_json::from_str(super::super::bundled::TOKENIZER).unwrap();
        json["normalizer"] = serde_json::from_str(normalizer).unwrap();
        json["pre_tokenizer"] = serde_json::from_str(pre_tokenizer).unwrap();
        Tokenizer::parse(&json.to_string()).unwrap()
    }

    /// Texts of different kinds, each of some 60,000 bytes.
    fn long_texts() -> Vec<String> {
        let mut state = 7u64;
        let mut draw = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let parts: [&[&str]; 5] = [
            &["the", " dog", " don't", " I'll", ", ", ". ", "\n\n", " 2024", "x1", " É", "é", " e\u{301}", "  "],
            &[
                "fn ",
                "f(x)",
                " {\n        ",
                "}\n",
                "\t",
                "\r\n",
                "==",
                "1234567",
                "_a",
                "// ",
                "\"s'",
                "<|end|>",
                "</s>",
            ],
            &["下", "载", "。", "，", "猫\n", "か", "\u{3000}", "한", "ً", "🙂", "👩\u{200d}🚀", "a", " 1"],
            &["<|user|>", "<|end|>", "<|assistant|>", "hi", " yes", "\n", "<|", "|>", "<", "end"],
            &["0", "1", "a", "F", "+", "/", "=", "Zz", "9x", "-"],
        ];
        let made = |words: &[&str]| {
            let mut text = String::new();
            while text.len() < 60_000 {
                let word = words[draw(words.len())];
                text.push_str(&word.repeat(if draw(40) == 0 { draw(300) } else { 1 }));
            }
            text
        };
        parts.into_iter().map(made).collect()
    }

    #[test]
    fn pieces_of_a_long_text_have_the_ids_of_the_whole() {
        let split = |pattern: &str| {
            let pattern = serde_json::Value::from(pattern);
            format!(
                r#"{{"type": "Sequence", "pretokenizers": [{{"type": "Split", "pattern": {{"Regex": {pattern}}}, "behavior":
                    "Isolated", "invert": false}}, {{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                    "use_regex": false}}]}}"#
            )
        };
        let llama3 = split(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        );
        let qwen = split(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        );
        let metaspace = r#"{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true}"#;
        let gpt2 = r#"{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}"#;
        let spaced = r#"{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}"#;
        let mistral = r#"{"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}"#;
        let mut pieces = 0;
        for (normalizer, pre_tokenizer) in [
            ("null", gpt2),
            ("null", spaced),
            ("null", &llama3),
            (r#"{"type": "NFC"}"#, &qwen),
            ("null", metaspace),
            ("null", "null"),
            (mistral, "null"),
            (r#"{"type": "Lowercase"}"#, r#"{"type": "BertPreTokenizer"}"#),
        ] {
            let tokenizer = variant(normalizer, pre_tokenizer);
            for text in long_texts() {
                let whole = tokenizer.encoded(&text, false).unwrap();
                assert!(tokenizer.encode(&text).unwrap() == whole, "{normalizer} {pre_tokenizer} {text:.80}");
                pieces += usize::from(tokenizer.divide(&text).unwrap() < text.len());
                assert!(tokenizer.encode_at_most(&text, whole.len() - 1).is_err());
                assert_eq!(tokenizer.encode_at_most(&text, whole.len()).unwrap().len(), whole.len());
            }
        }
        assert!(pieces > 25, "{pieces}");
    }

    #[test]
    fn a_text_that_cannot_be_divided_is_limited() {
        let tokenizer = Tokenizer::parse(super::super::bundled::TOKENIZER).unwrap();
        let why = tokenizer.encode(&"x".repeat(TOKENIZED_PIECE_BYTES_MAX + 1)).unwrap_err();
        assert!(why.contains("without a place"), "{why}");
        assert!(tokenizer.encode(&"x".repeat(TOKENIZED_PIECE_BYTES_MAX)).is_ok());
        assert!(tokenizer.encode(&"x ".repeat(TOKENIZED_PIECE_BYTES_MAX)).is_ok());
    }
}
