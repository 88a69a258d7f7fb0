//! Gemma 2 (Gemma Team 2024, arXiv:2408.00118) and the language model of Gemma 3 (Gemma Team 2025, arXiv:2503.19786):
//! norms before and after every part, a GELU gate, scaled embeddings, windows that slide in most layers, soft caps (2), and
//! norms of queries and keys (3).

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::super::decoder::{DecoderConfig, DecoderNames, NormPlaces, QkNorms, Rotary, Sliding, SlidingLayers};
use super::super::embedding_and_head::Scales;
use super::super::error::LoadError;
use super::super::family::{Family, GgufFormat, boxed};
use super::super::gguf::Gguf;
use super::super::gguf::config::ConfigFields;
use super::config_json::{FILE, activation, check_dims, check_factors, parse, unsupported, with_defaults};
use super::llama::{self, Defaults, LlamaFields, RotaryDefaults, RotaryFields, gguf_config};

/// Gemma 2.
pub(super) const GEMMA2: Family = Family {
    model_type: "gemma2",
    parse: |json| {
        let defaults = json!({
            "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
            "num_key_value_heads": 4, "vocab_size": 256_000, "max_position_embeddings": 8192, "sliding_window": 4096,
            "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "tie_word_embeddings": true,
        });
        let json = with_defaults(json, defaults)?;
        let fields: Fields = parse(&json)?;
        let config = fields.config(&json, 2)?;
        Ok(boxed(config))
    },
    gguf: Some(GgufFormat { architecture: "gemma2", config: gguf_gemma2, interleaved_rotary: false }),
};

/// Gemma 3 with images, of which the language model is read; in GGUF it is the language model alone.
pub(super) const GEMMA3: Family = Family {
    model_type: "gemma3",
    parse: |json| {
        let Parts { text_config } = parse(json)?;
        gemma3(&text_config.map_or_else(|| json.to_owned(), |text| text.to_string())).map(boxed)
    },
    gguf: Some(GgufFormat { architecture: "gemma3", config: gguf_gemma3, interleaved_rotary: false }),
};

/// Gemma 3 without images.
pub(super) const GEMMA3_TEXT: Family =
    Family { model_type: "gemma3_text", parse: |json| gemma3(json).map(boxed), gguf: None };

/// The configuration of a model with images.
#[derive(Deserialize)]
struct Parts {
    text_config: Option<Json>,
}

/// Names of the tensors. Those of Gemma 3 with images have a prefix, which files from before 2025 write otherwise.
pub(super) const NAMES: DecoderNames = DecoderNames {
    tables: &[
        "model.embed_tokens.weight",
        "language_model.model.embed_tokens.weight",
        "model.language_model.embed_tokens.weight",
    ],
    norms: &["model.norm.weight", "language_model.model.norm.weight", "model.language_model.norm.weight"],
    layers: &["model.layers", "language_model.model.layers", "model.language_model.layers"],
    others: &["vision_tower.", "model.vision_tower.", "multi_modal_projector.", "model.multi_modal_projector."],
    output_norm: ("post_attention_layernorm", "post_attention_norm"),
    feed_norm: ("pre_feedforward_layernorm", "ffn_norm"),
    feed_output_norm: ("post_feedforward_layernorm", "post_ffw_norm"),
    ..llama::NAMES
};

/// The fields of `config.json` that a Llama lacks. Defaults are those of `transformers`.
#[derive(Deserialize)]
struct Fields {
    #[serde(default = "gelu")]
    hidden_activation: Option<String>,
    #[serde(default = "query_scale")]
    query_pre_attn_scalar: f32,
    sliding_window: Option<usize>,
    layer_types: Option<Vec<String>>,
    sliding_window_pattern: Option<usize>,
    attn_logit_softcapping: Option<f32>,
    final_logit_softcapping: Option<f32>,
    #[serde(default)]
    use_bidirectional_attention: Option<bool>,
    rope_parameters: Option<NestedRotary>,
    rope_scaling: Option<RotaryFields>,
    rope_theta: Option<f64>,
    rope_local_base_freq: Option<f64>,
}

/// Rotary parameters by the type of the layer, as new files have them.
#[derive(Deserialize)]
struct NestedRotary {
    full_attention: Option<RotaryFields>,
    sliding_attention: Option<RotaryFields>,
}

#[expect(clippy::unnecessary_wraps, reason = "the form that serde takes")]
fn gelu() -> Option<String> {
    Some("gelu_pytorch_tanh".to_owned())
}

fn query_scale() -> f32 {
    256.0
}

impl Fields {
    /// The decoder. Every `period`th layer sees all positions, unless the file says otherwise.
    fn config(&self, json: &str, period: usize) -> Result<DecoderConfig, LoadError> {
        if self.use_bidirectional_attention == Some(true) {
            return Err(unsupported("attention to later positions".to_owned(), "a language model"));
        }
        let period = self.sliding_window_pattern.unwrap_or(period);
        check_dims(&[("sliding_window", self.sliding_window.unwrap_or(1)), ("sliding_window_pattern", period)])?;
        let caps = [
            ("attn_logit_softcapping", self.attn_logit_softcapping),
            ("final_logit_softcapping", self.final_logit_softcapping),
        ];
        check_factors(&caps.map(|(name, cap)| (name, cap.unwrap_or(1.0))))?;
        check_factors(&[("query_pre_attn_scalar", self.query_pre_attn_scalar)])?;
        // The gate has a name of its own; `hidden_act` of old files is not used.
        let json = without(json, "hidden_act")?;
        let config = LlamaFields::parse(&json)?.config(&Defaults { window: 8192, head_dim: Some(256) })?;
        let listed = match &self.layer_types {
            Some(types) if types.len() != config.layers => {
                let why = format!("`layer_types` has {} entries for {} layers", types.len(), config.layers);
                return Err(LoadError::malformed(FILE, why));
            }
            Some(types) => types.iter().map(|kind| kind == "sliding_attention").collect(),
            None => (1..=config.layers).map(|layer| !layer.is_multiple_of(period)).collect(),
        };
        let gelu = gelu().unwrap_or_default();
        Ok(DecoderConfig {
            activation: activation(self.hidden_activation.as_ref().unwrap_or(&gelu))?,
            attention_scale: 1.0 / self.query_pre_attn_scalar.sqrt(),
            attention_cap: self.attn_logit_softcapping,
            norms: NormPlaces::Both,
            centred_norms: true,
            scales: Scales {
                embedding: (config.d_model as f32).sqrt(),
                logit_cap: self.final_logit_softcapping,
                ..Scales::ONE
            },
            sliding: self.sliding_window.map(|tokens| Sliding { tokens, layers: SlidingLayers::Listed(listed) }),
            names: &NAMES,
            ..config
        })
    }

    /// Rotary positions of layers that see all positions, and of layers whose window slides.
    fn rotary(&self, config: &DecoderConfig) -> Result<(Rotary, Rotary), LoadError> {
        let DecoderConfig { head_dim, window, .. } = *config;
        let defaults = |theta| RotaryDefaults { theta, partial: None, head_dim, window, trained_window: None };
        let plain = RotaryFields::default();
        let nested = self.rope_parameters.as_ref();
        let global = nested.and_then(|nested| nested.full_attention.as_ref()).or(self.rope_scaling.as_ref());
        let local = nested.and_then(|nested| nested.sliding_attention.as_ref());
        Ok((
            global.unwrap_or(&plain).rotary(&defaults(self.rope_theta.unwrap_or(1e6)))?,
            local.unwrap_or(&plain).rotary(&defaults(self.rope_local_base_freq.unwrap_or(1e4)))?,
        ))
    }
}

/// The object `json` without the field `name`.
fn without(json: &str, name: &str) -> Result<String, LoadError> {
    let mut config: serde_json::Map<String, Json> = parse(json)?;
    config.remove(name);
    Ok(Json::Object(config).to_string())
}

fn gemma3(json: &str) -> Result<DecoderConfig, LoadError> {
    let defaults = json!({
        "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
        "num_key_value_heads": 4, "vocab_size": 262_208, "max_position_embeddings": 131_072, "sliding_window": 4096,
        "tie_word_embeddings": true,
    });
    let json = with_defaults(json, defaults)?;
    let fields: Fields = parse(&json)?;
    let config = fields.config(&json, 6)?;
    let (rotary, local) = fields.rotary(&config)?;
    Ok(DecoderConfig { rotary, local_rotary: Some(local), qk_norms: Some(QkNorms::PerHead), ..config })
}

/// What Gemmas share.
fn gguf_gemma(gguf: &Gguf, config: &mut ConfigFields, largest: u64) -> Result<(), LoadError> {
    gguf_config(gguf, config)?;
    let architecture = gguf.architecture()?;
    let key = |name: &str| format!("{architecture}.{name}");
    let number = |name: &str| gguf.number(&key(name));
    config.set("sliding_window", number("attention.sliding_window")?);
    // llama.cpp knows the largest model, whose scale is another, by its number of layers.
    let (width, heads) = (number("embedding_length")?, number("attention.head_count")?);
    let scale = match number("block_count")? {
        Some(layers) if layers == largest => width.zip(heads).map(|(width, heads)| width / heads.max(1)),
        _ => number("attention.key_length")?,
    };
    config.set("query_pre_attn_scalar", scale);
    config.set("final_logit_softcapping", Some(gguf.float(&key("final_logit_softcapping"))?));
    config.set("attn_logit_softcapping", Some(gguf.float(&key("attn_logit_softcapping"))?));
    Ok(())
}

fn gguf_gemma2(gguf: &Gguf, config: &mut ConfigFields) -> Result<(), LoadError> {
    gguf_gemma(gguf, config, 46)
}

fn gguf_gemma3(gguf: &Gguf, config: &mut ConfigFields) -> Result<(), LoadError> {
    gguf_gemma(gguf, config, 62)?;
    config.set("rope_local_base_freq", gguf.float("gemma3.rope.freq_base_swa")?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_slide_in_all_layers_but_every_sixth() {
        let config = gemma3(r#"{"num_hidden_layers": 7, "head_dim": 8, "sliding_window": 5}"#).unwrap();
        let layers = vec![true, true, true, true, true, false, true];
        assert_eq!(config.sliding, Some(Sliding { tokens: 5, layers: SlidingLayers::Listed(layers) }));
        assert_eq!((config.rotary.theta, config.local_rotary.map(|local| local.theta)), (1e6, Some(1e4)));
        assert_eq!((config.heads, config.kv_heads, config.attention_scale), (8, 4, 1.0 / 16.0));
        let scale = gemma3(r#"{"query_pre_attn_scalar": 49}"#).unwrap().attention_scale;
        assert!((scale - 1.0 / 7.0).abs() < 1e-7, "{scale}");
        let listed = r#"{"num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]}"#;
        let sliding = gemma3(listed).unwrap().sliding;
        assert_eq!(sliding.unwrap().layers, SlidingLayers::Listed(vec![false, true]));
    }

    #[test]
    fn rotary_parameters_are_parsed_in_both_formats() {
        let old =
            r#"{"rope_theta": 5e5, "rope_local_base_freq": 2e4, "rope_scaling": {"rope_type": "linear", "factor": 8}}"#;
        let new = r#"{"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 5e5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}}}"#;
        let both = [old, new].map(|json| gemma3(json).unwrap());
        assert_eq!(both[0], both[1]);
        assert_eq!((both[0].rotary.theta, both[0].local_rotary.as_ref().unwrap().theta), (5e5, 2e4));
    }

    #[test]
    fn an_unusable_config_says_why() {
        let check = |json: &str, why: &str| {
            let error = gemma3(json).unwrap_err().to_string();
            assert!(error.contains(why), "{json}: {error}");
        };
        check(r#"{"layer_types": ["full_attention"]}"#, "`layer_types` has 1 entries for 26 layers");
        check(r#"{"final_logit_softcapping": 0}"#, "`final_logit_softcapping` is 0; it must be above 0");
        check(r#"{"hidden_activation": "relu"}"#, "the activation `relu`");
        check(r#"{"use_bidirectional_attention": true}"#, "attention to later positions");
        check(r#"{"sliding_window": 0}"#, "`sliding_window` is 0");
    }
}
