//! Llama (Touvron et al. 2023, arXiv:2302.13971), with weights in the layout of Hugging Face's `LlamaForCausalLM`, and what
//! families like it share: the fields of `config.json` and the names of tensors.

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::super::decoder::{DecoderConfig, DecoderNames, Rotary, Scaling};
use super::super::error::LoadError;
use super::super::family::{Family, GgufFormat, boxed};
use super::super::gguf::Gguf;
use super::super::gguf::config::ConfigFields;
use super::super::gguf::names::ROPE_FACTORS;
use super::config_json::{FILE, check_dims, check_epsilon, check_silu, parse, silu, unsupported};

/// Llama. In GGUF its queries and keys are interleaved.
pub(super) const FAMILY: Family = Family {
    model_type: "llama",
    parse: |json| {
        let fields = LlamaFields::parse(json)?;
        let config = fields.config(&Defaults { window: 2048, head_dim: None })?;
        Ok(boxed(DecoderConfig { feed_bias: fields.mlp_bias, ..config }))
    },
    gguf: Some(GgufFormat { config: gguf_config, interleaved_rotary: true }),
};

/// Names of the tensors.
pub(super) static NAMES: DecoderNames = DecoderNames {
    table: "model.embed_tokens.weight",
    norm: "model.norm.weight",
    layers: "model.layers",
    input_norm: ("input_layernorm", "attn_norm"),
    q_proj: ("self_attn.q_proj", "attn_q"),
    k_proj: ("self_attn.k_proj", "attn_k"),
    v_proj: ("self_attn.v_proj", "attn_v"),
    o_proj: ("self_attn.o_proj", "attn_output"),
    q_norm: ("self_attn.q_norm", "attn_q_norm"),
    k_norm: ("self_attn.k_norm", "attn_k_norm"),
    feed_norm: ("post_attention_layernorm", "ffn_norm"),
    gate_proj: ("mlp.gate_proj", "ffn_gate"),
    up_proj: ("mlp.up_proj", "ffn_up"),
    down_proj: ("mlp.down_proj", "ffn_down"),
    frequencies: "self_attn.rotary_emb.inv_freq",
};

/// Values of absent fields, which differ between families.
pub(super) struct Defaults {
    /// Longest sequence.
    pub(super) window: usize,
    /// Width of a head; `None` is the width of the model divided by the number of heads.
    pub(super) head_dim: Option<usize>,
}

/// The fields of a `config.json` in the style of Llama. Defaults are those of `transformers`.
#[derive(Deserialize)]
pub(super) struct LlamaFields {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    pub(super) num_hidden_layers: usize,
    num_attention_heads: usize,
    pub(super) num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    max_position_embeddings: Option<usize>,
    #[serde(default = "epsilon")]
    rms_norm_eps: f32,
    #[serde(default = "silu")]
    hidden_act: String,
    pub(super) rope_theta: Option<f64>,
    rope_scaling: Option<RotaryFields>,
    rope_parameters: Option<RotaryFields>,
    partial_rotary_factor: Option<f64>,
    #[serde(default)]
    pub(super) attention_bias: bool,
    #[serde(default)]
    pub(super) mlp_bias: bool,
    #[serde(default)]
    pub(super) tie_word_embeddings: bool,
}

/// Files from before 2025 name it `rope_scaling`, and its type `type`.
#[derive(Deserialize)]
struct RotaryFields {
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

impl LlamaFields {
    pub(super) fn parse(json: &str) -> Result<Self, LoadError> {
        parse(json)
    }

    /// The dimensions of the decoder. `attention_bias` applies to all projections of attention, there are no biases in
    /// the feed-forward network and no norms of queries and keys.
    pub(super) fn config(&self, defaults: &Defaults) -> Result<DecoderConfig, LoadError> {
        check_silu(&self.hidden_act)?;
        let heads = self.num_attention_heads;
        let kv_heads = self.num_key_value_heads.unwrap_or(heads);
        let head_dim = self.head_dim.or(defaults.head_dim).unwrap_or(self.hidden_size / heads.max(1));
        let window = self.max_position_embeddings.unwrap_or(defaults.window);
        check_dims(&[
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", heads),
            ("num_key_value_heads", kv_heads),
            ("head_dim", head_dim),
            ("num_attention_heads × head_dim", heads.saturating_mul(head_dim)),
            ("max_position_embeddings", window),
        ])?;
        check_epsilon("rms_norm_eps", self.rms_norm_eps)?;
        if !heads.is_multiple_of(kv_heads) {
            let why =
                format!("`num_attention_heads` is {heads}, not a multiple of the {kv_heads} of `num_key_value_heads`");
            return Err(LoadError::malformed(FILE, why));
        }
        if !head_dim.is_multiple_of(2) {
            let why = format!("`head_dim` is {head_dim}; rotary positions need an even one");
            return Err(LoadError::malformed(FILE, why));
        }
        Ok(DecoderConfig {
            vocabulary: self.vocab_size,
            d_model: self.hidden_size,
            d_feed: self.intermediate_size,
            layers: self.num_hidden_layers,
            heads,
            kv_heads,
            head_dim,
            norm_epsilon: self.rms_norm_eps,
            window,
            rotary: self.rotary(window)?,
            without_rotary: Vec::new(),
            sliding: None,
            qk_norms: false,
            qkv_bias: self.attention_bias,
            out_bias: self.attention_bias,
            feed_bias: false,
            tied: self.tie_word_embeddings,
            names: &NAMES,
        })
    }

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

/// The fields of `config.json` from the keys of a GGUF file.
pub(super) fn gguf_config(gguf: &Gguf, config: &mut ConfigFields) -> Result<(), LoadError> {
    let architecture = gguf.architecture()?;
    let key = |name: &str| format!("{architecture}.{name}");
    config.set("max_position_embeddings", gguf.number(&key("context_length"))?);
    config.set("intermediate_size", gguf.number(&key("feed_forward_length"))?);
    let heads = gguf.number(&key("attention.head_count"))?;
    config.set("num_attention_heads", heads);
    config.set("num_key_value_heads", gguf.number(&key("attention.head_count_kv"))?.or(heads));
    config.set("head_dim", gguf.number(&key("attention.key_length"))?);
    config.set("rms_norm_eps", gguf.float(&key("attention.layer_norm_rms_epsilon"))?);
    config.set("rope_theta", gguf.float(&key("rope.freq_base"))?);
    config.set("hidden_act", Some("silu"));
    config.set("attention_bias", Some(gguf.has_tensor_ending("attn_q.bias")));
    config.set("rope_scaling", gguf_rope_scaling(gguf, &key("rope"))?);
    Ok(())
}

fn gguf_rope_scaling(gguf: &Gguf, key: &str) -> Result<Option<Json>, LoadError> {
    if let Some(factors) = gguf.rope_factors() {
        return llama3(gguf, &format!("{key}.freq_base"), factors).map(Some);
    }
    let kind = gguf.text(&format!("{key}.scaling.type"))?;
    let factor = gguf.float(&format!("{key}.scaling.factor"))?;
    Ok(match kind {
        None | Some("none") => None,
        Some(kind) => Some(json!({ "rope_type": kind, "factor": factor })),
    })
}

/// Constants that all Llama 3 models share; files contain only the factors computed from them.
const LLAMA3_LOW: f64 = 1.0;
const LLAMA3_HIGH: f64 = 4.0;
const LLAMA3_CONTEXT: f64 = 8192.0;

/// The parameters of Llama 3's `RoPE` scaling, reconstructed from its factors. The largest factor is the scaling factor.
fn llama3(gguf: &Gguf, base: &str, factors: &[f32]) -> Result<Json, LoadError> {
    let factor = factors.iter().copied().fold(1.0f32, f32::max);
    let base = gguf.float(base)?.unwrap_or(10_000.0);
    let width = 2.0 * factors.len() as f64;
    let fits = factors.iter().enumerate().all(|(at, &given)| {
        let wavelength = std::f64::consts::TAU * libm::pow(base, 2.0 * at as f64 / width);
        let smooth = (LLAMA3_CONTEXT / wavelength - LLAMA3_LOW) / (LLAMA3_HIGH - LLAMA3_LOW);
        let smooth = smooth.clamp(0.0, 1.0);
        let expected = 1.0 / ((1.0 - smooth) / f64::from(factor) + smooth);
        (f64::from(given) - expected).abs() <= 1e-3 * expected
    });
    if !fits {
        return Err(gguf.malformed(format!("`{ROPE_FACTORS}` holds factors that are not a Llama 3's")));
    }
    Ok(json!({
        "rope_type": "llama3", "factor": factor, "low_freq_factor": LLAMA3_LOW, "high_freq_factor": LLAMA3_HIGH,
        "original_max_position_embeddings": LLAMA3_CONTEXT as u64,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(extra: &str) -> Result<DecoderConfig, LoadError> {
        let json = format!(
            r#"{{"vocab_size": 9, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
                "num_attention_heads": 4, "max_position_embeddings": 100{extra}}}"#
        );
        LlamaFields::parse(&json)?.config(&Defaults { window: 2048, head_dim: None })
    }

    #[test]
    fn absent_fields_have_defaults() {
        let llama = config("").unwrap();
        assert_eq!((llama.kv_heads, llama.head_dim, llama.qkv_bias, llama.qk_norms), (4, 16, false, false));
    }

    #[test]
    fn rotary_parameters_are_parsed_in_both_formats() {
        let old = r#", "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2}"#;
        let new = r#", "rope_parameters": {"rope_type": "linear", "rope_theta": 5e5, "factor": 2}"#;
        let want = Rotary { theta: 5e5, scaling: Scaling::Linear(2.0) };
        assert_eq!(config(old).unwrap().rotary, want);
        assert_eq!(config(new).unwrap().rotary, want);
        let llama3 =
            r#", "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}"#;
        let scaling = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, trained_window: 100.0 };
        assert_eq!(config(llama3).unwrap().rotary, Rotary { theta: 1e4, scaling });
    }

    #[test]
    fn an_unsupported_config_names_what_is_supported() {
        let check = |extra: &str, why: &str| {
            let error = config(extra).unwrap_err().to_string();
            assert!(error.contains(why), "{extra}: {error}");
        };
        check(r#", "rope_scaling": {"type": "yarn", "factor": 4}"#, "type `yarn`; supported: `default`, `linear`");
        check(r#", "rope_scaling": {"type": "linear"}"#, "`factor` is missing");
        check(r#", "rope_theta": -1"#, "`rope_theta` is -1; it must be above 0");
        check(r#", "partial_rotary_factor": 0.5"#, "part of each head");
        check(r#", "num_key_value_heads": 3"#, "`num_attention_heads` is 4, not a multiple of the 3");
        check(r#", "head_dim": 7"#, "`head_dim` is 7; rotary positions need an even one");
        check(r#", "hidden_act": "gelu""#, "the activation `gelu`");
    }
}
