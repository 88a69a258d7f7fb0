//! `SmolLM3` (Bakouch et al. 2025): a Llama in which every fourth layer has no rotary positions.

use serde::Deserialize;

use super::super::decoder::DecoderConfig;
use super::super::family::{Family, GgufFormat, boxed};
use super::config_json::{check_dims, parse, unsupported, yes};
use super::llama::{Defaults, LlamaFields, gguf_config};

/// `SmolLM3`.
pub(super) const FAMILY: Family = Family {
    model_type: "smollm3",
    parse: |json| {
        let own: Fields = parse(json)?;
        if own.use_sliding_window {
            return Err(unsupported("sliding-window attention".to_owned(), "`use_sliding_window: false`"));
        }
        check_dims(&[("no_rope_layer_interval", own.no_rope_layer_interval)])?;
        let mut fields = LlamaFields::parse(json)?;
        fields.rope_theta.get_or_insert(2e6);
        fields.num_key_value_heads = own.num_key_value_heads;
        let config = fields.config(&Defaults { window: 32_768, head_dim: None })?;
        let without_rotary = match own.no_rope_layers {
            Some(listed) => listed.iter().map(|rotary| *rotary == 0).collect(),
            None => (1..=config.layers).map(|layer| layer.is_multiple_of(own.no_rope_layer_interval)).collect(),
        };
        Ok(boxed(DecoderConfig { without_rotary, feed_bias: fields.mlp_bias, tied: own.tie_word_embeddings, ..config }))
    },
    // Files state no layers without rotary positions: llama.cpp, too, takes every fourth.
    gguf: Some(GgufFormat { architecture: "smollm3", config: gguf_config, interleaved_rotary: true }),
};

/// The fields of `config.json` that are its own, or whose defaults differ from Llama's.
#[derive(Deserialize)]
struct Fields {
    /// 1 for a layer with rotary positions, 0 for one without.
    no_rope_layers: Option<Vec<u8>>,
    #[serde(default = "interval")]
    no_rope_layer_interval: usize,
    #[serde(default = "key_value_heads")]
    num_key_value_heads: Option<usize>,
    #[serde(default)]
    use_sliding_window: bool,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
}

fn interval() -> usize {
    4
}

#[expect(clippy::unnecessary_wraps, reason = "the form that serde takes")]
fn key_value_heads() -> Option<usize> {
    Some(4)
}
