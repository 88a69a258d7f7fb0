//! Mamba-1 and Falcon Mamba (`mamba`, `falcon_mamba`).

use serde::Deserialize;

use super::super::LoadError;
use super::{FILE, check_dims, check_epsilon, check_silu, epsilon, four, silu, two, unsupported, yes};
use crate::foundation::base::limits::MODEL_DIM_MAX;

/// Dimensions of a Mamba-1 (Gu and Dao 2023), named as in Hugging Face's `MambaConfig`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MambaConfig {
    pub(crate) vocabulary: usize,
    pub(crate) d_model: usize,
    pub(crate) d_inner: usize,
    pub(crate) d_state: usize,
    /// Length of the causal convolution, including the current token.
    pub(crate) d_conv: usize,
    pub(crate) dt_rank: usize,
    pub(crate) layers: usize,
    pub(crate) norm_epsilon: f32,
    /// Epsilon of the norms of B, C and the low-rank Δ (Falcon Mamba only).
    pub(crate) mixer_norms: Option<f32>,
    /// `in_proj` and `out_proj` have biases.
    pub(crate) use_bias: bool,
    pub(crate) use_conv_bias: bool,
    /// The head is the embedding table.
    pub(crate) tied: bool,
}

/// Fields of the file. Defaults are those of `transformers`; `residual_in_fp32` is ignored because all arithmetic is
/// f32.
#[derive(Deserialize)]
struct RawMamba {
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    #[serde(default = "sixteen")]
    state_size: usize,
    #[serde(default = "two")]
    expand: f64,
    intermediate_size: Option<usize>,
    #[serde(default = "four")]
    conv_kernel: usize,
    #[serde(default)]
    time_step_rank: Rank,
    #[serde(default = "epsilon")]
    layer_norm_epsilon: f32,
    #[serde(default)]
    use_bias: bool,
    #[serde(default = "yes")]
    use_conv_bias: bool,
    #[serde(default = "silu")]
    hidden_act: String,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    mixer_rms_eps: Option<f32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Rank {
    Number(usize),
    Named(String),
}

impl Default for Rank {
    fn default() -> Self {
        Self::Named("auto".to_owned())
    }
}

fn sixteen() -> usize {
    16
}

impl MambaConfig {
    /// Parses `falcon_mamba` if `falcon`, else `mamba`.
    pub(super) fn parse(json: &str, falcon: bool) -> Result<Self, LoadError> {
        let raw: RawMamba = serde_json::from_str(json).map_err(|error| LoadError::malformed(FILE, error))?;
        check_silu(&raw.hidden_act)?;
        // An explicit width takes precedence: `expand` is wrong in Falcon Mamba's files.
        let computed = raw.expand * raw.hidden_size as f64;
        let computed = if (1.0..=MODEL_DIM_MAX as f64).contains(&computed) { computed as usize } else { 0 };
        let d_inner = raw.intermediate_size.unwrap_or(computed);
        let dt_rank = match raw.time_step_rank {
            Rank::Number(rank) => rank,
            Rank::Named(name) if name == "auto" => raw.hidden_size.div_ceil(16),
            Rank::Named(name) => {
                return Err(unsupported(format!("`time_step_rank` \"{name}\""), "a number or \"auto\""));
            }
        };
        check_dims(&[
            ("vocab_size", raw.vocab_size),
            ("hidden_size", raw.hidden_size),
            ("intermediate_size, or expand × hidden_size", d_inner),
            ("state_size", raw.state_size),
            ("conv_kernel", raw.conv_kernel),
            ("time_step_rank", dt_rank),
            ("num_hidden_layers", raw.num_hidden_layers),
        ])?;
        check_epsilon("layer_norm_epsilon", raw.layer_norm_epsilon)?;
        let mixer_norms = falcon.then(|| raw.mixer_rms_eps.unwrap_or(1e-6));
        check_epsilon("mixer_rms_eps", mixer_norms.unwrap_or(1e-6))?;
        Ok(Self {
            vocabulary: raw.vocab_size,
            d_model: raw.hidden_size,
            d_inner,
            d_state: raw.state_size,
            d_conv: raw.conv_kernel,
            dt_rank,
            layers: raw.num_hidden_layers,
            norm_epsilon: raw.layer_norm_epsilon,
            mixer_norms,
            use_bias: raw.use_bias,
            use_conv_bias: raw.use_conv_bias,
            tied: raw.tie_word_embeddings,
        })
    }
}
