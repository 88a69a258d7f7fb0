//! Phi-3 and Phi-4 (Abdin et al. 2024, arXiv:2404.14219): a Llama with queries, keys and values in one matrix, and gate and
//! up in another. `LongRoPE` is read with the factors for the trained window, which is then the longest sequence.

use serde::Deserialize;
use serde_json::json;

use super::super::decoder::{DecoderConfig, DecoderNames, FeedNames, Fused, Scaling, Sliding, SlidingLayers};
use super::super::error::LoadError;
use super::super::family::{Family, GgufFormat, boxed};
use super::super::gguf::Gguf;
use super::super::gguf::config::ConfigFields;
use super::config_json::{check_dims, parse, with_defaults};
use super::llama::{self, Defaults, LlamaFields, gguf_config};

/// Phi-3.
pub(super) const FAMILY: Family = Family {
    model_type: "phi3",
    parse: |json| {
        let defaults = json!({
            "rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "original_max_position_embeddings": 4096,
        });
        let json = with_defaults(json, defaults)?;
        let Fields { sliding_window, original_max_position_embeddings: trained } = parse(&json)?;
        check_dims(&[("sliding_window", sliding_window.unwrap_or(1)), ("original_max_position_embeddings", trained)])?;
        let config = LlamaFields::parse(&json)?.config(&Defaults { window: 4096, head_dim: None })?;
        let long = matches!(config.rotary.scaling, Scaling::Each { .. });
        let window = if long { config.window.min(trained) } else { config.window };
        let sliding = sliding_window.map(|tokens| Sliding { tokens, layers: SlidingLayers::From(0) });
        Ok(boxed(DecoderConfig { sliding, window, names: &NAMES, ..config }))
    },
    gguf: Some(GgufFormat { architecture: "phi3", config: gguf_phi3, interleaved_rotary: false }),
};

/// The fields of `config.json` that a Llama lacks.
#[derive(Deserialize)]
struct Fields {
    sliding_window: Option<usize>,
    original_max_position_embeddings: usize,
}

static NAMES: DecoderNames = DecoderNames {
    qkv_proj: Some(("self_attn.qkv_proj", "attn_qkv")),
    feed: FeedNames {
        gate_up_proj: Fused::Always("mlp.gate_up_proj", "ffn_up"),
        down_proj: ("mlp.down_proj", "ffn_down"),
        ..llama::FEED
    },
    ..llama::NAMES
};

fn gguf_phi3(gguf: &Gguf, config: &mut ConfigFields) -> Result<(), LoadError> {
    gguf_config(gguf, config)?;
    config.set("original_max_position_embeddings", gguf.number("phi3.rope.scaling.original_context_length")?);
    // 0 is no window.
    config.set("sliding_window", gguf.number("phi3.attention.sliding_window")?.filter(|tokens| *tokens > 0));
    Ok(())
}
