//! Falcon-H1 (Zuo et al. 2025, arXiv:2507.22448): in every layer attention and Mamba-2 read the same input, and their outputs
//! are added. Embeddings, logits, and most inputs and outputs inside a layer have multipliers.

use serde::Deserialize;
use serde_json::json;

use super::super::decoder::{DecoderConfig, DecoderNames, FeedNames, Fused, MambaLayers, Multipliers};
use super::super::embedding_and_head::Scales;
use super::super::error::LoadError;
use super::super::family::{Family, GgufFormat, boxed};
use super::super::gguf::Gguf;
use super::super::gguf::config::ConfigFields;
use super::super::mamba2::{GatedNorm, Mamba2Config, MixerScales};
use super::config_json::{check_factors, one, parse, with_defaults, yes};
use super::llama::{self, Defaults, LlamaFields};
use super::mamba2::{HybridFields, gguf_mixers};

/// Falcon-H1. llama.cpp's converter multiplies the weights by the multipliers.
pub(super) const FAMILY: Family = Family {
    model_type: "falcon_h1",
    parse: |json| config(json).map(boxed),
    gguf: Some(GgufFormat { architecture: "falcon-h1", config: gguf_config, interleaved_rotary: false }),
};

/// Names of the tensors; Bamba has the same.
pub(super) static NAMES: DecoderNames = DecoderNames {
    norms: &["model.final_layernorm.weight"],
    feed_norm: ("pre_ff_layernorm", "ffn_norm"),
    feed: FeedNames {
        gate_proj: ("feed_forward.gate_proj", "ffn_gate"),
        up_proj: ("feed_forward.up_proj", "ffn_up"),
        gate_up_proj: Fused::Never,
        down_proj: ("feed_forward.down_proj", "ffn_down"),
    },
    ..llama::NAMES
};

/// The fields of the file that are its own. Defaults are those of `transformers`.
#[derive(Deserialize)]
struct Fields {
    #[serde(default)]
    mamba_rms_norm: bool,
    #[serde(default = "yes")]
    mamba_norm_before_gate: bool,
    #[serde(default = "one")]
    embedding_multiplier: f32,
    #[serde(default = "one")]
    lm_head_multiplier: f32,
    #[serde(default = "one")]
    attention_in_multiplier: f32,
    #[serde(default = "one")]
    attention_out_multiplier: f32,
    #[serde(default = "one")]
    key_multiplier: f32,
    #[serde(default = "one")]
    ssm_in_multiplier: f32,
    #[serde(default = "one")]
    ssm_out_multiplier: f32,
    /// Of z, x, B, C and Δ.
    ssm_multipliers: Option<[f32; 5]>,
    /// Of the gate and of the output.
    mlp_multipliers: Option<[f32; 2]>,
}

fn config(json: &str) -> Result<DecoderConfig, LoadError> {
    let defaults =
        json!({"rms_norm_eps": 1e-5, "num_key_value_heads": 8, "mamba_d_ssm": 1024, "projectors_bias": false});
    let json = with_defaults(json, defaults)?;
    let fields: Fields = parse(&json)?;
    let llama = LlamaFields::parse(&json)?;
    let config = llama.config(&Defaults { window: 8192, head_dim: None })?;
    let mamba = HybridFields::parse(&json)?.config(&config)?;
    let [gate, down] = fields.mlp_multipliers.unwrap_or([1.0; 2]);
    let parts = fields.ssm_multipliers.unwrap_or([1.0; 5]);
    let named = [
        ("embedding_multiplier", fields.embedding_multiplier),
        ("lm_head_multiplier", fields.lm_head_multiplier),
        ("attention_in_multiplier", fields.attention_in_multiplier),
        ("attention_out_multiplier", fields.attention_out_multiplier),
        ("key_multiplier", fields.key_multiplier),
        ("ssm_in_multiplier", fields.ssm_in_multiplier),
        ("ssm_out_multiplier", fields.ssm_out_multiplier),
        ("mlp_multipliers", gate),
        ("mlp_multipliers", down),
    ];
    check_factors(&named)?;
    check_factors(&parts.map(|part| ("ssm_multipliers", part)))?;
    let mamba = Mamba2Config {
        gated_norm: match (fields.mamba_rms_norm, fields.mamba_norm_before_gate) {
            (false, _) => GatedNorm::None,
            (true, true) => GatedNorm::BeforeGate,
            (true, false) => GatedNorm::AfterGate,
        },
        scales: Some(MixerScales { input: fields.ssm_in_multiplier, parts, output: fields.ssm_out_multiplier }),
        ..mamba
    };
    let listed = vec![true; config.layers];
    Ok(DecoderConfig {
        scales: Scales {
            embedding: fields.embedding_multiplier,
            logits: 1.0 / fields.lm_head_multiplier,
            logit_cap: None,
        },
        multipliers: Some(Multipliers {
            attention_in: fields.attention_in_multiplier,
            attention_out: fields.attention_out_multiplier,
            key: fields.key_multiplier,
            gate,
            down,
        }),
        mamba: Some(MambaLayers { config: mamba, listed, beside_attention: true }),
        feed_bias: llama.mlp_bias,
        names: &NAMES,
        ..config
    })
}

fn gguf_config(gguf: &Gguf, config: &mut ConfigFields) -> Result<(), LoadError> {
    llama::gguf_config(gguf, config)?;
    config.set("mlp_bias", Some(gguf.has_tensor_ending("ffn_up.bias")));
    config.set("mamba_rms_norm", Some(gguf.has_tensor_ending("ssm_norm.weight")));
    // As llama.cpp computes it.
    config.set("mamba_norm_before_gate", Some(false));
    config.set("projectors_bias", Some(gguf.has_tensor_ending("ssm_out.bias")));
    gguf_mixers(gguf, config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multipliers_are_checked_and_default_to_one() {
        let config = |extra: &str| {
            config(&format!(
                r#"{{"vocab_size": 9, "hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 2,
                    "num_attention_heads": 2, "num_key_value_heads": 1, "mamba_d_ssm": 24, "mamba_n_heads": 3{extra}}}"#
            ))
        };
        let plain = config("").unwrap();
        assert_eq!(plain.scales, Scales::ONE);
        let mamba = plain.mamba.unwrap();
        assert_eq!((mamba.listed, mamba.beside_attention), (vec![true, true], true));
        assert_eq!((mamba.config.head_dim, mamba.config.gated_norm), (8, GatedNorm::None));
        let normed = config(r#", "mamba_rms_norm": true"#).unwrap().mamba.unwrap().config;
        assert_eq!(normed.gated_norm, GatedNorm::BeforeGate);
        let error = config(r#", "ssm_multipliers": [1, 1, 0, 1, 1]"#).unwrap_err().to_string();
        assert!(error.contains("`ssm_multipliers` is 0; it must be above 0"), "{error}");
        let error = config(r#", "mamba_d_head": 5"#).unwrap_err().to_string();
        assert!(error.contains("is 15, but"), "{error}");
    }
}
