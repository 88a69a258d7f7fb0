//! Mistral (Jiang et al. 2023, arXiv:2310.06825): a Llama whose window slides. In GGUF it is a `llama`.

use serde::Deserialize;

use super::super::decoder::{DecoderConfig, Sliding, SlidingLayers};
use super::super::family::{Family, boxed};
use super::config_json::{check_dims, parse};
use super::llama::{Defaults, LlamaFields};

/// Mistral.
pub(super) const FAMILY: Family = Family {
    model_type: "mistral",
    parse: |json| {
        let Fields { sliding_window, num_key_value_heads } = parse(json)?;
        let mut fields = LlamaFields::parse(json)?;
        fields.num_key_value_heads = num_key_value_heads;
        let config = fields.config(&Defaults { window: 131_072, head_dim: None })?;
        check_dims(&[("sliding_window", sliding_window.unwrap_or(1))])?;
        let sliding = sliding_window.map(|tokens| Sliding { tokens, layers: SlidingLayers::From(0) });
        Ok(boxed(DecoderConfig { sliding, ..config }))
    },
    gguf: None,
};

/// The fields of `config.json` whose defaults differ from Llama's.
#[derive(Deserialize)]
struct Fields {
    /// `null` is no window.
    #[serde(default = "sliding_window")]
    sliding_window: Option<usize>,
    #[serde(default = "key_value_heads")]
    num_key_value_heads: Option<usize>,
}

#[expect(clippy::unnecessary_wraps, reason = "the form that serde takes")]
fn sliding_window() -> Option<usize> {
    Some(4096)
}

#[expect(clippy::unnecessary_wraps, reason = "the form that serde takes")]
fn key_value_heads() -> Option<usize> {
    Some(8)
}
