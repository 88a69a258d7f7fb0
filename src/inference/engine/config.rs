//! `config.json`: which architecture a model has, and its dims. Whether the weights agree is `weights.rs`' question.

use serde::Deserialize;

use super::LoadError;
use crate::foundation::base::limits::MODEL_DIM_MAX;

const FILE: &str = "config.json";

/// A parsed `config.json`, one variant per architecture.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Config {
    Mamba(MambaConfig),
}

/// The dims of a Mamba-1 (Gu and Dao 2023), under the names of Hugging Face's `MambaConfig`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MambaConfig {
    pub(super) vocabulary: usize,
    pub(super) d_model: usize,
    pub(super) d_inner: usize,
    pub(super) d_state: usize,
    /// Width of the causal convolution, its own step included.
    pub(super) d_conv: usize,
    pub(super) dt_rank: usize,
    pub(super) layers: usize,
    pub(super) norm_epsilon: f32,
    /// `in_proj` and `out_proj` have biases.
    pub(super) use_bias: bool,
    pub(super) use_conv_bias: bool,
    /// The head is the embedding table.
    pub(super) tied: bool,
}

#[derive(Deserialize)]
struct Kind {
    model_type: Option<String>,
}

/// The file's own fields. Defaults are those of `transformers`; `residual_in_fp32` needs none, since all of the
/// arithmetic here is f32.
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

fn two() -> f64 {
    2.0
}

fn four() -> usize {
    4
}

fn epsilon() -> f32 {
    1e-5
}

fn yes() -> bool {
    true
}

fn silu() -> String {
    "silu".to_owned()
}

impl Config {
    /// Reads the text of a `config.json`.
    pub(super) fn parse(json: &str) -> Result<Self, LoadError> {
        let kind: Kind = serde_json::from_str(json).map_err(|error| LoadError::malformed(FILE, error))?;
        match kind.model_type.as_deref() {
            Some("mamba") => MambaConfig::parse(json).map(Self::Mamba),
            Some(other) => Err(unsupported(format!("the architecture `{other}`"), "`mamba`")),
            None => {
                Err(LoadError::malformed(FILE, "`model_type` is missing; it names the architecture, such as `mamba`"))
            }
        }
    }
}

impl MambaConfig {
    fn parse(json: &str) -> Result<Self, LoadError> {
        let raw: RawMamba = serde_json::from_str(json).map_err(|error| LoadError::malformed(FILE, error))?;
        if !matches!(raw.hidden_act.as_str(), "silu" | "swish") {
            return Err(unsupported(format!("the activation `{}`", raw.hidden_act), "`silu`"));
        }
        let d_inner = raw.expand * raw.hidden_size as f64;
        let d_inner = if (1.0..=MODEL_DIM_MAX as f64).contains(&d_inner) { d_inner as usize } else { 0 };
        if let Some(stated) = raw.intermediate_size.filter(|&stated| stated != d_inner) {
            let why = format!("`intermediate_size` is {stated}, but `expand` × `hidden_size` is {d_inner}");
            return Err(LoadError::malformed(FILE, why));
        }
        let dt_rank = match raw.time_step_rank {
            Rank::Number(rank) => rank,
            Rank::Named(name) if name == "auto" => raw.hidden_size.div_ceil(16),
            Rank::Named(name) => {
                return Err(unsupported(format!("`time_step_rank` \"{name}\""), "a number or \"auto\""));
            }
        };
        for (name, dim) in [
            ("vocab_size", raw.vocab_size),
            ("hidden_size", raw.hidden_size),
            ("expand × hidden_size", d_inner),
            ("state_size", raw.state_size),
            ("conv_kernel", raw.conv_kernel),
            ("time_step_rank", dt_rank),
            ("num_hidden_layers", raw.num_hidden_layers),
        ] {
            if !(1..=MODEL_DIM_MAX).contains(&dim) {
                return Err(LoadError::malformed(
                    FILE,
                    format!("`{name}` is {dim}; it must be in 1..={MODEL_DIM_MAX}"),
                ));
            }
        }
        if !(raw.layer_norm_epsilon > 0.0 && raw.layer_norm_epsilon < 1.0) {
            return Err(LoadError::malformed(FILE, "`layer_norm_epsilon` must lie between 0 and 1"));
        }
        Ok(Self {
            vocabulary: raw.vocab_size,
            d_model: raw.hidden_size,
            d_inner,
            d_state: raw.state_size,
            d_conv: raw.conv_kernel,
            dt_rank,
            layers: raw.num_hidden_layers,
            norm_epsilon: raw.layer_norm_epsilon,
            use_bias: raw.use_bias,
            use_conv_bias: raw.use_conv_bias,
            tied: raw.tie_word_embeddings,
        })
    }
}

fn unsupported(what: String, supported: &'static str) -> LoadError {
    LoadError::Unsupported { what, supported }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, why: &str) {
        let error = Config::parse(json).unwrap_err().to_string();
        assert!(error.contains(why), "{json}: {error}");
    }

    #[test]
    fn defaults_are_those_of_the_published_130m() {
        let json = r#"{"model_type": "mamba", "vocab_size": 50280, "hidden_size": 768, "num_hidden_layers": 24}"#;
        let Config::Mamba(config) = Config::parse(json).unwrap();
        assert_eq!((config.d_inner, config.d_state, config.d_conv, config.dt_rank), (1536, 16, 4, 48));
        assert!(config.tied && config.use_conv_bias && !config.use_bias);
    }

    #[test]
    fn what_cannot_be_run_says_what_can() {
        check("{", "`config.json` is not usable");
        check("{}", "`model_type` is missing");
        check(r#"{"model_type": "falcon_mamba"}"#, "the architecture `falcon_mamba`; supported: `mamba`");
        check(r#"{"model_type": "mamba"}"#, "missing field `vocab_size`");
        let with = |extra: &str| {
            format!(r#"{{"model_type": "mamba", "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, {extra}}}"#)
        };
        check(&with(r#""hidden_act": "gelu""#), "the activation `gelu`; supported: `silu`");
        check(&with(r#""intermediate_size": 17"#), "`intermediate_size` is 17, but `expand` × `hidden_size` is 16");
        check(&with(r#""time_step_rank": "big""#), "`time_step_rank` \"big\"; supported: a number or \"auto\"");
        check(&with(r#""state_size": 0"#), "`state_size` is 0; it must be in 1..=");
        check(&with(r#""expand": -1"#), "`expand × hidden_size` is 0");
        check(&with(r#""expand": 1e300"#), "`expand × hidden_size` is 0");
        check(&with(r#""layer_norm_epsilon": 0"#), "`layer_norm_epsilon` must lie between 0 and 1");
    }
}
