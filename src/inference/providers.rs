//! From a model's spec string to a model: opens every kind, shares what is opened twice, and builds fallback chains.

mod chain;
mod echo;
mod scripted;
mod words;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

use self::chain::Chain;
use self::echo::Echo;
use self::scripted::Scripted;
use crate::foundation::chat::{Embedder, LanguageModel, ModelChain, ModelError, ModelSpec};
use crate::inference::engine::{Device, EngineOptions, LocalEmbedder, LocalModel};

/// How models are opened. Models that are opened with clones of one value share their engines: a model is loaded once,
/// however many roles and rollouts use it.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// Threads of an engine inside the process; as many as there are cores if `None`.
    pub threads: Option<usize>,
    /// Where models inside the process run; an embedder stays on the CPU.
    pub device: Device,
    /// The text of a chat template that replaces the model's own.
    pub chat_template: Option<String>,
    /// What a chat template that asks for the date is told; the time of opening if `None`.
    pub now: Option<Timestamp>,
    opened: Arc<Mutex<HashMap<ModelSpec, Arc<dyn LanguageModel>>>>,
}

/// Opens the models of `chain`: the first that answers does, and every fallback is recorded in
/// [`Completion::fallbacks`](crate::foundation::chat::Completion::fallbacks).
///
/// # Errors
/// [`ModelError::Unavailable`] when no model of the chain can be opened.
pub fn open(chain: &ModelChain, options: &OpenOptions) -> Result<Arc<dyn LanguageModel>, ModelError> {
    let mut specs = chain.specs();
    if let (Some(only), None) = (specs.next(), specs.next()) {
        return options.one(only);
    }
    let tried = chain.specs().map(|spec| (spec.to_string(), options.one(spec)));
    Ok(Arc::new(Chain::new(&chain.to_string(), tried)?))
}

/// Opens a sentence embedder. Of `options` only `threads` counts; every call loads the model, so share what comes back.
///
/// # Errors
/// [`ModelError::Unavailable`] for a spec that names no folder with one.
pub fn open_embedder(spec: &ModelSpec, options: &OpenOptions) -> Result<Arc<dyn Embedder>, ModelError> {
    match spec {
        ModelSpec::Local(path) => Ok(Arc::new(LocalEmbedder::from_dir(path, &options.engine())?)),
        other => {
            let why = "it is no sentence embedder; name the folder of one, such as all-MiniLM-L6-v2: `local:DIR`";
            Err(ModelError::Unavailable { model: other.to_string(), why: why.to_owned() })
        }
    }
}

impl OpenOptions {
    /// Options of which only `threads` and `chat_template` are set.
    pub fn new(threads: Option<usize>, chat_template: Option<String>) -> Self {
        Self { threads, chat_template, ..Self::default() }
    }

    fn one(&self, spec: &ModelSpec) -> Result<Arc<dyn LanguageModel>, ModelError> {
        // Held while a model is loaded, so that two askers do not load it twice.
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let key = identity(spec);
        if let Some(model) = opened.get(&key) {
            return Ok(Arc::clone(model));
        }
        let model = self.load(spec)?;
        opened.insert(key, Arc::clone(&model));
        Ok(model)
    }

    fn engine(&self) -> EngineOptions {
        let chat_template = self.chat_template.clone();
        EngineOptions { threads: self.threads, device: self.device, chat_template, now: self.now }
    }

    fn load(&self, spec: &ModelSpec) -> Result<Arc<dyn LanguageModel>, ModelError> {
        Ok(match spec {
            ModelSpec::Echo => Arc::new(Echo::new()),
            ModelSpec::Scripted(path) => Arc::new(Scripted::open(path)?),
            ModelSpec::Bundled => Arc::new(LocalModel::bundled(&self.engine())?),
            ModelSpec::Local(path) => Arc::new(LocalModel::from_dir(path, &self.engine())?),
            ModelSpec::Hub { .. }
            | ModelSpec::OpenAi(_)
            | ModelSpec::Anthropic(_)
            | ModelSpec::OpenAiCompatible { .. } => return Err(not_built(spec)),
        })
    }
}

/// The same files under two names are one model.
fn identity(spec: &ModelSpec) -> ModelSpec {
    let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    match spec {
        ModelSpec::Local(path) => ModelSpec::Local(real(path)),
        ModelSpec::Scripted(path) => ModelSpec::Scripted(real(path)),
        other => other.clone(),
    }
}

fn not_built(spec: &ModelSpec) -> ModelError {
    let why = match spec {
        ModelSpec::Hub { repo, .. } => format!(
            "models are not fetched from the Hugging Face hub by this version; download https://huggingface.co/{repo} \
             and name the folder: `local:DIR`"
        ),
        _ => "hosted models cannot be reached by this version; use `bundled`, `local:DIR`, `scripted:FILE` or `echo`"
            .to_owned(),
    };
    ModelError::Unavailable { model: spec.to_string(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(spec: &str) -> String {
        match open(&spec.parse().unwrap(), &OpenOptions::default()) {
            Ok(model) => panic!("{} was opened", model.info().name),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_cannot_be_opened_says_what_can() {
        assert!(refusal("openai/gpt-4.1").contains("use `bundled`, `local:DIR`"));
        assert!(refusal("hf:state-spaces/mamba-130m-hf").contains("huggingface.co/state-spaces/mamba-130m-hf"));
        assert!(refusal("scripted:/nowhere.txt").contains("/nowhere.txt"));
        let both = refusal("openai/a,scripted:/nowhere.txt");
        assert!(both.contains("openai/a") && both.contains("/nowhere.txt"), "{both}");
    }

    #[test]
    fn a_model_opened_twice_is_one_model() {
        let options = OpenOptions::default();
        let chain = "echo".parse().unwrap();
        let first = open(&chain, &options).unwrap();
        assert!(Arc::ptr_eq(&first, &open(&chain, &options.clone()).unwrap()));
    }
}
