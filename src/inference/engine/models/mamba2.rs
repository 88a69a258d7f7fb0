//! Mamba-2 (Dao and Gu 2024, arXiv:2405.21060), with weights in the layout of Hugging Face's `Mamba2ForCausalLM`.

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::super::decoder::DecoderConfig;
use super::super::error::LoadError;
use super::super::family::{Family, GgufFormat, boxed};
use super::super::gguf::Gguf;
use super::super::gguf::config::ConfigFields;
use super::super::mamba2::{GatedNorm, Mamba2Config};
use super::config_json::{
    FILE, check_dims, check_epsilon, check_silu, epsilon, four, parse, silu, two, with_defaults, yes,
};

/// Mamba-2.
pub(super) const FAMILY: Family = Family {
    model_type: "mamba2",
    parse: |json| parse_config(json).map(boxed),
    gguf: Some(GgufFormat { architecture: "mamba2", config: gguf_config, interleaved_rotary: false }),
};

/// The fields of `config.json` from the keys of a GGUF file.
fn gguf_config(gguf: &Gguf, config: &mut ConfigFields) -> Result<(), LoadError> {
    let key = |name: &str| format!("mamba2.{name}");
    let needed = |name: &str| gguf.need(&key(name), gguf.number(&key(name))?);
    let (inner, heads, width) = (needed("ssm.inner_size")?, needed("ssm.time_step_rank")?, needed("embedding_length")?);
    config.set("num_heads", Some(heads));
    config.set("head_dim", Some(inner / heads.max(1)));
    config.set("expand", Some(inner as f64 / width.max(1) as f64));
    config.set("n_groups", gguf.number(&key("ssm.group_count"))?);
    config.set("state_size", gguf.number(&key("ssm.state_size"))?);
    config.set("conv_kernel", gguf.number(&key("ssm.conv_kernel"))?);
    config.set("layer_norm_epsilon", gguf.float(&key("attention.layer_norm_rms_epsilon"))?);
    config.set("use_bias", Some(gguf.has_tensor_ending("ssm_in.bias")));
    config.set("use_conv_bias", Some(gguf.has_tensor_ending("ssm_conv1d.bias")));
    Ok(())
}

/// The fields about Mamba-2 of a hybrid's `config.json` from the keys of a GGUF file.
pub(super) fn gguf_mixers(gguf: &Gguf, config: &mut ConfigFields) -> Result<(), LoadError> {
    let architecture = gguf.architecture()?;
    let number = |name: &str| gguf.number(&format!("{architecture}.{name}"));
    let (inner, heads) = (number("ssm.inner_size")?, number("ssm.time_step_rank")?);
    config.set("mamba_n_heads", heads);
    config.set("mamba_d_head", inner.zip(heads).map(|(inner, heads)| inner / heads.max(1)));
    config.set("mamba_d_ssm", inner);
    config.set("mamba_n_groups", number("ssm.group_count")?);
    config.set("mamba_d_state", number("ssm.state_size")?);
    config.set("mamba_d_conv", number("ssm.conv_kernel")?);
    config.set("mamba_conv_bias", Some(gguf.has_tensor_ending("ssm_conv1d.bias")));
    config.set("mamba_proj_bias", Some(gguf.has_tensor_ending("ssm_in.bias")));
    Ok(())
}

/// The fields about Mamba-2 in the `config.json` of a hybrid. Defaults are those of `transformers`.
#[derive(Deserialize)]
pub(super) struct HybridFields {
    rms_norm_eps: f32,
    mamba_n_heads: usize,
    mamba_n_groups: usize,
    mamba_d_state: usize,
    /// A number, or `auto`.
    mamba_d_head: Json,
    mamba_d_conv: usize,
    mamba_expand: usize,
    /// The inner width, if it is stated instead of `mamba_expand`.
    mamba_d_ssm: Option<usize>,
    mamba_conv_bias: bool,
    mamba_proj_bias: bool,
    /// Of `out_proj`, if it is stated.
    projectors_bias: Option<bool>,
    time_step_limit: Option<(Bound, Bound)>,
}

impl HybridFields {
    pub(super) fn parse(json: &str) -> Result<Self, LoadError> {
        let defaults = json!({
            "rms_norm_eps": 1e-5, "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_head": "auto",
            "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": true, "mamba_proj_bias": false,
        });
        parse(&with_defaults(json, defaults)?)
    }

    /// Mamba-2 of a hybrid, the rest of which is `decoder`.
    pub(super) fn config(self, decoder: &DecoderConfig) -> Result<Mamba2Config, LoadError> {
        let &DecoderConfig { vocabulary, d_model, layers, tied, .. } = decoder;
        let d_inner = self.mamba_d_ssm.unwrap_or(self.mamba_expand.saturating_mul(d_model));
        let head_dim = match &self.mamba_d_head {
            Json::Number(stated) => stated.as_u64().and_then(|stated| usize::try_from(stated).ok()).unwrap_or(0),
            _ => d_inner / self.mamba_n_heads.max(1),
        };
        let config = Dims {
            vocabulary,
            d_model,
            heads: self.mamba_n_heads,
            head_dim,
            d_state: self.mamba_d_state,
            groups: self.mamba_n_groups,
            d_conv: self.mamba_d_conv,
            layers,
            d_inner: d_inner as f64,
            norm_epsilon: self.rms_norm_eps,
            time_step_limit: self.time_step_limit,
            use_bias: self.mamba_proj_bias,
            use_conv_bias: self.mamba_conv_bias,
            tied,
        }
        .config()?;
        Ok(Mamba2Config { out_bias: self.projectors_bias.unwrap_or(config.use_bias), ..config })
    }
}

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
pub(super) enum Bound {
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
    Dims {
        vocabulary: raw.vocab_size,
        d_model: raw.hidden_size,
        heads: raw.num_heads,
        head_dim: raw.head_dim,
        d_state: raw.state_size,
        groups: raw.n_groups,
        d_conv: raw.conv_kernel,
        layers: raw.num_hidden_layers,
        d_inner: raw.expand * raw.hidden_size as f64,
        norm_epsilon: raw.layer_norm_epsilon,
        time_step_limit: raw.time_step_limit,
        use_bias: raw.use_bias,
        use_conv_bias: raw.use_conv_bias,
        tied: raw.tie_word_embeddings,
    }
    .config()
}

/// The dimensions as files state them, which hybrids name differently.
pub(super) struct Dims {
    pub(super) vocabulary: usize,
    pub(super) d_model: usize,
    pub(super) heads: usize,
    pub(super) head_dim: usize,
    pub(super) d_state: usize,
    pub(super) groups: usize,
    pub(super) d_conv: usize,
    pub(super) layers: usize,
    /// What `heads` times `head_dim` must be.
    pub(super) d_inner: f64,
    pub(super) norm_epsilon: f32,
    pub(super) time_step_limit: Option<(Bound, Bound)>,
    pub(super) use_bias: bool,
    pub(super) use_conv_bias: bool,
    pub(super) tied: bool,
}

impl Dims {
    /// The checked dimensions.
    pub(super) fn config(self) -> Result<Mamba2Config, LoadError> {
        let Self { vocabulary, d_model, heads, head_dim, d_state, groups, d_conv, layers, norm_epsilon, .. } = self;
        check_dims(&[
            ("vocab_size", vocabulary),
            ("hidden_size", d_model),
            ("num_heads", heads),
            ("head_dim", head_dim),
            ("num_heads × head_dim", heads.saturating_mul(head_dim)),
            ("state_size", d_state),
            ("n_groups × state_size", groups.saturating_mul(d_state)),
            ("conv_kernel", d_conv),
            ("num_hidden_layers", layers),
        ])?;
        check_epsilon("layer_norm_epsilon", norm_epsilon)?;
        let (d_inner, stated) = ((heads * head_dim) as f64, self.d_inner);
        if (d_inner - stated).abs() >= 1.0 {
            let why = format!("`num_heads` × `head_dim` is {d_inner}, but `expand` × `hidden_size` is {stated}");
            return Err(LoadError::malformed(FILE, why));
        }
        if !heads.is_multiple_of(groups) {
            let why = format!("`num_heads` is {heads}, not a multiple of the {groups} of `n_groups`");
            return Err(LoadError::malformed(FILE, why));
        }
        let limit = self.time_step_limit;
        let dt_limit = limit.map_or((0.0, f32::INFINITY), |(low, high)| (low.value(), high.value()));
        if !(dt_limit.0 >= 0.0 && dt_limit.0 < dt_limit.1) {
            let why = "`time_step_limit` must be two numbers, 0 or more, the lower first";
            return Err(LoadError::malformed(FILE, why));
        }
        Ok(Mamba2Config {
            vocabulary,
            d_model,
            heads,
            head_dim,
            d_state,
            groups,
            d_conv,
            layers,
            norm_epsilon,
            dt_limit,
            use_bias: self.use_bias,
            out_bias: self.use_bias,
            use_conv_bias: self.use_conv_bias,
            gated_norm: GatedNorm::AfterGate,
            scales: None,
            tied: self.tied,
        })
    }
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
