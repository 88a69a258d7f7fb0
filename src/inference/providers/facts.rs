//! What is known of a model without running it: its size, its licence, and the memory that it takes here.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::catalog::catalog;
use crate::foundation::chat::{ModelError, ModelSpec};
use crate::inference::engine::{Dtype, LoadError, ModelShape, available_memory, bundled};
use crate::inference::remote::hub::{self, HubOptions};

/// A sequence is counted with so many tokens, or with the model's window if that is shorter.
const CONTEXT: usize = 2_048;

/// What is known of a model. `None` is unknown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Facts {
    /// Its spec string.
    pub spec: String,
    /// Where these facts were read.
    pub origin: Origin,
    /// The folder of its files, if they are here.
    pub folder: Option<PathBuf>,
    /// The commit on the hub that they are of.
    pub commit: Option<String>,
    /// Its dims.
    pub shape: ModelShape,
    /// Its licence, as its card or its manifest names it.
    pub licence: Option<String>,
    /// The memory that it takes at each dtype.
    pub memory: Vec<Memory>,
    /// How many tokens a sequence is counted with below.
    pub context_tokens: u64,
    /// Bytes that one such sequence takes.
    pub sequence_bytes: u64,
    /// Bytes of memory that are free here.
    pub available_bytes: Option<u64>,
}

/// Where facts were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The program itself.
    Program,
    /// The model's own folder.
    Folder,
    /// The hub's cache.
    Cache,
    /// The catalog; the model is not here.
    Catalog,
}

/// The memory that weights take at one dtype.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// How matrices are kept.
    #[serde(serialize_with = "by_name")]
    pub dtype: Dtype,
    /// Bytes.
    pub weight_bytes: u64,
    /// Whether they and one sequence fit into what is free here.
    pub fits: Option<bool>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde takes")]
fn by_name<S: serde::Serializer>(dtype: &Dtype, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(dtype.name())
}

impl Facts {
    /// What is known of `spec`. Nothing is fetched.
    ///
    /// # Errors
    /// [`ModelError::Unavailable`] for a model whose files are not here and that the catalog does not have;
    /// [`ModelError::Unsupported`] for one without weights.
    pub fn of(spec: &ModelSpec, hub: &HubOptions) -> Result<Self, ModelError> {
        let told = |why: String| ModelError::Unavailable { model: spec.to_string(), why };
        let wrong = |error: LoadError| told(error.to_string());
        let facts = |origin, folder: Option<PathBuf>, commit, shape: ModelShape, licence| {
            let (context, available) = (context(&shape), available_memory());
            let memory = Dtype::ALL.map(|dtype| Memory {
                dtype,
                weight_bytes: shape.weight_bytes(dtype),
                fits: available.map(|available| shape.fits(dtype, context, available).is_ok()),
            });
            let sequence_bytes = shape.sequence_bytes(context);
            Self {
                spec: spec.to_string(),
                origin,
                folder,
                commit,
                shape,
                licence,
                memory: memory.to_vec(),
                context_tokens: context,
                sequence_bytes,
                available_bytes: available,
            }
        };
        match spec {
            ModelSpec::Bundled => {
                let (config, licence) = bundled().map_err(wrong)?;
                Ok(facts(Origin::Program, None, None, ModelShape::parse(config).map_err(wrong)?, licence))
            }
            ModelSpec::Local(path) => {
                let shape = shape(path).map_err(wrong)?;
                Ok(facts(Origin::Folder, Some(path.clone()), None, shape, licence(path)))
            }
            ModelSpec::Hub { repo, revision } => {
                let here = hub::peek(repo, revision.as_deref(), hub).map_err(|error| told(error.to_string()))?;
                let known = catalog().map_err(wrong)?.into_iter().find(|known| known.spec == format!("hf:{repo}"));
                let from_catalog = known.as_ref().and_then(|known| known.licence.clone());
                match (here, known) {
                    (Some((folder, commit)), _) => {
                        let shape = shape(&folder).map_err(wrong)?;
                        let licence = licence(&folder).or(from_catalog);
                        Ok(facts(Origin::Cache, Some(folder), Some(commit), shape, licence))
                    }
                    (None, Some(known)) => {
                        let mut shape = known.shape().map_err(wrong)?;
                        shape.window_tokens = shape.window_tokens.or(known.window_tokens);
                        Ok(facts(Origin::Catalog, None, None, shape, from_catalog))
                    }
                    (None, None) => Err(told(format!(
                        "it is neither in the cache nor in the catalog: fetch it first, with `loom model fetch {spec}`"
                    ))),
                }
            }
            _ => Err(ModelError::Unsupported {
                model: spec.to_string(),
                why: "it has no weights to tell of; name `bundled`, `local:DIR` or `hf:OWNER/REPO`".to_owned(),
            }),
        }
    }
}

/// How many tokens a sequence of the model is counted with.
pub(super) fn context(shape: &ModelShape) -> u64 {
    shape.window_tokens.unwrap_or(CONTEXT).min(CONTEXT) as u64
}

fn shape(folder: &Path) -> Result<ModelShape, LoadError> {
    let path = folder.join("config.json");
    let json = std::fs::read_to_string(&path)
        .map_err(|error| LoadError::Read { file: path.display().to_string(), why: error.to_string() })?;
    ModelShape::parse(&json)
}

/// The licence that the model's card names in its front matter.
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
    let card = std::fs::read_to_string(folder.join("README.md")).ok()?;
    let (front, _) = card.strip_prefix("---")?.split_once("\n---")?;
    let front: Front = serde_saphyr::from_str(front).ok()?;
    match front.license? {
        // The hub's word for a licence that is in no list.
        Named::One(name) if name == "other" => front.license_name.or(Some(name)),
        Named::One(name) => Some(name),
        Named::Many(names) => Some(names.join(" AND ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(card: &str, expected: Option<&str>) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("README.md"), card).unwrap();
        assert_eq!(licence(folder.path()).as_deref(), expected, "{card:?}");
    }

    #[test]
    fn the_licence_is_what_the_card_says_or_unknown() {
        check("---\nlicense: apache-2.0\ntags: [a]\n---\n# A model", Some("apache-2.0"));
        check("---\nlicense: other\nlicense_name: falcon-mamba-7b-license\n---\n", Some("falcon-mamba-7b-license"));
        check("---\nlicense: [mit, cc-by-4.0]\n---\n", Some("mit AND cc-by-4.0"));
        check("---\ntags: [a]\n---\nlicense: mit", None);
        check("# A model\nlicense: mit", None);
    }

    #[test]
    fn the_bundled_model_is_told_of_and_a_hosted_one_is_not() {
        let facts = Facts::of(&ModelSpec::Bundled, &HubOptions::default()).unwrap();
        assert_eq!((facts.origin, facts.shape.architecture.as_str()), (Origin::Program, "mamba"));
        assert!(facts.licence.unwrap().contains("CC-BY-4.0"));
        assert!(Facts::of(&ModelSpec::OpenAi("x".to_owned()), &HubOptions::default()).is_err());
    }
}
