//! Well-known models: spec string and known facts, from `models/catalog`. A fact missing from a manifest is unknown.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::inference::engine::{LoadError, ModelShape};

/// A well-known model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogEntry {
    /// The spec string.
    pub spec: String,
    /// The licence as an SPDX expression.
    pub licence: Option<String>,
    /// The context window.
    pub window_tokens: Option<usize>,
    /// The fields of its `config.json` that determine its size.
    pub config: Map<String, Value>,
    /// The URL of the source of these facts.
    pub source: String,
}

macro_rules! catalog {
    ($($file:literal)*) => {
        [$(($file, include_str!(concat!("../../../models/catalog/", $file, ".yaml")))),*]
    };
}

const FILES: [(&str, &str); 12] = catalog![
    "mamba-130m" "mamba-370m" "mamba-790m" "mamba-1.4b" "mamba-2.8b" "falcon-mamba-7b" "smollm2-135m" "tinyllama-1.1b"
    "llama-3.2-1b" "qwen2.5-0.5b" "qwen3-0.6b" "all-minilm-l6-v2"
];

/// The catalog, ordered by architecture.
///
/// # Errors
/// Never, if the program's tests pass.
pub fn catalog() -> Result<Vec<CatalogEntry>, LoadError> {
    let read = |(name, yaml): (&str, &str)| {
        serde_saphyr::from_str(yaml).map_err(|error| LoadError::Malformed {
            file: format!("models/catalog/{name}.yaml"),
            why: error.to_string(),
        })
    };
    FILES.into_iter().map(read).collect()
}

impl CatalogEntry {
    /// The model's dims.
    ///
    /// # Errors
    /// Never, if the program's tests pass.
    pub fn shape(&self) -> Result<ModelShape, LoadError> {
        ModelShape::parse(&Value::from(self.config.clone()).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foundation::chat::ModelSpec;

    #[test]
    fn every_manifest_is_read_and_has_a_size() {
        for entry in catalog().unwrap() {
            assert!(matches!(entry.spec.parse(), Ok(ModelSpec::Hub { .. })), "{}", entry.spec);
            assert!(entry.shape().unwrap().parameters > 20_000_000, "{}", entry.spec);
            assert!(entry.source.starts_with("https://"), "{}", entry.spec);
        }
        let there = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/models/catalog")).unwrap().count();
        assert_eq!(there, FILES.len());
    }
}
