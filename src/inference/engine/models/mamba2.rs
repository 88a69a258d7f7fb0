//! Mamba-2 (Dao and Gu 2024, arXiv:2405.21060), with weights in the layout of Hugging Face's `Mamba2ForCausalLM`.

use serde::Deserialize;

use super::super::error::LoadError;
use super::super::family::{Family, boxed};
use super::super::mamba2::Mamba2Config;
use super::config_json::{FILE, check_dims, check_epsilon, check_silu, epsilon, four, parse, silu, two, yes};

/// Mamba-2.
pub(super) const FAMILY: Family =
    Family { model_type: "mamba2", parse: |json| parse_config(json).map(boxed), gguf: None };

/// Fields of the file. Defaults are those of `transformers`; `chunk_size` and `residual_in_fp32` have no effect here.
#[derive(Deserialize)]
struct Raw {
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    #[serde(default = "heads")]
    num_heads: usize,
    #[serde(default = "head_dim")]
    head_dim: usize,
    #[serde(default = "state_size")]
    state_size: usize,
    #[serde(default = "groups")]
    n_groups: usize,
    #[serde(default = "two")]
    expand: f64,
    #[serde(default = "four")]
    conv_kernel: usize,
    #[serde(default = "epsilon")]
    layer_norm_epsilon: f32,
    #[serde(default)]
    time_step_limit: Option<(Bound, Bound)>,
    #[serde(default)]
    use_bias: bool,
    #[serde(default = "yes")]
    use_conv_bias: bool,
    #[serde(default = "silu")]
    hidden_act: String,
    #[serde(default)]
    tie_word_embeddings: bool,
}

/// A number, or an infinity, which is `null` after [`standard_json`](super::config_json::standard_json).
#[derive(Deserialize)]
#[serde(untagged)]
enum Bound {
    Number(f32),
    Named {
        #[serde(rename = "__float__")]
        name: String,
    },
    Infinite(()),
}

impl Bound {
    fn value(&self) -> f32 {
        match self {
            Self::Number(number) => *number,
            Self::Named { name } if name == "Infinity" => f32::INFINITY,
            Self::Named { .. } => f32::NAN,
            Self::Infinite(()) => f32::INFINITY,
        }
    }
}

fn heads() -> usize {
    128
}

fn head_dim() -> usize {
    64
}

fn state_size() -> usize {
    128
}

fn groups() -> usize {
    8
}

fn parse_config(json: &str) -> Result<Mamba2Config, LoadError> {
    let raw: Raw = parse(json)?;
    check_silu(&raw.hidden_act)?;
    check_dims(&[
        ("vocab_size", raw.vocab_size),
        ("hidden_size", raw.hidden_size),
        ("num_heads", raw.num_heads),
        ("head_dim", raw.head_dim),
        ("num_heads × head_dim", raw.num_heads.saturating_mul(raw.head_dim)),
        ("state_size", raw.state_size),
        ("n_groups × state_size", raw.n_groups.saturating_mul(raw.state_size)),
        ("conv_kernel", raw.conv_kernel),
        ("num_hidden_layers", raw.num_hidden_layers),
    ])?;
    check_epsilon("layer_norm_epsilon", raw.layer_norm_epsilon)?;
    let (d_inner, stated) = ((raw.num_heads * raw.head_dim) as f64, raw.expand * raw.hidden_size as f64);
    if (d_inner - stated).abs() >= 1.0 {
        let why = format!("`num_heads` × `head_dim` is {d_inner}, but `expand` × `hidden_size` is {stated}");
        return Err(LoadError::malformed(FILE, why));
    }
    if !raw.num_heads.is_multiple_of(raw.n_groups) {
        let why = format!("`num_heads` is {}, not a multiple of the {} of `n_groups`", raw.num_heads, raw.n_groups);
        return Err(LoadError::malformed(FILE, why));
    }
    let dt_limit = raw.time_step_limit.map_or((0.0, f32::INFINITY), |(low, high)| (low.value(), high.value()));
    if !(dt_limit.0 >= 0.0 && dt_limit.0 < dt_limit.1) {
        return Err(LoadError::malformed(FILE, "`time_step_limit` must be two numbers, 0 or more, the lower first"));
    }
    Ok(Mamba2Config {
        vocabulary: raw.vocab_size,
        d_model: raw.hidden_size,
        heads: raw.num_heads,
        head_dim: raw.head_dim,
        d_state: raw.state_size,
        groups: raw.n_groups,
        d_conv: raw.conv_kernel,
        layers: raw.num_hidden_layers,
        norm_epsilon: raw.layer_norm_epsilon,
        dt_limit,
        use_bias: raw.use_bias,
        use_conv_bias: raw.use_conv_bias,
        tied: raw.tie_word_embeddings,
    })
}

#[cfg(test)]
mod tests {
    use super::super::config_json::standard_json;
    use super::*;

    #[test]
    fn an_upper_limit_on_delta_may_be_infinite() {
        let limit = |limit: &str| {
            let json = format!(
                r#"{{"model_type": "mamba2", "vocab_size": 9, "hidden_size": 8, "num_heads": 4, "head_dim": 4,
                    "n_groups": 2, "num_hidden_layers": 1, "time_step_limit": {limit}}}"#
            );
            parse_config(&standard_json(&json)).map(|config| config.dt_limit)
        };
        assert_eq!(limit("[0.0, Infinity]").unwrap(), (0.0, f32::INFINITY));
        assert_eq!(limit(r#"[0.5, {"__float__": "Infinity"}]"#).unwrap(), (0.5, f32::INFINITY));
        assert_eq!(limit("null").unwrap(), (0.0, f32::INFINITY));
        assert_eq!(limit("[0.01, 2]").unwrap(), (0.01, 2.0));
        for wrong in ["[2, 1]", "[-1, 1]", r#"[0, {"__float__": "NaN"}]"#, "[1]"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}
