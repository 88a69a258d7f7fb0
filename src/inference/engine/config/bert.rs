//! A sentence embedder (`bert`).

use serde::Deserialize;

use super::super::LoadError;
use super::{FILE, check_dims, check_epsilon, model_type, parse, unsupported};

/// Dimensions of an encoder (Devlin et al. 2018, arXiv:1810.04805), named as in Hugging Face's `BertConfig`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BertConfig {
    pub(crate) vocabulary: usize,
    pub(crate) d_model: usize,
    pub(crate) d_feed: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    /// Longest text in tokens.
    pub(crate) window: usize,
    /// Number of segment types; a single text has the first.
    pub(crate) segments: usize,
    pub(crate) norm_epsilon: f32,
}

/// Fields of the file. Defaults are those of `transformers`.
#[derive(Deserialize)]
struct Raw {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    max_position_embeddings: usize,
    #[serde(default = "two")]
    type_vocab_size: usize,
    #[serde(default = "epsilon")]
    layer_norm_eps: f32,
    #[serde(default = "gelu")]
    hidden_act: String,
    #[serde(default = "absolute")]
    position_embedding_type: String,
    #[serde(default)]
    is_decoder: bool,
}

fn two() -> usize {
    2
}

fn epsilon() -> f32 {
    1e-12
}

fn gelu() -> String {
    "gelu".to_owned()
}

fn absolute() -> String {
    "absolute".to_owned()
}

impl BertConfig {
    /// Parses the text of a `config.json`.
    pub(crate) fn parse(json: &str) -> Result<Self, LoadError> {
        let kind = model_type(json)?;
        if kind != "bert" {
            return Err(unsupported(format!("the architecture `{kind}` for a sentence embedder"), "`bert`"));
        }
        let raw: Raw = parse(json)?;
        if raw.hidden_act != "gelu" {
            return Err(unsupported(format!("the activation `{}`", raw.hidden_act), "`gelu`"));
        }
        if raw.position_embedding_type != "absolute" || raw.is_decoder {
            return Err(unsupported(
                "relative positions or a decoder".to_owned(),
                "an encoder with absolute positions",
            ));
        }
        check_dims(&[
            ("vocab_size", raw.vocab_size),
            ("hidden_size", raw.hidden_size),
            ("intermediate_size", raw.intermediate_size),
            ("num_hidden_layers", raw.num_hidden_layers),
            ("num_attention_heads", raw.num_attention_heads),
            ("max_position_embeddings", raw.max_position_embeddings),
            ("type_vocab_size", raw.type_vocab_size),
        ])?;
        check_epsilon("layer_norm_eps", raw.layer_norm_eps)?;
        if !raw.hidden_size.is_multiple_of(raw.num_attention_heads) {
            let (width, heads) = (raw.hidden_size, raw.num_attention_heads);
            return Err(LoadError::malformed(
                FILE,
                format!("`hidden_size` is {width}, not a multiple of the {heads} of `num_attention_heads`"),
            ));
        }
        Ok(Self {
            vocabulary: raw.vocab_size,
            d_model: raw.hidden_size,
            d_feed: raw.intermediate_size,
            layers: raw.num_hidden_layers,
            heads: raw.num_attention_heads,
            window: raw.max_position_embeddings,
            segments: raw.type_vocab_size,
            norm_epsilon: raw.layer_norm_eps,
        })
    }
}
