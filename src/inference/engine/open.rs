//! Opens a model: from the embedded files, from a folder, or from a GGUF file.

use std::path::Path;

use serde::Deserialize;

use super::bundled::{self, Manifest};
use super::candle;
use super::error::LoadError;
use super::family::ModelDescription;
use super::gguf::{Gguf, Tensor};
use super::launch::{Launch, ModelFiles};
use super::models::{gguf_format, parse_language_model, standard_json};
use super::options::{EngineOptions, Provider};
use super::shared::Shared;
use super::weights::{Weights, read_text};

/// The model that is embedded in the program.
pub(super) fn bundled(name: &str, options: &EngineOptions) -> Result<Shared, LoadError> {
    let files = ModelFiles {
        name: name.to_owned(),
        config: standard_json(bundled::CONFIG),
        generation_config: Some(bundled::GENERATION_CONFIG.to_owned()),
        tokenizer: bundled::TOKENIZER.to_owned(),
        tokenizer_config: Some(bundled::TOKENIZER_CONFIG.to_owned()),
        template: None,
        weights: Weights::from_bytes(bundled::WEIGHTS)?,
        manifest: bundled::manifest()?,
    };
    open(files, options)
}

/// A folder with Hugging Face's files.
pub(super) fn folder(name: &str, path: &Path, options: &EngineOptions) -> Result<Shared, LoadError> {
    let needed = |file: &str| read_text(&path.join(file));
    let maybe = |file: &str| if path.join(file).is_file() { needed(file).map(Some) } else { Ok(None) };
    let files = ModelFiles {
        name: name.to_owned(),
        config: standard_json(&needed("config.json")?),
        generation_config: maybe("generation_config.json")?,
        tokenizer: needed("tokenizer.json")?,
        tokenizer_config: maybe("tokenizer_config.json")?,
        template: match maybe("chat_template.jinja")? {
            Some(template) => Some(template),
            None => maybe(TEMPLATE_JSON)?.map(|json| template_in(&json)).transpose()?,
        },
        weights: Weights::from_dir(path)?,
        manifest: Manifest::default(),
    };
    open(files, options)
}

/// Where the files of models that also read images have their template.
const TEMPLATE_JSON: &str = "chat_template.json";

/// The template in `chat_template.json`.
fn template_in(json: &str) -> Result<String, LoadError> {
    #[derive(Deserialize)]
    struct TemplateFile {
        chat_template: String,
    }
    let file: TemplateFile = serde_json::from_str(json).map_err(|error| LoadError::malformed(TEMPLATE_JSON, error))?;
    Ok(file.chat_template)
}

/// A GGUF file.
pub(super) fn gguf(name: &str, path: &Path, options: &EngineOptions) -> Result<Shared, LoadError> {
    if options.provider == Provider::Candle {
        let why = "candle reads folders in Hugging Face's layout here; open a GGUF file as `local:FILE`";
        return Err(LoadError::malformed(path.display(), why));
    }
    let (gguf, file) = Gguf::open(path)?;
    let ConvertedGguf { config, description, tensors } = convert(&gguf)?;
    let files = ModelFiles {
        name: name.to_owned(),
        generation_config: Some(gguf.generation_config()?),
        tokenizer: gguf.tokenizer()?,
        tokenizer_config: Some(gguf.tokenizer_config()?),
        template: None,
        weights: Weights::from_gguf(&path.display().to_string(), file, tensors)?,
        manifest: Manifest::default(),
        config,
    };
    description.launch(Launch { files, options })
}

/// A GGUF file as a folder in Hugging Face's layout describes it.
pub(super) struct ConvertedGguf {
    /// The text of its `config.json`.
    pub(super) config: String,
    pub(super) description: Box<dyn ModelDescription>,
    /// Its tensors under Hugging Face's names.
    pub(super) tensors: Vec<Tensor>,
}

/// Converts the header of a GGUF file.
pub(super) fn convert(gguf: &Gguf) -> Result<ConvertedGguf, LoadError> {
    let (model_type, format) = gguf_format(gguf.architecture()?)?;
    let config = gguf.config(model_type, format.config)?;
    let description = parse_language_model(&config)?;
    let tensors = gguf.tensors(&description.gguf_names()?, format.interleaved_rotary)?;
    Ok(ConvertedGguf { config, description, tensors })
}

fn open(files: ModelFiles<'_>, options: &EngineOptions) -> Result<Shared, LoadError> {
    let description: Box<dyn ModelDescription> = match options.provider {
        Provider::Native => parse_language_model(&files.config)?,
        Provider::Candle => Box::new(candle::parse(&files.config)?),
    };
    description.launch(Launch { files, options })
}
