//! Qwen2 and Qwen2.5 (Yang et al. 2024, arXiv:2412.15115): a Llama with biases on queries, keys and values.

use super::super::decoder::DecoderConfig;
use super::super::family::{Family, GgufFormat, boxed};
use super::llama::{Defaults, LlamaFields, gguf_config};

/// Qwen2.
pub(super) const FAMILY: Family = Family {
    model_type: "qwen2",
    parse: |json| {
        let config = LlamaFields::parse(json)?.config(&Defaults { window: 32_768, head_dim: None })?;
        Ok(boxed(DecoderConfig { qkv_bias: true, out_bias: false, ..config }))
    },
    gguf: Some(GgufFormat { config: gguf_config, interleaved_rotary: false }),
};
