//! Converts a GGUF file's tokenizer to `tokenizer.json` and `tokenizer_config.json`.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value as Json, json};

use super::super::error::LoadError;
use super::Gguf;
use super::header::Value;
use crate::foundation::base::limits::GGUF_TOKEN_BYTES_MAX;

/// Llama 3's split pattern.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Split pattern of Qwen 2 and later: single digits.
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Split pattern of GPT-4o, which Phi-4-mini uses.
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// `llama_token_type` of control tokens and user-defined tokens.
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;
/// The id of a special token that there is none of: −1 as `u32`.
pub(super) const NO_TOKEN: u64 = u32::MAX as u64;
/// `SentencePiece`'s symbol for a space.
const SPACE: &str = "▁";

impl Gguf {
    /// The tokenizer as `tokenizer.json`.
    pub(in super::super) fn tokenizer(&self) -> Result<String, LoadError> {
        let tokens = self.tokens()?;
        let kinds = self.list("tokenizer.ggml.token_type")?.unwrap_or_default();
        let kind = |at: usize| kind_of(kinds, at);
        let added: Vec<_> = tokens
            .iter()
            .enumerate()
            .filter(|(at, token)| matches!(kind(*at), CONTROL | USER_DEFINED) && !token.is_empty())
            .map(|(at, token)| {
                json!({
                    "id": at, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": kind(at) == CONTROL,
                })
            })
            .collect();
        let key = "tokenizer.ggml.model";
        let parts = match self.need(key, self.text(key)?)? {
            "gpt2" => self.byte_level(&tokens)?,
            "llama" => self.sentence_pieces(&tokens)?,
            other => {
                return Err(
                    self.malformed(format!("its tokenizer model is `{other}`; supported are `gpt2` and `llama`"))
                );
            }
        };
        let json = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
            "normalizer": parts.normalizer, "pre_tokenizer": parts.pre_tokenizer, "post_processor": null,
            "decoder": parts.decoder, "model": parts.model,
        });
        Ok(json.to_string())
    }

    /// Special tokens and chat template as `tokenizer_config.json`.
    pub(in super::super) fn tokenizer_config(&self) -> Result<String, LoadError> {
        let tokens = self.tokens()?;
        let mut config = Map::new();
        for (name, key) in [
            ("bos_token", "tokenizer.ggml.bos_token_id"),
            ("eos_token", "tokenizer.ggml.eos_token_id"),
            ("pad_token", "tokenizer.ggml.padding_token_id"),
            ("unk_token", "tokenizer.ggml.unknown_token_id"),
        ] {
            if let Some(id) = self.number(key)?.filter(|&id| id != NO_TOKEN) {
                let token = usize::try_from(id).ok().and_then(|id| tokens.get(id));
                let token = token.ok_or_else(|| self.malformed(format!("`{key}` is {id}, outside the vocabulary")))?;
                config.insert(name.to_owned(), (*token).into());
            }
        }
        if let Some(add_bos) = self.flag("tokenizer.ggml.add_bos_token")?.or(self.adds_bos()?) {
            config.insert("add_bos_token".to_owned(), add_bos.into());
        }
        if let Some(template) = self.text("tokenizer.chat_template")? {
            config.insert("chat_template".to_owned(), template.into());
        }
        Ok(Json::Object(config).to_string())
    }

    /// Whether llama.cpp puts BOS before a text where the file does not say.
    fn adds_bos(&self) -> Result<Option<bool>, LoadError> {
        let llama = |pre: &str| matches!(pre, "llama-bpe" | "llama3" | "llama-v3");
        Ok(match self.text("tokenizer.ggml.model")? {
            Some("llama") => Some(true),
            Some("gpt2") => Some(self.text("tokenizer.ggml.pre")?.is_some_and(llama)),
            _ => None,
        })
    }

    /// The vocabulary in order of ids, without duplicates.
    fn tokens(&self) -> Result<Vec<&str>, LoadError> {
        let key = "tokenizer.ggml.tokens";
        let tokens = self.texts(key, self.need(key, self.list(key)?)?)?;
        let mut seen = HashSet::new();
        for token in &tokens {
            if token.len() > GGUF_TOKEN_BYTES_MAX {
                return Err(
                    self.malformed(format!("a token has {} bytes, more than {GGUF_TOKEN_BYTES_MAX}", token.len()))
                );
            }
            if !seen.insert(token) {
                return Err(self.malformed(format!("the token {token:?} occurs twice")));
            }
        }
        Ok(tokens)
    }

    fn texts<'a>(&self, key: &str, values: &'a [Value]) -> Result<Vec<&'a str>, LoadError> {
        let texts = values.iter().map(|value| match value {
            Value::Text(text) => Ok(text.as_str()),
            _ => Err(self.malformed(format!("`{key}` is not a list of texts"))),
        });
        texts.collect()
    }

    /// Byte-level BPE (GPT-2).
    fn byte_level(&self, tokens: &[&str]) -> Result<Parts, LoadError> {
        let key = "tokenizer.ggml.merges";
        let merges = self.texts(key, self.need(key, self.list(key)?)?)?;
        let bytes = |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex});
        let split = |regex: &str| {
            let split = json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
            json!({"type": "Sequence", "pretokenizers": [split, bytes(false)]})
        };
        let mut ignore_merges = false;
        let mut normalizer = Json::Null;
        let pre_tokenizer = match self.text("tokenizer.ggml.pre")?.unwrap_or("default") {
            "default" | "gpt-2" | "gpt2" | "gpt-neox" | "mpt" | "olmo" => bytes(true),
            // Granite 3 writes `refact`.
            "smollm" | "refact" | "starcoder" => {
                json!({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, bytes(true)]})
            }
            "qwen2" | "deepseek-r1-qwen" => {
                normalizer = json!({"type": "NFC"});
                split(QWEN2)
            }
            "llama-bpe" | "llama3" | "llama-v3" => {
                ignore_merges = true;
                split(LLAMA3)
            }
            // The pattern of Llama 3, but a word that is a token may be merged otherwise (OLMo 2, Phi-4, SmolLM3).
            "dbrx" | "smaug-bpe" => split(LLAMA3),
            "gpt-4o" => split(GPT4O),
            other => {
                return Err(self.malformed(format!(
                    "its pre-tokenizer is `{other}` (tokenizer.ggml.pre); supported are gpt-2, smollm, refact, qwen2, dbrx, gpt-4o \
                     and llama-bpe: use its safetensors and tokenizer.json instead"
                )));
            }
        };
        let cut = merges.iter().map(|merge| {
            let pair = merge.split_once(' ');
            pair.ok_or_else(|| self.malformed(format!("the merge {merge:?} is not two tokens with a space between")))
        });
        let merges = cut.collect::<Result<Vec<_>, _>>()?;
        Ok(Parts {
            normalizer,
            pre_tokenizer,
            decoder: bytes(true),
            model: bpe(tokens, &merges, &json!({"ignore_merges": ignore_merges})),
        })
    }

    /// `SentencePiece` BPE (Llama 1 and 2): the pair whose merged piece has the highest score is merged first; text
    /// without a piece is encoded as bytes.
    fn sentence_pieces(&self, tokens: &[&str]) -> Result<Parts, LoadError> {
        let key = "tokenizer.ggml.scores";
        let scores = self.need(key, self.list(key)?)?;
        let ids: HashMap<_, _> = tokens.iter().enumerate().map(|(id, token)| (*token, id)).collect();
        let mut merges = Vec::new();
        for (token, score) in tokens.iter().zip(scores) {
            let Value::Float(score) = score else {
                return Err(self.malformed(format!("`{key}` is not a list of numbers")));
            };
            let mut of_token: Vec<_> = token
                .char_indices()
                .skip(1)
                .map(|(at, _)| token.split_at(at))
                .filter_map(|(a, b)| Some((ids.get(a)?, ids.get(b)?, a, b)))
                .collect();
            of_token.sort_unstable();
            merges.extend(of_token.into_iter().map(|(_, _, a, b)| (*score, a, b)));
        }
        merges.sort_by(|a, b| b.0.total_cmp(&a.0));
        let merges: Vec<_> = merges.into_iter().map(|(_, a, b)| (a, b)).collect();
        let unknown = self.number("tokenizer.ggml.unknown_token_id")?.unwrap_or(0);
        let unknown = usize::try_from(unknown).ok().and_then(|id| tokens.get(id));
        let replace = |from: &str, to: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": to});
        let prefix = self.flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        let mut normalizers = vec![replace(" ", SPACE)];
        let mut decoders = vec![replace(SPACE, " "), json!({"type": "ByteFallback"}), json!({"type": "Fuse"})];
        if prefix {
            normalizers.insert(0, json!({"type": "Prepend", "prepend": SPACE}));
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        Ok(Parts {
            normalizer: json!({"type": "Sequence", "normalizers": normalizers}),
            pre_tokenizer: Json::Null,
            decoder: json!({"type": "Sequence", "decoders": decoders}),
            model: bpe(tokens, &merges, &json!({"byte_fallback": true, "fuse_unk": true, "unk_token": unknown})),
        })
    }
}

/// The `llama_token_type` of token `at`; normal where the file does not say.
fn kind_of(kinds: &[Value], at: usize) -> u64 {
    match kinds.get(at) {
        Some(Value::Signed(kind)) => u64::try_from(*kind).unwrap_or(0),
        Some(Value::Unsigned(kind)) => *kind,
        _ => 1,
    }
}

/// The parts of a `tokenizer.json`.
struct Parts {
    normalizer: Json,
    pre_tokenizer: Json,
    decoder: Json,
    model: Json,
}

fn bpe(tokens: &[&str], merges: &[(&str, &str)], settings: &Json) -> Json {
    let vocabulary: Map<_, _> = tokens.iter().enumerate().map(|(id, token)| ((*token).to_owned(), id.into())).collect();
    let merges: Vec<_> = merges.iter().map(|(a, b)| json!([a, b])).collect();
    let mut model = json!({
        "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
        "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
        "vocab": vocabulary, "merges": merges,
    });
    if let (Some(model), Some(settings)) = (model.as_object_mut(), settings.as_object()) {
        model.extend(settings.clone());
    }
    model
}
