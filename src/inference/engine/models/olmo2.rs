//! `OLMo` 2 (`OLMo` Team 2024, arXiv:2501.00656): a Llama with norms after attention and feed-forward network instead of
//! before, and with norms over all queries and over all keys.

use super::super::decoder::{DecoderConfig, DecoderNames, NormPlaces, QkNorms};
use super::super::family::{Family, GgufFormat, boxed};
use super::config_json::with_defaults;
use super::llama::{self, Defaults, LlamaFields, gguf_config};

/// `OLMo` 2.
pub(super) const FAMILY: Family = Family {
    model_type: "olmo2",
    parse: |json| {
        let json = with_defaults(json, serde_json::json!({ "rms_norm_eps": 1e-5 }))?;
        let config = LlamaFields::parse(&json)?.config(&Defaults { window: 2048, head_dim: None })?;
        let qk_norms = Some(QkNorms::Whole);
        Ok(boxed(DecoderConfig { norms: NormPlaces::After, qk_norms, names: &NAMES, ..config }))
    },
    gguf: Some(GgufFormat { architecture: "olmo2", config: gguf_config, interleaved_rotary: false }),
};

static NAMES: DecoderNames = DecoderNames {
    output_norm: ("post_attention_layernorm", "post_attention_norm"),
    feed_output_norm: ("post_feedforward_layernorm", "post_ffw_norm"),
    ..llama::NAMES
};
