//! The model embedded in the program: the files of `models/bundled` and its manifest.

use serde::Deserialize;

use super::error::LoadError;
use crate::foundation::chat::Sampling;

pub(super) const CONFIG: &str = include_str!("../../../models/bundled/config.json");
pub(super) const GENERATION_CONFIG: &str = include_str!("../../../models/bundled/generation_config.json");
pub(super) const TOKENIZER: &str = include_str!("../../../models/bundled/tokenizer.json");
pub(super) const TOKENIZER_CONFIG: &str = include_str!("../../../models/bundled/tokenizer_config.json");
pub(super) const WEIGHTS: &[u8] = include_bytes!("../../../models/bundled/model.safetensors");
const MANIFEST: &str = include_str!("../../../models/bundled/manifest.yaml");

/// Facts about a model beyond its own files. Absent fields are unknown.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) name: String,
    /// An SPDX expression over the training data's licences.
    pub(super) licence: Option<String>,
    /// Training data.
    #[serde(default)]
    pub(super) data: Vec<Data>,
    /// Number of tokens that it handles well.
    pub(super) window_tokens: Option<usize>,
    /// Recommended maximum length of instructions, tokens.
    pub(super) prompt_tokens_max: Option<usize>,
    pub(super) held_out: Option<HeldOut>,
    /// Texts that end a reply, in addition to its end tokens.
    #[serde(default)]
    pub(super) stop: Vec<String>,
    pub(super) sampling: Option<Sampling>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Data {
    pub(super) name: String,
    pub(super) licence: String,
}

/// A measurement on text that was not used for training.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HeldOut {
    pub(super) data: String,
    /// Mean negative log-likelihood per token.
    pub(super) nll_nats: f64,
    pub(super) perplexity: f64,
}

/// The bundled model's manifest.
pub(super) fn manifest() -> Result<Manifest, LoadError> {
    serde_saphyr::from_str(MANIFEST).map_err(|error| LoadError::malformed("models/bundled/manifest.yaml", error))
}

/// The bundled model's `config.json`, and its licence.
///
/// # Errors
/// Never in a program whose tests pass.
pub fn bundled() -> Result<(&'static str, Option<String>), LoadError> {
    Ok((CONFIG, manifest()?.licence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_parses_and_is_consistent() {
        let manifest = manifest().unwrap();
        let held_out = manifest.held_out.unwrap();
        assert!((held_out.nll_nats.exp() - held_out.perplexity).abs() < 0.01);
        assert!(manifest.prompt_tokens_max < manifest.window_tokens);
        let licence = manifest.licence.unwrap();
        assert_eq!(manifest.data.len(), 5);
        assert!(manifest.data.iter().all(|data| licence.contains(&data.licence)), "{licence}");
        assert!(manifest.sampling.is_some() && !manifest.stop.is_empty());
    }
}
