//! Qwen3 (Yang et al. 2025, arXiv:2505.09388): a Llama with norms of queries and keys per head, and heads of 128.

use super::super::decoder::{DecoderConfig, QkNorms};
use super::super::family::{Family, GgufFormat, boxed};
use super::llama::{Defaults, LlamaFields, gguf_config};
use super::qwen2::SlidingFields;

/// Qwen3.
pub(super) const FAMILY: Family = Family {
    model_type: "qwen3",
    parse: |json| {
        let config = LlamaFields::parse(json)?.config(&Defaults { window: 32_768, head_dim: Some(128) })?;
        Ok(boxed(DecoderConfig { qk_norms: Some(QkNorms::PerHead), sliding: SlidingFields::sliding(json)?, ..config }))
    },
    gguf: Some(GgufFormat { architecture: "qwen3", config: gguf_config, interleaved_rotary: false }),
};
