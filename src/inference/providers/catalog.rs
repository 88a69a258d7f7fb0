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

/// The spec that a bare name such as `qwen3` or `gpt-4o` probably stands for.
pub fn similar_spec(name: &str) -> Option<String> {
    let plain = |text: &str| text.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect::<String>();
    let wanted = plain(name);
    if wanted.len() < 3 || name.contains([':', '/', '#', '\\', ' ', ',']) {
        return None;
    }
    for (prefix, spec) in [("gpt", "openai"), ("o1", "openai"), ("o3", "openai"), ("claude", "anthropic")] {
        if wanted.starts_with(prefix) {
            return Some(format!("{spec}/{name}"));
        }
    }
    if "bundled".starts_with(&wanted) || strsim::damerau_levenshtein("bundled", &wanted) <= 2 {
        return Some("bundled".to_owned());
    }
    let specs = catalog().unwrap_or_default().into_iter().map(|entry| entry.spec);
    // The shortest spec whose repository's name begins with the words, or contains them.
    let mut close: Vec<_> =
        specs.filter(|spec| plain(spec.rsplit('/').next().unwrap_or(spec)).contains(&wanted)).collect();
    close.sort_by_key(|spec| (!plain(spec.rsplit('/').next().unwrap_or(spec)).starts_with(&wanted), spec.len()));
    close.into_iter().next()
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
    fn a_bare_name_suggests_a_spec() {
        let check = |name: &str, expected: Option<&str>| assert_eq!(similar_spec(name).as_deref(), expected, "{name}");
        check("qwen3", Some("hf:Qwen/Qwen3-0.6B"));
        check("Mamba-130M", Some("hf:state-spaces/mamba-130m-hf"));
        check("gpt-4o-mini", Some("openai/gpt-4o-mini"));
        check("bundeld", Some("bundled"));
        check("unheard-of", None);
        check("./folder", None);
    }

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
