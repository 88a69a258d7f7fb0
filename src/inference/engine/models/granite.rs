//! Granite 3 and 4 (IBM 2024, 2025): a Llama whose embeddings, attention, residual stream and logits have multipliers. Granite
//! 4 has layers of Mamba-2 in place of attention, mixtures of experts, or neither.

use serde::Deserialize;
use serde_json::json;

use super::super::decoder::{
    DecoderConfig, DecoderNames, ExpertNames, ExpertsConfig, FeedNames, Fused, MambaLayers, Weighting,
};
use super::super::embedding_and_head::Scales;
use super::super::error::LoadError;
use super::super::family::{Family, GgufFormat, boxed};
use super::super::gguf::Gguf;
use super::super::gguf::config::ConfigFields;
use super::config_json::{FILE, check_dims, check_factors, one, parse, with_defaults};
use super::llama::{self, Defaults, LlamaFields, gguf_config};
use super::mamba2::{self, HybridFields};

/// Granite 3, and in GGUF also Granite 4 without experts and Mamba-2. Its queries and keys are interleaved there.
pub(super) const FAMILY: Family = Family {
    model_type: "granite",
    parse: |json| {
        let fields = LlamaFields::parse(json)?;
        let config = fields.config(&Defaults { window: 2048, head_dim: None })?;
        Ok(boxed(Multipliers::apply(json, DecoderConfig { feed_bias: fields.mlp_bias, ..config })?))
    },
    gguf: Some(GgufFormat { architecture: "granite", config: gguf_granite, interleaved_rotary: true }),
};

/// Granite 4.
pub(super) const HYBRID: Family = Family {
    model_type: "granitemoehybrid",
    parse: |json| hybrid(json).map(boxed),
    gguf: Some(GgufFormat { architecture: "granitehybrid", config: gguf_hybrid, interleaved_rotary: true }),
};

/// The multipliers.
#[derive(Deserialize)]
struct Multipliers {
    #[serde(default = "one")]
    embedding_multiplier: f32,
    #[serde(default = "one")]
    attention_multiplier: f32,
    #[serde(default = "one")]
    residual_multiplier: f32,
    #[serde(default = "one")]
    logits_scaling: f32,
}

impl Multipliers {
    fn apply(json: &str, config: DecoderConfig) -> Result<DecoderConfig, LoadError> {
        let fields: Self = parse(json)?;
        check_factors(&[
            ("embedding_multiplier", fields.embedding_multiplier),
            ("attention_multiplier", fields.attention_multiplier),
            ("residual_multiplier", fields.residual_multiplier),
            ("logits_scaling", fields.logits_scaling),
        ])?;
        Ok(DecoderConfig {
            attention_scale: fields.attention_multiplier,
            residual_scale: fields.residual_multiplier,
            scales: Scales { embedding: fields.embedding_multiplier, logits: fields.logits_scaling, logit_cap: None },
            ..config
        })
    }
}

/// The fields of Granite 4's `config.json` that Granite 3 lacks. Defaults are those of `transformers`.
#[derive(Deserialize)]
struct Fields {
    layer_types: Option<Vec<String>>,
    /// The name of `layer_types` in files from before 2026.
    layers_block_type: Option<Vec<String>>,
    position_embedding_type: Option<String>,
    #[serde(default = "experts")]
    num_local_experts: usize,
    #[serde(default = "chosen")]
    num_experts_per_tok: usize,
    #[serde(default = "shared")]
    shared_intermediate_size: usize,
}

fn experts() -> usize {
    8
}

fn chosen() -> usize {
    2
}

fn shared() -> usize {
    1024
}

/// Names of the tensors. In GGUF, files without experts name the shared expert like a Llama's feed-forward network.
const SHARED: FeedNames = FeedNames {
    gate_proj: ("shared_mlp.gate_proj", "ffn_gate_shexp"),
    up_proj: ("shared_mlp.up_proj", "ffn_up_shexp"),
    gate_up_proj: Fused::InSafetensors("shared_mlp.input_linear"),
    down_proj: ("shared_mlp.output_linear", "ffn_down_shexp"),
};

static NAMES: DecoderNames = DecoderNames {
    feed: FeedNames {
        gate_proj: ("shared_mlp.gate_proj", "ffn_gate"),
        up_proj: ("shared_mlp.up_proj", "ffn_up"),
        down_proj: ("shared_mlp.output_linear", "ffn_down"),
        ..SHARED
    },
    experts: ExpertNames {
        router: ("block_sparse_moe.router.layer", "ffn_gate_inp"),
        each: "block_sparse_moe.experts",
        stacked: &[("block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight")],
        shared: SHARED,
    },
    ..llama::NAMES
};

fn hybrid(json: &str) -> Result<DecoderConfig, LoadError> {
    let fields: Fields = parse(json)?;
    let llama = LlamaFields::parse(json)?;
    let config = Multipliers::apply(json, llama.config(&Defaults { window: 2048, head_dim: None })?)?;
    let listed: Vec<_> = match fields.layer_types.as_ref().or(fields.layers_block_type.as_ref()) {
        Some(types) => types.iter().map(|kind| matches!(kind.as_str(), "mamba" | "linear_attention")).collect(),
        None => vec![true; config.layers],
    };
    if listed.len() != config.layers {
        let why = format!("`layer_types` has {} entries for {} layers", listed.len(), config.layers);
        return Err(LoadError::malformed(FILE, why));
    }
    check_dims(&[("shared_intermediate_size", fields.shared_intermediate_size)])?;
    if fields.num_local_experts > 0 {
        check_dims(&[("num_local_experts", fields.num_local_experts)])?;
    }
    let mamba = if listed.contains(&true) {
        let defaults = json!({"rms_norm_eps": 1e-6, "mamba_d_head": "auto"});
        let config = HybridFields::parse(&with_defaults(json, defaults)?)?.config(&config)?;
        Some(MambaLayers { config, listed, beside_attention: false })
    } else {
        None
    };
    let experts = if fields.num_local_experts > 0 {
        Some(
            ExpertsConfig {
                count: fields.num_local_experts,
                chosen: fields.num_experts_per_tok,
                d_feed: config.d_feed,
                d_shared: Some(fields.shared_intermediate_size),
                weighting: Weighting::AmongChosen,
                dense: Vec::new(),
            }
            .checked()?,
        )
    } else {
        None
    };
    let rotary = fields.position_embedding_type.as_deref() == Some("rope");
    Ok(DecoderConfig {
        d_feed: if experts.is_some() { 0 } else { fields.shared_intermediate_size },
        without_rotary: if rotary { Vec::new() } else { vec![true; config.layers] },
        experts,
        mamba,
        names: &NAMES,
        ..config
    })
}

fn gguf_granite(gguf: &Gguf, config: &mut ConfigFields) -> Result<(), LoadError> {
    gguf_config(gguf, config)?;
    let architecture = gguf.architecture()?;
    for (name, key) in [
        ("attention_multiplier", "attention.scale"),
        ("embedding_multiplier", "embedding_scale"),
        ("residual_multiplier", "residual_scale"),
        ("logits_scaling", "logit_scale"),
    ] {
        config.set(name, gguf.float(&format!("{architecture}.{key}"))?);
    }
    Ok(())
}

fn gguf_hybrid(gguf: &Gguf, config: &mut ConfigFields) -> Result<(), LoadError> {
    gguf_granite(gguf, config)?;
    let key = |name: &str| format!("granitehybrid.{name}");
    let number = |name: &str| gguf.number(&key(name));
    // A layer without key heads is one of Mamba-2.
    let heads = gguf.numbers(&key("attention.head_count_kv"))?.unwrap_or_default();
    let types = heads.iter().map(|heads| if *heads == 0 { "mamba" } else { "attention" });
    config.set("layer_types", Some(types.collect::<Vec<_>>()));
    if gguf.flag(&key("rope.scaling.finetuned"))? == Some(true) {
        config.set("position_embedding_type", Some("rope"));
    }
    let experts = number("expert_count")?.unwrap_or(0);
    config.set("num_local_experts", Some(experts));
    config.set("num_experts_per_tok", number("expert_used_count")?);
    let shared = number("expert_shared_feed_forward_length")?;
    config.set("shared_intermediate_size", shared.or(number("feed_forward_length")?));
    if gguf.float(&key("attention.scale"))?.is_none() {
        // A Bamba, whose attention is scaled as usual.
        let (width, heads) = (number("embedding_length")?, number("attention.head_count")?);
        let head_dim = width.zip(heads).map(|(width, heads)| (width / heads.max(1)).max(1) as f64);
        config.set("attention_multiplier", head_dim.map(|head_dim| 1.0 / head_dim.sqrt()));
    }
    mamba2::gguf_mixers(gguf, config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_of_mamba_or_attention() {
        let config = |extra: &str| {
            hybrid(&format!(
                r#"{{"vocab_size": 9, "hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 2,
                    "num_attention_heads": 2, "mamba_n_heads": 4, "mamba_d_head": 8, "num_local_experts": 0{extra}}}"#
            ))
        };
        let listed = |extra: &str| config(extra).unwrap().mamba.map(|mamba| mamba.listed);
        assert_eq!(listed(""), Some(vec![true, true]));
        assert_eq!(listed(r#", "layer_types": ["mamba", "attention"]"#), Some(vec![true, false]));
        assert_eq!(listed(r#", "layer_types": ["linear_attention", "full_attention"]"#), Some(vec![true, false]));
        assert_eq!(listed(r#", "layers_block_type": ["attention", "attention"]"#), None);
        let error = config(r#", "layer_types": ["mamba"]"#).unwrap_err().to_string();
        assert!(error.contains("`layer_types` has 1 entries for 2 layers"), "{error}");
        let error = config(r#", "mamba_d_head": 3"#).unwrap_err().to_string();
        assert!(error.contains("is 12, but"), "{error}");
        // Its own rotary positions, or none.
        assert_eq!(config("").unwrap().without_rotary, [true, true]);
        assert!(config(r#", "position_embedding_type": "rope""#).unwrap().without_rotary.is_empty());
    }
}
