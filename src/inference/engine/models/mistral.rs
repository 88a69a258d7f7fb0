//! Mistral (Jiang et al. 2023, arXiv:2310.06825): a Llama whose window slides. In GGUF it is a `llama`. Mistral Small 3.1 has
//! images too, of which nothing is read.

use serde::Deserialize;

use super::super::decoder::{DecoderConfig, DecoderNames, Sliding, SlidingLayers};
use super::super::error::LoadError;
use super::super::family::{Family, boxed};
use super::config_json::{check_dims, parse, unsupported};
use super::gemma;
use super::llama::{self, Defaults, LlamaFields};

/// Mistral.
pub(super) const FAMILY: Family = Family { model_type: "mistral", parse: |json| config(json).map(boxed), gguf: None };

/// Mistral with images, of which the language model is read.
pub(super) const MISTRAL3: Family = Family {
    model_type: "mistral3",
    parse: |json| {
        let Parts { text_config } = parse(json)?;
        let text = text_config.to_string();
        match parse::<TextType>(&text)?.model_type.as_deref() {
            None | Some("mistral") => Ok(boxed(DecoderConfig { names: &WITH_IMAGES, ..config(&text)? })),
            Some(other) => Err(unsupported(format!("`mistral3` around the language model `{other}`"), "`mistral`")),
        }
    },
    gguf: None,
};

/// The configuration of a model with images.
#[derive(Deserialize)]
struct Parts {
    text_config: serde_json::Value,
}

#[derive(Deserialize)]
struct TextType {
    model_type: Option<String>,
}

/// Names of the tensors beside those for images.
static WITH_IMAGES: DecoderNames = DecoderNames {
    tables: gemma::NAMES.tables,
    norms: gemma::NAMES.norms,
    layers: gemma::NAMES.layers,
    others: gemma::NAMES.others,
    ..llama::NAMES
};

fn config(json: &str) -> Result<DecoderConfig, LoadError> {
    let Fields { sliding_window, num_key_value_heads } = parse(json)?;
    let mut fields = LlamaFields::parse(json)?;
    fields.num_key_value_heads = num_key_value_heads;
    let config = fields.config(&Defaults { window: 131_072, head_dim: None })?;
    check_dims(&[("sliding_window", sliding_window.unwrap_or(1))])?;
    let sliding = sliding_window.map(|tokens| Sliding { tokens, layers: SlidingLayers::From(0) });
    Ok(DecoderConfig { sliding, ..config })
}

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
