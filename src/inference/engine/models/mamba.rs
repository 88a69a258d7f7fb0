//! Mamba-1 (Gu and Dao 2023, arXiv:2312.00752), with weights in the layout of Hugging Face's `MambaForCausalLM`.

use serde::Deserialize;

use super::super::error::LoadError;
use super::super::family::{Family, GgufFormat, boxed};
use super::super::gguf::Gguf;
use super::super::gguf::config::ConfigFields;
use super::super::mamba::MambaConfig;
use super::config_json::{check_dims, check_epsilon, check_silu, epsilon, four, parse, silu, two, unsupported, yes};
use crate::foundation::base::limits::MODEL_DIM_MAX;

/// Mamba-1.
pub(super) const FAMILY: Family = Family {
    model_type: "mamba",
    parse: |json| parse_config(json, None).map(boxed),
    gguf: Some(GgufFormat { architecture: "mamba", config: gguf_config, interleaved_rotary: false }),
};

/// The fields of `config.json` from the keys of a GGUF file.
fn gguf_config(gguf: &Gguf, config: &mut ConfigFields) -> Result<(), LoadError> {
    let key = |name: &str| format!("mamba.{name}");
    if gguf.flag(&key("ssm.dt_b_c_rms"))? == Some(true) {
        // A Falcon Mamba, which has norms on Δ, B and C without weights.
        config.set("model_type", Some("falcon_mamba"));
    }
    let (width, inner) = (key("embedding_length"), key("ssm.inner_size"));
    let inner = gguf.need(&inner, gguf.number(&inner)?)? as f64;
    config.set("expand", Some(inner / gguf.need(&width, gguf.number(&width)?)?.max(1) as f64));
    config.set("state_size", gguf.number(&key("ssm.state_size"))?);
    config.set("conv_kernel", gguf.number(&key("ssm.conv_kernel"))?);
    config.set("time_step_rank", gguf.number(&key("ssm.time_step_rank"))?);
    config.set("layer_norm_epsilon", gguf.float(&key("attention.layer_norm_rms_epsilon"))?);
    config.set("use_bias", Some(gguf.has_tensor_ending("ssm_in.bias")));
    config.set("use_conv_bias", Some(gguf.has_tensor_ending("ssm_conv1d.bias")));
    Ok(())
}

/// Fields of the file. Defaults are those of `transformers`; `residual_in_fp32` is ignored because all arithmetic is
/// f32.
#[derive(Deserialize)]
struct Raw {
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

/// Parses a `config.json`; `mixer_norms` is the default epsilon of the norms in Falcon Mamba, which Mamba lacks.
pub(in super::super) fn parse_config(json: &str, mixer_norms: Option<f32>) -> Result<MambaConfig, LoadError> {
    let raw: Raw = parse(json)?;
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
    let mixer_norms = mixer_norms.map(|default| raw.mixer_rms_eps.unwrap_or(default));
    check_epsilon("mixer_rms_eps", mixer_norms.unwrap_or(1e-6))?;
    Ok(MambaConfig {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(extra: &str, why: &str) {
        let json = format!(r#"{{"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, {extra}}}"#);
        let error = parse_config(&json, None).unwrap_err().to_string();
        assert!(error.contains(why), "{json}: {error}");
    }

    #[test]
    fn defaults_are_those_of_the_published_130m() {
        let json = r#"{"model_type": "mamba", "vocab_size": 50280, "hidden_size": 768, "num_hidden_layers": 24}"#;
        let config = parse_config(json, None).unwrap();
        assert_eq!((config.d_inner, config.d_state, config.d_conv, config.dt_rank), (1536, 16, 4, 48));
        assert!(config.tied && config.use_conv_bias && !config.use_bias);
    }

    #[test]
    fn an_unsupported_config_names_what_is_supported() {
        check(r#""hidden_act": "gelu""#, "the activation `gelu`; supported: `silu`");
        check(r#""time_step_rank": "big""#, "`time_step_rank` \"big\"; supported: a number or \"auto\"");
        check(r#""state_size": 0"#, "`state_size` is 0; it must be in 1..=");
        check(r#""expand": -1"#, "or expand × hidden_size` is 0");
        check(r#""expand": 1e300"#, "or expand × hidden_size` is 0");
        check(r#""layer_norm_epsilon": 0"#, "`layer_norm_epsilon` must be between 0 and 1");
    }
}
