//! The description of a model family: how its `config.json` and its GGUF keys become the dimensions of a network. A family
//! is one file in `models/` and one entry of the registry in `models.rs`.

use super::error::LoadError;
use super::gguf::Gguf;
use super::gguf::config::ConfigFields;
use super::gguf::names::GgufNames;
use super::launch::{Launch, Launchable};
use super::network::HasSize;
use super::shared::Shared;

/// A model family.
pub(super) struct Family {
    /// Its `model_type` in `config.json`.
    pub(super) model_type: &'static str,
    /// Parses a `config.json`.
    pub(super) parse: fn(&str) -> Result<Box<dyn ModelDescription>, LoadError>,
    /// How GGUF files store it, if they are supported.
    pub(super) gguf: Option<GgufFormat>,
}

/// How GGUF files store a family. Names of tensors follow from the list of tensors.
pub(super) struct GgufFormat {
    /// Its `general.architecture`.
    pub(super) architecture: &'static str,
    /// Converts keys to the family's fields of `config.json`.
    pub(super) config: fn(&Gguf, &mut ConfigFields) -> Result<(), LoadError>,
    /// Whether llama.cpp's converter interleaves the rows of rotary heads.
    pub(super) interleaved_rotary: bool,
}

/// One language model, by its configuration: everything that is known without its weights.
pub(super) trait ModelDescription: HasSize {
    /// Names of the tensors in GGUF.
    fn gguf_names(&self) -> Result<GgufNames, LoadError>;

    /// Loads the weights and starts the engine.
    fn launch(self: Box<Self>, launch: Launch<'_, '_>) -> Result<Shared, LoadError>;
}

/// The description of a model by its network's dimensions.
pub(super) fn boxed<N: Launchable>(config: N) -> Box<dyn ModelDescription> {
    Box::new(config)
}

impl<N: Launchable> ModelDescription for N {
    fn gguf_names(&self) -> Result<GgufNames, LoadError> {
        let mut names = GgufNames::default();
        self.list(&mut names)?;
        Ok(names)
    }

    fn launch(self: Box<Self>, launch: Launch<'_, '_>) -> Result<Shared, LoadError> {
        launch.run(*self)
    }
}
