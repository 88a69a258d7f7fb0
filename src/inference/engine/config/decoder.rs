//! The Llama family (`llama`, `qwen2`, `qwen3`): one decoder with different defaults.

use serde::Deserialize;

use super::super::LoadError;
use super::{FILE, check_dims, check_epsilon, check_silu, parse, silu, unsupported};

/// Dimensions of a decoder with rotary positions, grouped-query attention and a gated feed-forward network, named as in
/// Hugging Face's `LlamaConfig`.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each tells whether a group of tensors exists")]
pub(crate) struct DecoderConfig {
    pub(crate) vocabulary: usize,
    pub(crate) d_model: usize,
    pub(crate) d_feed: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    /// Number of key-value heads; each serves `heads / kv_heads` query heads.
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) norm_epsilon: f32,
    /// Longest sequence in tokens.
    pub(crate) window: usize,
    pub(crate) rotary: Rotary,
    /// Queries and keys are normalised per head (Qwen3).
    pub(crate) qk_norms: bool,
    /// The projections to queries, keys and values have biases.
    pub(crate) qkv_bias: bool,
    /// The projection out of attention has a bias.
    pub(crate) out_bias: bool,
    /// The feed-forward's projections have biases.
    pub(crate) feed_bias: bool,
    /// The head is the embedding table.
    pub(crate) tied: bool,
}

/// Rotary position embedding (Su et al. 2021, arXiv:2104.09864).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rotary {
    pub(crate) theta: f64,
    pub(crate) scaling: Scaling,
}

/// Scaling of the frequencies to a longer window than the trained one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scaling {
    None,
    /// Divides all frequencies by one factor (Chen et al. 2023, arXiv:2306.15595).
    Linear(f64),
    /// Llama 3.1: divides slow frequencies by the factor, keeps fast ones, and interpolates between.
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        trained_window: f64,
    },
}

/// Fields of the file. Defaults are those of `transformers`.
#[derive(Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the file's own fields")]
struct Raw {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    max_position_embeddings: Option<usize>,
    #[serde(default = "epsilon")]
    rms_norm_eps: f32,
    #[serde(default = "silu")]
    hidden_act: String,
    rope_theta: Option<f64>,
    rope_scaling: Option<RawRotary>,
    rope_parameters: Option<RawRotary>,
    partial_rotary_factor: Option<f64>,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default)]
    use_sliding_window: bool,
    #[serde(default)]
    tie_word_embeddings: bool,
}

/// Files from before 2025 name it `rope_scaling`, and its type `type`.
#[derive(Deserialize)]
struct RawRotary {
    rope_type: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
}

fn epsilon() -> f32 {
    1e-6
}

impl DecoderConfig {
    /// `kind` is the `model_type`.
    pub(super) fn parse(json: &str, kind: &str) -> Result<Self, LoadError> {
        let raw: Raw = parse(json)?;
        check_silu(&raw.hidden_act)?;
        if raw.use_sliding_window {
            return Err(unsupported("sliding-window attention".to_owned(), "`use_sliding_window: false`"));
        }
        let (heads, llama) = (raw.num_attention_heads, kind == "llama");
        let kv_heads = raw.num_key_value_heads.unwrap_or(heads);
        let head_dim = raw.head_dim.unwrap_or(if kind == "qwen3" { 128 } else { raw.hidden_size / heads.max(1) });
        let window = raw.max_position_embeddings.unwrap_or(if llama { 2048 } else { 32_768 });
        check_dims(&[
            ("vocab_size", raw.vocab_size),
            ("hidden_size", raw.hidden_size),
            ("intermediate_size", raw.intermediate_size),
            ("num_hidden_layers", raw.num_hidden_layers),
            ("num_attention_heads", heads),
            ("num_key_value_heads", kv_heads),
            ("head_dim", head_dim),
            ("num_attention_heads × head_dim", heads.saturating_mul(head_dim)),
            ("max_position_embeddings", window),
        ])?;
        check_epsilon("rms_norm_eps", raw.rms_norm_eps)?;
        if !heads.is_multiple_of(kv_heads) {
            let why =
                format!("`num_attention_heads` is {heads}, not a multiple of the {kv_heads} of `num_key_value_heads`");
            return Err(LoadError::malformed(FILE, why));
        }
        if !head_dim.is_multiple_of(2) {
            return Err(LoadError::malformed(
                FILE,
                format!("`head_dim` is {head_dim}; rotary positions need an even one"),
            ));
        }
        Ok(Self {
            vocabulary: raw.vocab_size,
            d_model: raw.hidden_size,
            d_feed: raw.intermediate_size,
            layers: raw.num_hidden_layers,
            heads,
            kv_heads,
            head_dim,
            norm_epsilon: raw.rms_norm_eps,
            window,
            rotary: raw.rotary(window)?,
            qk_norms: kind == "qwen3",
            qkv_bias: kind == "qwen2" || raw.attention_bias,
            out_bias: kind != "qwen2" && raw.attention_bias,
            feed_bias: llama && raw.mlp_bias,
            tied: raw.tie_word_embeddings,
        })
    }
}

impl Raw {
    fn rotary(&self, window: usize) -> Result<Rotary, LoadError> {
        let stated = self.rope_scaling.as_ref().or(self.rope_parameters.as_ref());
        let theta = stated.and_then(|r| r.rope_theta).or(self.rope_theta).unwrap_or(10_000.0);
        let partial = stated.and_then(|r| r.partial_rotary_factor).or(self.partial_rotary_factor);
        if partial.is_some_and(|part| part < 1.0) {
            return Err(unsupported(
                "rotary positions on part of each head".to_owned(),
                "rotary positions on the whole head",
            ));
        }
        let positive = |name: &str, value: Option<f64>| match value {
            Some(value) if value.is_finite() && value > 0.0 => Ok(value),
            Some(value) => Err(LoadError::malformed(FILE, format!("`{name}` is {value}; it must be above 0"))),
            None => Err(LoadError::malformed(FILE, format!("`{name}` is missing from the rotary parameters"))),
        };
        let theta = positive("rope_theta", Some(theta))?;
        let kind = stated.and_then(|r| r.rope_type.as_deref().or(r.kind.as_deref())).unwrap_or("default");
        let scaling = match (kind, stated) {
            ("default", _) => Scaling::None,
            ("linear", Some(r)) => Scaling::Linear(positive("factor", r.factor)?),
            ("llama3", Some(r)) => {
                let (low, high) = (
                    positive("low_freq_factor", r.low_freq_factor)?,
                    positive("high_freq_factor", r.high_freq_factor)?,
                );
                if low >= high {
                    let why = format!("`low_freq_factor` is {low}; it must be below the {high} of `high_freq_factor`");
                    return Err(LoadError::malformed(FILE, why));
                }
                let trained = r.original_max_position_embeddings.unwrap_or(window as f64);
                Scaling::Llama3 {
                    factor: positive("factor", r.factor)?,
                    low,
                    high,
                    trained_window: positive("original_max_position_embeddings", Some(trained))?,
                }
            }
            (other, _) => {
                let what = format!("rotary positions of type `{other}`");
                return Err(unsupported(what, "`default`, `linear`, `llama3`"));
            }
        };
        Ok(Rotary { theta, scaling })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn config(kind: &str, extra: &str) -> Result<DecoderConfig, LoadError> {
        let json = format!(
            r#"{{"model_type": "{kind}", "vocab_size": 9, "hidden_size": 64, "intermediate_size": 96,
                "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 100{extra}}}"#
        );
        Config::parse(&json).map(|config| match config {
            Config::Decoder(config) => config,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn each_model_type_has_its_own_defaults() {
        let llama = config("llama", "").unwrap();
        assert_eq!((llama.kv_heads, llama.head_dim, llama.qkv_bias, llama.qk_norms), (4, 16, false, false));
        let qwen2 = config("qwen2", r#", "num_key_value_heads": 2"#).unwrap();
        assert_eq!((qwen2.kv_heads, qwen2.qkv_bias, qwen2.out_bias), (2, true, false));
        let qwen3 = config("qwen3", "").unwrap();
        assert_eq!((qwen3.head_dim, qwen3.qkv_bias, qwen3.qk_norms), (128, false, true));
    }

    #[test]
    fn rotary_parameters_are_parsed_in_both_formats() {
        let old = r#", "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2}"#;
        let new = r#", "rope_parameters": {"rope_type": "linear", "rope_theta": 5e5, "factor": 2}"#;
        let want = Rotary { theta: 5e5, scaling: Scaling::Linear(2.0) };
        assert_eq!(config("llama", old).unwrap().rotary, want);
        assert_eq!(config("llama", new).unwrap().rotary, want);
        let llama3 =
            r#", "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}"#;
        let scaling = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, trained_window: 100.0 };
        assert_eq!(config("llama", llama3).unwrap().rotary, Rotary { theta: 1e4, scaling });
    }

    #[test]
    fn an_unsupported_config_names_what_is_supported() {
        let check = |extra: &str, why: &str| {
            let error = config("llama", extra).unwrap_err().to_string();
            assert!(error.contains(why), "{extra}: {error}");
        };
        check(r#", "rope_scaling": {"type": "yarn", "factor": 4}"#, "type `yarn`; supported: `default`, `linear`");
        check(r#", "rope_scaling": {"type": "linear"}"#, "`factor` is missing");
        check(r#", "rope_theta": -1"#, "`rope_theta` is -1; it must be above 0");
        check(r#", "partial_rotary_factor": 0.5"#, "part of each head");
        check(r#", "num_key_value_heads": 3"#, "`num_attention_heads` is 4, not a multiple of the 3");
        check(r#", "head_dim": 7"#, "`head_dim` is 7; rotary positions need an even one");
        check(r#", "use_sliding_window": true"#, "sliding-window attention");
        check(r#", "hidden_act": "gelu""#, "the activation `gelu`");
    }
}
