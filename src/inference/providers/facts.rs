//! Facts about a model that is not loaded: size, licence, and memory needed here.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::catalog::catalog;
use crate::foundation::base::limits::MODEL_JSON_BYTES_MAX;
use crate::foundation::chat::{ModelError, ModelSpec};
use crate::foundation::store::read_text;
use crate::inference::engine::{Dtype, LoadError, ModelShape, Provider, available_memory, bundled};
use crate::inference::remote::hub::{self, HubOptions};

/// Tokens assumed for a sequence; the model's window if that is shorter.
const CONTEXT: usize = 2_048;

/// Facts about a model; `None` means unknown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelFacts {
    /// The spec string.
    pub spec: String,
    /// The source of these facts.
    pub origin: FactsSource,
    /// The folder of its files, if they are on this machine.
    pub folder: Option<PathBuf>,
    /// The hub commit of the files.
    pub commit: Option<String>,
    /// Its dims.
    pub shape: ModelShape,
    /// The licence named by the model card or the catalog.
    pub licence: Option<String>,
    /// Memory needed per dtype.
    pub memory: Vec<WeightMemory>,
    /// Tokens assumed for `sequence_bytes`.
    pub context_tokens: u64,
    /// Bytes needed for one sequence of that length.
    pub sequence_bytes: u64,
    /// Free memory in bytes.
    pub available_bytes: Option<u64>,
}

/// The source of a model's facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FactsSource {
    /// Built into the program.
    Program,
    /// The model's own folder.
    Folder,
    /// The hub's cache.
    Cache,
    /// The catalog; the model is not on this machine.
    Catalog,
}

/// Memory needed for the weights at one dtype.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WeightMemory {
    /// The dtype of the matrices.
    #[serde(serialize_with = "by_name")]
    pub dtype: Dtype,
    /// Size of the weights in bytes.
    pub weight_bytes: u64,
    /// Whether the weights and one sequence fit into free memory.
    pub fits: Option<bool>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde takes")]
fn by_name<S: serde::Serializer>(dtype: &Dtype, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(dtype.name())
}

impl ModelFacts {
    /// Facts about `spec`. Nothing is downloaded.
    ///
    /// # Errors
    /// [`ModelError::Unavailable`] for a model that is neither on this machine nor in the catalog;
    /// [`ModelError::Unsupported`] for one without weights.
    pub fn of(spec: &ModelSpec, hub: &HubOptions) -> Result<Self, ModelError> {
        let unavailable = |why: String| ModelError::Unavailable { model: spec.to_string(), why };
        let wrong = |error: LoadError| unavailable(error.to_string());
        let facts = |origin, folder: Option<PathBuf>, commit, shape: ModelShape, licence| {
            let (context, available) = (context(&shape), available_memory());
            let known = |dtype: &Dtype| shape.provider == Provider::Native || *dtype == Dtype::F32;
            let memory = Dtype::ALL.into_iter().filter(known).map(|dtype| WeightMemory {
                dtype,
                weight_bytes: shape.weight_bytes(dtype),
                fits: available.map(|available| shape.fits(dtype, context, available).is_ok()),
            });
            let memory = memory.collect();
            let sequence_bytes = shape.sequence_bytes(context);
            Self {
                spec: spec.to_string(),
                origin,
                folder,
                commit,
                shape,
                licence,
                memory,
                context_tokens: context,
                sequence_bytes,
                available_bytes: available,
            }
        };
        let (files, provider) = super::files(spec);
        match files {
            ModelSpec::Bundled => {
                let (config, licence) = bundled().map_err(wrong)?;
                let shape = ModelShape::parse_for(config, provider).map_err(wrong)?;
                Ok(facts(FactsSource::Program, None, None, shape, licence))
            }
            ModelSpec::Local(path) => {
                let shape = shape(path, provider).map_err(wrong)?;
                Ok(facts(FactsSource::Folder, Some(path.clone()), None, shape, licence(path)))
            }
            ModelSpec::Hub { repo, revision } => {
                let here =
                    hub::find_cached(repo, revision.as_deref(), hub).map_err(|error| unavailable(error.to_string()))?;
                let known = catalog().map_err(wrong)?.into_iter().find(|known| known.spec == format!("hf:{repo}"));
                let from_catalog = known.as_ref().and_then(|known| known.licence.clone());
                match (here, known) {
                    (Some((folder, commit)), _) => {
                        let shape = shape(&folder, provider).map_err(wrong)?;
                        let licence = licence(&folder).or(from_catalog);
                        Ok(facts(FactsSource::Cache, Some(folder), Some(commit), shape, licence))
                    }
                    (None, Some(known)) if provider == Provider::Native => {
                        let mut shape = known.shape().map_err(wrong)?;
                        shape.window_tokens = shape.window_tokens.or(known.window_tokens);
                        Ok(facts(FactsSource::Catalog, None, None, shape, from_catalog))
                    }
                    (None, _) => Err(unavailable(format!(
                        "it is neither in the cache nor in the catalog: fetch it first, with `loom model fetch {files}`"
                    ))),
                }
            }
            _ => Err(ModelError::Unsupported {
                model: spec.to_string(),
                why: "it has no weights; name `bundled`, `local:DIR` or `hf:OWNER/REPO`".to_owned(),
            }),
        }
    }
}

/// Tokens assumed for a sequence of the model.
pub(super) fn context(shape: &ModelShape) -> u64 {
    shape.window_tokens.unwrap_or(CONTEXT).min(CONTEXT) as u64
}

/// The dims of the model in a folder or a GGUF file.
pub(super) fn shape(folder: &Path, provider: Provider) -> Result<ModelShape, LoadError> {
    if folder.is_file() && provider == Provider::Native {
        return ModelShape::of_gguf(folder);
    }
    let path = folder.join("config.json");
    let json = read_text(&path, MODEL_JSON_BYTES_MAX)
        .map_err(|error| LoadError::Read { file: path.display().to_string(), why: error.to_string() })?;
    ModelShape::parse_for(&json, provider)
}

/// The licence from the front matter of the model card.
fn licence(folder: &Path) -> Option<String> {
    #[derive(Deserialize)]
    struct Front {
        license: Option<Named>,
        license_name: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Named {
        One(String),
        Many(Vec<String>),
    }
    let card = read_text(&folder.join("README.md"), MODEL_JSON_BYTES_MAX).ok()?;
    let (front, _) = card.strip_prefix("---")?.split_once("\n---")?;
    let front: Front = serde_saphyr::from_str(front).ok()?;
    match front.license? {
        // The hub uses `other` for licences that are not in its list.
        Named::One(name) if name == "other" => front.license_name.or(Some(name)),
        Named::One(name) => Some(name),
        Named::Many(names) => Some(names.join(" AND ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foundation::chat::LanguageModel;
    use crate::inference::engine::{EngineOptions, LocalModel};

    fn check(card: &str, expected: Option<&str>) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("README.md"), card).unwrap();
        assert_eq!(licence(folder.path()).as_deref(), expected, "{card:?}");
    }

    #[test]
    fn the_licence_comes_from_the_model_card() {
        check("---\nlicense: apache-2.0\ntags: [a]\n---\n# A model", Some("apache-2.0"));
        check("---\nlicense: other\nlicense_name: falcon-mamba-7b-license\n---\n", Some("falcon-mamba-7b-license"));
        check("---\nlicense: [mit, cc-by-4.0]\n---\n", Some("mit AND cc-by-4.0"));
        check("---\ntags: [a]\n---\nlicense: mit", None);
        check("# A model\nlicense: mit", None);
    }

    #[test]
    fn facts_of_a_gguf_file_come_from_its_header() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/gguf/plain.gguf");
        let facts = ModelFacts::of(&format!("local:{file}").parse().unwrap(), &HubOptions::default()).unwrap();
        assert_eq!((facts.origin, facts.shape.architecture.as_str()), (FactsSource::Folder, "mamba"));
        let model = LocalModel::from_gguf(Path::new(file), &EngineOptions::default()).unwrap();
        let (shape, info) = (&facts.shape, model.info());
        assert_eq!((Some(shape.layers), Some(shape.vocabulary)), (info.layers, info.vocabulary));
        assert_eq!(shape.stored.map(|dtype| dtype.to_string()), info.dtype);
    }

    #[test]
    fn the_bundled_model_has_facts_and_a_hosted_one_has_none() {
        let facts = ModelFacts::of(&ModelSpec::Bundled, &HubOptions::default()).unwrap();
        assert_eq!((facts.origin, facts.shape.architecture.as_str()), (FactsSource::Program, "mamba"));
        assert!(facts.licence.unwrap().contains("CC-BY-4.0"));
        assert!(ModelFacts::of(&ModelSpec::OpenAi("x".to_owned()), &HubOptions::default()).is_err());
    }
}
