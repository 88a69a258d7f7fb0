//! From a model's spec string to a model: opens every kind, shares what is opened twice, and builds fallback chains.

mod catalog;
mod chain;
mod echo;
mod facts;
mod gated;
mod scripted;
mod words;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

pub use self::catalog::{Known, catalog};
use self::chain::Chain;
use self::echo::Echo;
pub use self::facts::{Facts, Memory, Origin};
use self::gated::Gated;
use self::scripted::Scripted;
use crate::foundation::chat::{Embedder, LanguageModel, ModelChain, ModelError, ModelSpec};
use crate::foundation::gate::{Guard, Refusal};
use crate::inference::engine::{
    Budget, Device, Dtype, EngineOptions, LocalEmbedder, LocalModel, asks_for_the_date, available_memory,
};
use crate::inference::remote::hub::{self, HubOptions};
use crate::inference::remote::{self, RemoteOptions};

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
    /// How hosted models are asked.
    pub remote: RemoteOptions,
    /// How the hub is used.
    pub hub: HubOptions,
    /// How much memory each engine may use beside the weights.
    pub budget: Budget,
    /// How the matrices of local models are kept; as their files have them if `None`.
    pub dtype: Option<Dtype>,
    /// The same by role, each before `dtype`; see [`at`](Self::at).
    pub dtypes: Roles<Dtype>,
    /// Where the models of a role run, before `device`; see [`on`](Self::on).
    pub devices: Roles<Device>,
    /// Who is asked before each call of a model that is opened so; who holds permits of its own opens without.
    pub guard: Option<Arc<dyn Guard>>,
    opened: Arc<Mutex<HashMap<Identity, Arc<dyn LanguageModel>>>>,
}

/// What makes two models the same: their files, how their weights are kept and where, the chat template in place of their
/// own, and what day it is told, where it asks.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Identity {
    spec: ModelSpec,
    dtype: Option<Dtype>,
    device: Device,
    template: Option<String>,
    day: Day,
}

/// What day a chat template is told.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Day {
    /// It does not ask.
    Any,
    /// This one; that of opening if `None`.
    Told(Option<Timestamp>),
}

/// A setting of the roles of a run; `None` is as for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles<T> {
    /// The persona's model.
    pub persona: Option<T>,
    /// The other side's.
    pub interlocutor: Option<T>,
    /// The judge's.
    pub judge: Option<T>,
}

impl<T> Default for Roles<T> {
    fn default() -> Self {
        Self { persona: None, interlocutor: None, judge: None }
    }
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

/// The host that is reached to call a model, or to fetch it; `None` for one on this machine. Naming a hosted model is the
/// grant for its host.
pub fn host(spec: &ModelSpec) -> Option<String> {
    let of = |url: &str| {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let name = match authority.strip_prefix('[') {
            Some(address) => address.split(']').next(),
            None => authority.split(':').next(),
        };
        name.unwrap_or_default().to_ascii_lowercase()
    };
    let told = |variable: &str, own: &str| of(&std::env::var(variable).unwrap_or_else(|_| own.to_owned()));
    match spec {
        ModelSpec::OpenAi(_) => Some(told("OPENAI_BASE_URL", "https://api.openai.com/v1")),
        ModelSpec::Anthropic(_) => Some(told("ANTHROPIC_BASE_URL", "https://api.anthropic.com")),
        ModelSpec::OpenAiCompatible { url, .. } => Some(of(url)),
        ModelSpec::Hub { .. } => Some(told("HF_ENDPOINT", "https://huggingface.co")),
        ModelSpec::Bundled | ModelSpec::Echo | ModelSpec::Scripted(_) | ModelSpec::Local(_) => None,
    }
}

/// Opens a sentence embedder. Of `options` only `threads` and `guard` count; every call loads the model, so share what comes back.
///
/// # Errors
/// [`ModelError::Unavailable`] for a spec that names no folder with one.
pub fn open_embedder(spec: &ModelSpec, options: &OpenOptions) -> Result<Arc<dyn Embedder>, ModelError> {
    match spec {
        ModelSpec::Local(path) => {
            let model: Arc<dyn Embedder> = Arc::new(LocalEmbedder::from_dir(path, &options.engine())?);
            Ok(match &options.guard {
                None => model,
                Some(guard) => Arc::new(Gated::new(model, spec, guard)),
            })
        }
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

    /// These options with a guard before every model. Engines are still shared with those opened without.
    #[must_use]
    pub fn guarded(self, guard: Arc<dyn Guard>) -> Self {
        Self { guard: Some(guard), ..self }
    }

    /// These options with `dtype` where it is given: of a role, say. Engines are still shared.
    #[must_use]
    pub fn at(&self, dtype: Option<Dtype>) -> Self {
        Self { dtype: dtype.or(self.dtype), ..self.clone() }
    }

    /// These options with `device` where it is given: of a role, say. Engines are still shared.
    #[must_use]
    pub fn on(&self, device: Option<Device>) -> Self {
        Self { device: device.unwrap_or(self.device), ..self.clone() }
    }

    /// These options on another day: what a chat template that asks for the date is told. Engines are still shared where
    /// none does.
    #[must_use]
    pub fn dated(&self, now: Option<Timestamp>) -> Self {
        Self { now, ..self.clone() }
    }

    /// These options with a chat template in place of the models' own. A model with another template is another model,
    /// and is loaded for itself.
    #[must_use]
    pub fn with_template(&self, template: String) -> Self {
        Self { chat_template: Some(template), ..self.clone() }
    }

    /// One model of a chain. A fetched one was a matter of its host before it is a file here.
    fn one(&self, spec: &ModelSpec) -> Result<Arc<dyn LanguageModel>, ModelError> {
        if let (Some(guard), ModelSpec::Hub { .. }) = (&self.guard, spec) {
            let denied = |refusal: Refusal| ModelError::Denied { model: spec.to_string(), why: refusal.to_string() };
            guard.allow_call(&spec.to_string(), host(spec).as_deref(), 0).map_err(denied)?;
        }
        let model = self.shared(spec)?;
        Ok(match &self.guard {
            None => model,
            Some(guard) => Arc::new(Gated::new(model, spec, guard)),
        })
    }

    fn shared(&self, spec: &ModelSpec) -> Result<Arc<dyn LanguageModel>, ModelError> {
        // Held while a model is loaded, so that two askers do not load it twice.
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let (dtype, device, template) = (self.dtype, self.device, self.chat_template.clone());
        let undated = Identity { spec: identity(spec), dtype, device, template, day: Day::Any };
        let dated = Identity { day: Day::Told(self.now), ..undated.clone() };
        if let Some(model) = opened.get(&undated).or_else(|| opened.get(&dated)) {
            return Ok(Arc::clone(model));
        }
        let model = self.load(spec)?;
        // The same model on another day is kept by its users alone.
        opened.retain(|other, _| Identity { day: Day::Any, ..other.clone() } != undated);
        opened.insert(if is_dated(&*model) { dated } else { undated }, Arc::clone(&model));
        Ok(model)
    }

    fn engine(&self) -> EngineOptions {
        EngineOptions {
            threads: self.threads,
            device: self.device,
            chat_template: self.chat_template.clone(),
            now: self.now,
            budget: self.budget,
            dtype: self.dtype,
        }
    }

    fn load(&self, spec: &ModelSpec) -> Result<Arc<dyn LanguageModel>, ModelError> {
        Ok(match spec {
            ModelSpec::Echo => Arc::new(Echo::new()),
            ModelSpec::Scripted(path) => Arc::new(Scripted::open(path)?),
            ModelSpec::Bundled => Arc::new(LocalModel::bundled(&self.engine())?),
            ModelSpec::Local(path) => {
                self.roomy(spec, path)?;
                Arc::new(LocalModel::from_path(path, &self.engine())?)
            }
            ModelSpec::OpenAi(_) | ModelSpec::Anthropic(_) | ModelSpec::OpenAiCompatible { .. } => {
                remote::open(spec, &self.remote)?
            }
            ModelSpec::Hub { repo, revision } => {
                let fetched = hub::ready(repo, revision.as_deref(), &self.hub);
                let fetched = fetched
                    .map_err(|error| ModelError::Unavailable { model: spec.to_string(), why: error.to_string() })?;
                self.roomy(spec, &fetched.folder)?;
                Arc::new(LocalModel::named(&spec.to_string(), &fetched.folder, &self.engine())?)
            }
        })
    }

    /// Refuses a model that will not fit into memory, before any of its weights are read. One that this cannot be told of
    /// is let through: the engine says what is wrong with it.
    fn roomy(&self, spec: &ModelSpec, folder: &Path) -> Result<(), ModelError> {
        let (Ok(shape), Some(available)) = (facts::shape(folder), available_memory()) else { return Ok(()) };
        let dtype = self.dtype.or(shape.stored).unwrap_or(Dtype::F32);
        let fits = shape.fits(dtype, facts::context(&shape), available);
        fits.map_err(|error| ModelError::Unavailable { model: spec.to_string(), why: error.to_string() })
    }
}

/// Whether what `model` reads depends on [`OpenOptions::now`].
pub fn is_dated(model: &dyn LanguageModel) -> bool {
    let template = model.vocabulary().and_then(|vocabulary| vocabulary.special().chat_template);
    template.is_some_and(|template| asks_for_the_date(&template))
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
        assert!(refusal("openai-compatible:nowhere#m").contains("its base URL is no URL"));
        assert!(refusal("scripted:/nowhere.txt").contains("/nowhere.txt"));
        let both = refusal("openai-compatible:ftp://a#a,scripted:/nowhere.txt");
        assert!(both.contains("ftp://a#a") && both.contains("/nowhere.txt"), "{both}");
    }

    #[test]
    fn a_model_stands_at_the_host_that_its_address_names() {
        for (spec, at) in [
            ("openai-compatible:http://LocalHost:8000/v1#m", Some("localhost")),
            ("openai-compatible:https://a.example/v1#m", Some("a.example")),
            ("openai-compatible:http://[::1]:8000/v1#m", Some("::1")),
            ("bundled", None),
        ] {
            assert_eq!(host(&spec.parse().unwrap()).as_deref(), at, "{spec}");
        }
    }

    #[test]
    fn a_model_opened_twice_is_one_model() {
        let options = OpenOptions::default();
        let chain = "echo".parse().unwrap();
        let first = open(&chain, &options).unwrap();
        assert!(Arc::ptr_eq(&first, &open(&chain, &options.clone()).unwrap()));
    }

    #[test]
    fn another_template_or_day_is_another_model() {
        let plain = OpenOptions::default();
        let opened = |options: &OpenOptions| open(&"bundled".parse().unwrap(), options).unwrap();
        let digest = |options: &OpenOptions| opened(options).info().digest.unwrap();
        let at = |options: &OpenOptions, day: &str| OpenOptions { now: day.parse().ok(), ..options.clone() };
        let (monday, tuesday) = ("2026-03-02T00:00:00Z", "2026-03-03T00:00:00Z");
        let shout = plain.with_template("{{ messages[-1].content | upper }}".to_owned());
        assert_ne!(digest(&plain), digest(&shout));
        assert!(Arc::ptr_eq(&opened(&shout), &opened(&at(&shout, monday))));
        let dated = plain.with_template("{{ strftime_now('%d') }}{{ messages[-1].content }}".to_owned());
        assert_ne!(digest(&at(&dated, monday)), digest(&at(&dated, tuesday)));
        assert!(Arc::ptr_eq(&opened(&at(&dated, monday)), &opened(&at(&dated.clone(), monday))));
        assert!(Arc::ptr_eq(&opened(&plain), &opened(&at(&plain, monday))));
        // A field that was set by hand counts as well.
        let by_hand = OpenOptions { chat_template: shout.chat_template.clone(), ..plain.clone() };
        assert!(Arc::ptr_eq(&opened(&by_hand), &opened(&shout)));
    }
}
