//! Llama (Touvron et al. 2023, arXiv:2302.13971), with weights in the layout of Hugging Face's `LlamaForCausalLM`, and what
//! families like it share: the fields of `config.json` and the names of tensors.

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::super::decoder::{DecoderConfig, DecoderNames, ExpertNames, FeedNames, Fused, NormPlaces, Rotary, Scaling};
use super::super::embedding_and_head::Scales;
use super::super::error::LoadError;
use super::super::family::{Family, GgufFormat, boxed};
use super::super::gguf::Gguf;
use super::super::gguf::config::ConfigFields;
use super::super::gguf::names::RopeFactors;
use super::config_json::{FILE, activation, check_dims, check_epsilon, parse, silu, unsupported};

/// Llama. In GGUF its queries and keys are interleaved.
pub(super) const FAMILY: Family = Family {
    model_type: "llama",
    parse: |json| {
        let fields = LlamaFields::parse(json)?;
        let config = fields.config(&Defaults { window: 2048, head_dim: None })?;
        Ok(boxed(DecoderConfig { feed_bias: fields.mlp_bias, ..config }))
    },
    gguf: Some(GgufFormat { architecture: "llama", config: gguf_config, interleaved_rotary: true }),
};

/// Names of the tensors.
pub(super) const NAMES: DecoderNames = DecoderNames {
    tables: &["model.embed_tokens.weight"],
    norms: &["model.norm.weight"],
    layers: &["model.layers"],
    others: &[],
    input_norm: ("input_layernorm", "attn_norm"),
    output_norm: ("", ""),
    feed_norm: ("post_attention_layernorm", "ffn_norm"),
    feed_output_norm: ("", ""),
    q_proj: ("self_attn.q_proj", "attn_q"),
    k_proj: ("self_attn.k_proj", "attn_k"),
    v_proj: ("self_attn.v_proj", "attn_v"),
    qkv_proj: None,
    o_proj: ("self_attn.o_proj", "attn_output"),
    q_norm: ("self_attn.q_norm", "attn_q_norm"),
    k_norm: ("self_attn.k_norm", "attn_k_norm"),
    feed: FEED,
    experts: ExpertNames { router: ("mlp.gate", "ffn_gate_inp"), each: "mlp.experts", stacked: &[], shared: FEED },
    mamba: "mamba",
    frequencies: "self_attn.rotary_emb.inv_freq",
};

pub(super) const FEED: FeedNames = FeedNames {
    gate_proj: ("mlp.gate_proj", "ffn_gate"),
    up_proj: ("mlp.up_proj", "ffn_up"),
    gate_up_proj: Fused::Never,
    down_proj: ("mlp.down_proj", "ffn_down"),
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
    original_max_position_embeddings: Option<f64>,
    #[serde(default)]
    pub(super) attention_bias: bool,
    #[serde(default)]
    pub(super) mlp_bias: bool,
    #[serde(default)]
    pub(super) tie_word_embeddings: bool,
}

/// Files from before 2025 name it `rope_scaling`, and its type `type`.
#[derive(Default, Deserialize)]
pub(super) struct RotaryFields {
    rope_type: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
    attention_factor: Option<f64>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    mscale: Option<f64>,
    mscale_all_dim: Option<f64>,
    truncate: Option<bool>,
    short_factor: Option<Vec<f64>>,
    long_factor: Option<Vec<f64>>,
}

/// What [`RotaryFields`] may leave to other fields of the file.
pub(super) struct RotaryDefaults {
    pub(super) theta: f64,
    pub(super) partial: Option<f64>,
    pub(super) head_dim: usize,
    pub(super) window: usize,
    /// The window that the model was trained with, if the file states it outside.
    pub(super) trained_window: Option<f64>,
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
        let activation = activation(&self.hidden_act)?;
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
        let stated = self.rope_scaling.as_ref().or(self.rope_parameters.as_ref());
        let rotary = RotaryDefaults {
            theta: self.rope_theta.unwrap_or(10_000.0),
            partial: self.partial_rotary_factor,
            head_dim,
            window,
            trained_window: self.original_max_position_embeddings,
        };
        let rotary = stated.unwrap_or(&RotaryFields::default()).rotary(&rotary)?;
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
            rotary,
            local_rotary: None,
            without_rotary: Vec::new(),
            sliding: None,
            qk_norms: None,
            norms: NormPlaces::Before,
            centred_norms: false,
            attention_scale: 1.0 / (head_dim as f32).sqrt(),
            attention_cap: None,
            activation,
            residual_scale: 1.0,
            scales: Scales::ONE,
            experts: None,
            mamba: None,
            multipliers: None,
            halves: Vec::new(),
            qkv_bias: self.attention_bias,
            out_bias: self.attention_bias,
            feed_bias: false,
            tied: self.tie_word_embeddings,
            names: &NAMES,
        })
    }
}

impl RotaryFields {
    /// The rotary positions that the fields describe.
    pub(super) fn rotary(&self, defaults: &RotaryDefaults) -> Result<Rotary, LoadError> {
        let theta = positive("rope_theta", Some(self.rope_theta.unwrap_or(defaults.theta)))?;
        let head_dim = defaults.head_dim;
        let partial = self.partial_rotary_factor.or(defaults.partial).unwrap_or(1.0);
        if !(partial > 0.0 && partial <= 1.0) {
            let why = format!("`partial_rotary_factor` is {partial}; it must be above 0, at most 1");
            return Err(LoadError::malformed(FILE, why));
        }
        let dims = (head_dim as f64 * partial) as usize;
        if dims == 0 || !dims.is_multiple_of(2) {
            let why = if dims == head_dim {
                format!("`head_dim` is {head_dim}; rotary positions need an even one")
            } else {
                format!(
                    "{dims} of the {head_dim} elements of a head have rotary positions; that must be an even number"
                )
            };
            return Err(LoadError::malformed(FILE, why));
        }
        let kind = self.rope_type.as_deref().or(self.kind.as_deref()).unwrap_or("default");
        let trained = defaults.trained_window.or(self.original_max_position_embeddings);
        let trained_window =
            positive("original_max_position_embeddings", Some(trained.unwrap_or(defaults.window as f64)))?;
        let scaling = match kind {
            "default" => Scaling::None,
            "linear" => Scaling::Linear(positive("factor", self.factor)?),
            "llama3" => {
                let low = positive("low_freq_factor", self.low_freq_factor)?;
                let high = positive("high_freq_factor", self.high_freq_factor)?;
                if low >= high {
                    let why = format!("`low_freq_factor` is {low}; it must be below the {high} of `high_freq_factor`");
                    return Err(LoadError::malformed(FILE, why));
                }
                Scaling::Llama3 { factor: positive("factor", self.factor)?, low, high, trained_window }
            }
            "yarn" => self.yarn(trained_window, defaults.window)?,
            "longrope" | "su" => self.longrope(trained_window, defaults.window, dims)?,
            other => {
                let what = format!("rotary positions of type `{other}`");
                return Err(unsupported(what, "`default`, `linear`, `llama3`, `yarn`, `longrope`"));
            }
        };
        Ok(Rotary { theta, scaling, dims })
    }

    fn yarn(&self, trained_window: f64, window: usize) -> Result<Scaling, LoadError> {
        let factor = positive("factor", Some(self.factor.unwrap_or(window as f64 / trained_window)))?;
        let magnitude = |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * libm::log(factor) + 1.0 };
        let inferred = match (self.mscale, self.mscale_all_dim) {
            (Some(all), Some(all_dim)) if all != 0.0 && all_dim != 0.0 => magnitude(all) / magnitude(all_dim),
            _ => magnitude(1.0),
        };
        Ok(Scaling::Yarn {
            factor,
            fast: positive("beta_fast", Some(self.beta_fast.filter(|beta| *beta != 0.0).unwrap_or(32.0)))?,
            slow: positive("beta_slow", Some(self.beta_slow.filter(|beta| *beta != 0.0).unwrap_or(1.0)))?,
            trained_window,
            truncate: self.truncate.unwrap_or(true),
            amplitude: positive("attention_factor", Some(self.attention_factor.unwrap_or(inferred)))?,
        })
    }

    /// The factors for windows up to the trained one. Those for longer windows apply to a whole sequence as soon as it is
    /// longer, so that the logits of a token would depend on tokens after it.
    fn longrope(&self, trained_window: f64, window: usize, dims: usize) -> Result<Scaling, LoadError> {
        let factor = positive("factor", Some(self.factor.unwrap_or(window as f64 / trained_window)))?;
        let inferred = if factor <= 1.0 { 1.0 } else { (1.0 + libm::log(factor) / libm::log(trained_window)).sqrt() };
        let factors = self.short_factor.clone().unwrap_or_default();
        let long = self.long_factor.as_ref().map_or(0, Vec::len);
        if factors.len() != dims / 2 || long != dims / 2 || !factors.iter().all(|factor| *factor > 0.0) {
            let why = format!("`short_factor` and `long_factor` must be {} numbers above 0 each", dims / 2);
            return Err(LoadError::malformed(FILE, why));
        }
        let amplitude = positive("attention_factor", Some(self.attention_factor.unwrap_or(inferred)))?;
        Ok(Scaling::Each { factors, amplitude })
    }
}

fn positive(name: &str, value: Option<f64>) -> Result<f64, LoadError> {
    match value {
        Some(value) if value.is_finite() && value > 0.0 => Ok(value),
        Some(value) => Err(LoadError::malformed(FILE, format!("`{name}` is {value}; it must be above 0"))),
        None => Err(LoadError::malformed(FILE, format!("`{name}` is missing from the rotary parameters"))),
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
    config.set("num_key_value_heads", gguf_key_value_heads(gguf, &key("attention.head_count_kv"))?.or(heads));
    let width = gguf.number(&key("embedding_length"))?;
    let key_length = gguf.number(&key("attention.key_length"))?;
    config.set("head_dim", key_length);
    let head_dim = key_length.or(width.zip(heads).map(|(width, heads)| width / heads.max(1)));
    config.set("rms_norm_eps", gguf.float(&key("attention.layer_norm_rms_epsilon"))?);
    config.set("rope_theta", gguf.float(&key("rope.freq_base"))?);
    config.set("partial_rotary_factor", gguf_partial_rotary(gguf, &key("rope.dimension_count"), head_dim)?);
    config.set("hidden_act", Some("silu"));
    config.set("attention_bias", Some(gguf.has_tensor_ending("attn_q.bias")));
    config.set("rope_scaling", gguf_rope_scaling(gguf, &key("rope"))?);
    Ok(())
}

/// The number of key heads. Hybrids state it per layer, 0 for layers without attention.
fn gguf_key_value_heads(gguf: &Gguf, key: &str) -> Result<Option<u64>, LoadError> {
    let mut stated = gguf.numbers(key)?.unwrap_or_default();
    stated.retain(|heads| *heads > 0);
    stated.dedup();
    match stated.as_slice() {
        [] => Ok(None),
        [heads] => Ok(Some(*heads)),
        _ => Err(gguf.malformed(format!("`{key}` differs between layers, which is not supported"))),
    }
}

/// The part of a head that has rotary positions, if the file states it and it is not all.
fn gguf_partial_rotary(gguf: &Gguf, key: &str, head_dim: Option<u64>) -> Result<Option<f64>, LoadError> {
    let stated = gguf.number(key)?.zip(head_dim).filter(|(dims, head_dim)| dims < head_dim);
    Ok(stated.map(|(dims, head_dim)| dims as f64 / head_dim as f64))
}

fn gguf_rope_scaling(gguf: &Gguf, key: &str) -> Result<Option<Json>, LoadError> {
    if let Some(factors) = gguf.rope_factors(RopeFactors::Llama3) {
        return llama3(gguf, &format!("{key}.freq_base"), factors).map(Some);
    }
    let kind = gguf.text(&format!("{key}.scaling.type"))?;
    let float = |name: &str| gguf.float(&format!("{key}.scaling.{name}"));
    let trained = gguf.number(&format!("{key}.scaling.original_context_length"))?;
    if let (Some(short), Some(long)) = (gguf.rope_factors(RopeFactors::Short), gguf.rope_factors(RopeFactors::Long)) {
        return Ok(Some(json!({
            "rope_type": "longrope", "short_factor": short, "long_factor": long,
            "attention_factor": float("attn_factor")?, "original_max_position_embeddings": trained,
        })));
    }
    let factor = float("factor")?;
    Ok(match kind {
        None | Some("none") => None,
        Some("yarn") => {
            // llama.cpp multiplies its own factor with the paper's.
            let paper = factor.filter(|factor| *factor > 1.0).map_or(1.0, |factor| 0.1 * libm::log(factor) + 1.0);
            Some(json!({
                "rope_type": "yarn", "factor": factor, "original_max_position_embeddings": trained,
                "attention_factor": float("attn_factor")?.map(|own| own * paper),
                "beta_fast": float("yarn_beta_fast")?, "beta_slow": float("yarn_beta_slow")?,
            }))
        }
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
        return Err(gguf.malformed(format!("`{}` holds factors that are not a Llama 3's", RopeFactors::Llama3.name())));
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
        assert_eq!((llama.kv_heads, llama.head_dim, llama.qkv_bias, llama.qk_norms), (4, 16, false, None));
        assert_eq!((llama.attention_scale, llama.rotary.dims), (0.25, 16));
    }

    #[test]
    fn rotary_parameters_are_parsed_in_both_formats() {
        let old = r#", "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2}"#;
        let new = r#", "rope_parameters": {"rope_type": "linear", "rope_theta": 5e5, "factor": 2}"#;
        let want = Rotary { theta: 5e5, scaling: Scaling::Linear(2.0), dims: 16 };
        assert_eq!(config(old).unwrap().rotary, want);
        assert_eq!(config(new).unwrap().rotary, want);
        let llama3 =
            r#", "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}"#;
        let scaling = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, trained_window: 100.0 };
        assert_eq!(config(llama3).unwrap().rotary, Rotary { theta: 1e4, scaling, dims: 16 });
    }

    #[test]
    fn yarn_and_longrope_have_the_amplitudes_of_their_papers() {
        let scaling = |extra: &str| config(extra).unwrap().rotary.scaling;
        let yarn = r#", "rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 25"#;
        let Scaling::Yarn { factor, fast, slow, trained_window, truncate, amplitude } = scaling(&format!("{yarn}}}"))
        else {
            panic!("not YaRN");
        };
        assert_eq!((factor, fast, slow, trained_window, truncate), (4.0, 32.0, 1.0, 25.0, true));
        assert!((amplitude - (0.1 * 4f64.ln() + 1.0)).abs() < 1e-12, "{amplitude}");
        let stated = scaling(&format!(r#"{yarn}, "attention_factor": 2, "truncate": false}}"#));
        assert!(matches!(stated, Scaling::Yarn { amplitude: 2.0, truncate: false, .. }), "{stated:?}");
        let same = scaling(&format!(r#"{yarn}, "mscale": 0.7, "mscale_all_dim": 0.7}}"#));
        assert!(matches!(same, Scaling::Yarn { amplitude: 1.0, .. }), "{same:?}");
        let eight = "[1, 2, 3, 4, 5, 6, 7, 8]";
        let long = scaling(&format!(
            r#", "original_max_position_embeddings": 25,
                "rope_scaling": {{"type": "su", "short_factor": {eight}, "long_factor": {eight}}}"#
        ));
        let Scaling::Each { factors, amplitude } = long else { panic!("not LongRoPE") };
        assert!((factors[7] - 8.0).abs() < 1e-12, "{factors:?}");
        assert!((amplitude - (1.0 + 4f64.ln() / 25f64.ln()).sqrt()).abs() < 1e-12, "{amplitude}");
    }

    #[test]
    fn an_unsupported_config_names_what_is_supported() {
        let check = |extra: &str, why: &str| {
            let error = config(extra).unwrap_err().to_string();
            assert!(error.contains(why), "{extra}: {error}");
        };
        check(
            r#", "rope_scaling": {"type": "dynamic", "factor": 4}"#,
            "type `dynamic`; supported: `default`, `linear`",
        );
        check(r#", "rope_scaling": {"type": "yarn", "factor": -4}"#, "`factor` is -4; it must be above 0");
        check(
            r#", "rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [1]}"#,
            "must be 8 numbers above 0 each",
        );
        check(r#", "rope_scaling": {"type": "linear"}"#, "`factor` is missing");
        check(r#", "rope_theta": -1"#, "`rope_theta` is -1; it must be above 0");
        check(r#", "partial_rotary_factor": 0.2"#, "3 of the 16 elements of a head have rotary positions");
        check(r#", "partial_rotary_factor": 1.5"#, "`partial_rotary_factor` is 1.5");
        check(r#", "num_key_value_heads": 3"#, "`num_attention_heads` is 4, not a multiple of the 3");
        check(r#", "head_dim": 7"#, "`head_dim` is 7; rotary positions need an even one");
        check(r#", "hidden_act": "gelu""#, "the activation `gelu`");
    }
}
