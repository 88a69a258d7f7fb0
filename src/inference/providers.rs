//! Opens models by their spec string. Models opened twice share one engine; a list of specs becomes a fallback chain.

mod allowed_hosts;
mod catalog;
mod chain;
mod echo;
mod facts;
mod guarded;
mod scripted;
mod fixed_reply;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

pub use self::allowed_hosts::{AllowedHosts, AskForHost, server};
pub use self::catalog::{CatalogEntry, catalog, similar_spec};
use self::chain::FallbackChain;
use self::echo::Echo;
pub use self::facts::{FactsSource, ModelFacts, WeightMemory};
use self::guarded::GuardedModel;
use self::scripted::Scripted;
use crate::foundation::chat::{Embedder, LanguageModel, ModelChain, ModelError, ModelSpec, Thinking};
use crate::foundation::gate::{CallGuard, ModelCall, Refusal};
use crate::inference::engine::{
    Budget, Device, Dtype, EngineOptions, LocalEmbedder, LocalModel, Provider, asks_for_the_date, available_memory,
};
use crate::inference::remote::hub::{self, HubOptions};
use crate::inference::remote::{self, RemoteOptions};

/// How models are opened. Clones of one value share their engines: a model is loaded once, for all roles and rollouts.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// Threads of a local engine; one per core if `None`.
    pub threads: Option<usize>,
    /// The device of local models; embedders always run on the CPU.
    pub device: Device,
    /// The text of a chat template that replaces the model's own.
    pub chat_template: Option<String>,
    /// The date passed to a chat template that uses it; the time of opening if `None`.
    pub now: Option<Timestamp>,
    /// Timeouts, retries and limits of hosted models.
    pub remote: RemoteOptions,
    /// The servers of `openai-compatible` models that the user named. Others are refused.
    pub hosts: AllowedHosts,
    /// Address, cache and records of the Hugging Face hub.
    pub hub: HubOptions,
    /// Memory that each engine may use in addition to the weights.
    pub budget: Budget,
    /// The dtype of local models' matrices; the files' own if `None`.
    pub dtype: Option<Dtype>,
    /// Dtypes by role; each overrides `dtype`. See [`with_dtype`](Self::with_dtype).
    pub dtypes: PerRole<Dtype>,
    /// Devices by role; each overrides `device`. See [`with_device`](Self::with_device).
    pub devices: PerRole<Device>,
    /// How models think before they answer, and what else their chat templates are told. Engines are still shared.
    pub thinking: Thinking,
    /// Checked before each call of a model opened with these options. Without a guard, calls are not checked.
    pub guard: Option<Arc<dyn CallGuard>>,
    opened: Arc<Mutex<HashMap<ModelKey, Arc<dyn LanguageModel>>>>,
}

/// The key of the shared models: files, dtype, device, chat template, and the date where the template uses it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ModelKey {
    spec: ModelSpec,
    dtype: Option<Dtype>,
    device: Device,
    template: Option<String>,
    day: TemplateDate,
}

/// The date passed to a chat template.
#[derive(Clone, PartialEq, Eq, Hash)]
enum TemplateDate {
    /// The template does not use the date.
    Unused,
    /// This date; the time of opening if `None`.
    Given(Option<Timestamp>),
}

/// A setting by role of a run; `None` means the general setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerRole<T> {
    /// The persona's model.
    pub persona: Option<T>,
    /// The interlocutor's model.
    pub interlocutor: Option<T>,
    /// The judge's model.
    pub judge: Option<T>,
}

impl<T> Default for PerRole<T> {
    fn default() -> Self {
        Self { persona: None, interlocutor: None, judge: None }
    }
}

/// Opens the models of `chain`. The first one that replies is used; every fallback is recorded in
/// [`Completion::fallbacks`](crate::foundation::chat::Completion::fallbacks).
///
/// # Errors
/// [`ModelError::Unavailable`] when no model of the chain can be opened, and [`ModelError::Denied`] when one is on a server
/// that is not in [`OpenOptions::hosts`].
pub fn open(chain: &ModelChain, options: &OpenOptions) -> Result<Arc<dyn LanguageModel>, ModelError> {
    for spec in chain.specs() {
        let denied = |why| ModelError::Denied { model: spec.to_string(), why };
        options.hosts.check(spec).map_err(denied)?;
    }
    let mut specs = chain.specs();
    if let (Some(only), None) = (specs.next(), specs.next()) {
        return options.open_one(only);
    }
    let tried = chain.specs().map(|spec| (spec.to_string(), options.open_one(spec)));
    Ok(Arc::new(FallbackChain::new(&chain.to_string(), tried)?))
}

/// The host that a call or a download of the model connects to; `None` for a model on this machine. Naming a hosted
/// model grants access to its host.
pub fn host(spec: &ModelSpec) -> Option<String> {
    // Without brackets around an IPv6 address.
    let of = |url: &str| {
        let host = remote::server_url(url).ok().and_then(|url| url.host_str().map(str::to_owned));
        host.unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned()
    };
    let from_variable = |variable: &str, own: &str| of(&std::env::var(variable).unwrap_or_else(|_| own.to_owned()));
    match spec {
        ModelSpec::OpenAi(_) => Some(from_variable("OPENAI_BASE_URL", "https://api.openai.com/v1")),
        ModelSpec::Anthropic(_) => Some(from_variable("ANTHROPIC_BASE_URL", "https://api.anthropic.com")),
        ModelSpec::OpenAiCompatible { url, .. } => Some(of(url)),
        ModelSpec::Hub { .. } => Some(from_variable("HF_ENDPOINT", "https://huggingface.co")),
        ModelSpec::Candle(inner) => host(inner),
        ModelSpec::Bundled | ModelSpec::Echo | ModelSpec::Scripted(_) | ModelSpec::Local(_) => None,
    }
}

/// Opens a sentence embedder. Uses only `threads` and `guard` of `options`. Every call loads the model again, so share
/// the result.
///
/// # Errors
/// [`ModelError::Unavailable`] if the spec is not the folder of a sentence embedder.
pub fn open_embedder(spec: &ModelSpec, options: &OpenOptions) -> Result<Arc<dyn Embedder>, ModelError> {
    match spec {
        ModelSpec::Local(path) => {
            let model: Arc<dyn Embedder> = Arc::new(LocalEmbedder::from_dir(path, &options.engine(Provider::Native))?);
            Ok(match &options.guard {
                None => model,
                Some(guard) => Arc::new(GuardedModel::new(model, spec, guard)),
            })
        }
        other => {
            let why = "it is not a sentence embedder; name the folder of one, such as all-MiniLM-L6-v2: `local:DIR`";
            Err(ModelError::Unavailable { model: other.to_string(), why: why.to_owned() })
        }
    }
}

impl OpenOptions {
    /// Options of which only `threads` and `chat_template` are set.
    pub fn new(threads: Option<usize>, chat_template: Option<String>) -> Self {
        Self { threads, chat_template, ..Self::default() }
    }

    /// These options with a guard that is checked before every call. Engines are still shared with unguarded options.
    #[must_use]
    pub fn with_guard(self, guard: Arc<dyn CallGuard>) -> Self {
        Self { guard: Some(guard), ..self }
    }

    /// These options, with the servers of a chain that the user named added to [`hosts`](Self::hosts).
    #[must_use]
    pub fn naming(mut self, chain: &ModelChain) -> Self {
        self.hosts.allow_chain(chain);
        self
    }

    /// These options with `dtype`, if given. Engines are still shared.
    #[must_use]
    pub fn with_dtype(&self, dtype: Option<Dtype>) -> Self {
        Self { dtype: dtype.or(self.dtype), ..self.clone() }
    }

    /// These options with `device`, if given. Engines are still shared.
    #[must_use]
    pub fn with_device(&self, device: Option<Device>) -> Self {
        Self { device: device.unwrap_or(self.device), ..self.clone() }
    }

    /// These options with other settings of thinking. Engines are still shared.
    #[must_use]
    pub fn with_thinking(&self, thinking: Thinking) -> Self {
        Self { thinking, ..self.clone() }
    }

    /// These options with another date for chat templates. Engines are shared where the template does not use the date.
    #[must_use]
    pub fn with_date(&self, now: Option<Timestamp>) -> Self {
        Self { now, ..self.clone() }
    }

    /// These options with a chat template that replaces the models' own. A model with another template is loaded
    /// separately.
    #[must_use]
    pub fn with_template(&self, template: String) -> Self {
        Self { chat_template: Some(template), ..self.clone() }
    }

    /// Opens one model of a chain. Downloading from the hub is checked before the download begins.
    fn open_one(&self, spec: &ModelSpec) -> Result<Arc<dyn LanguageModel>, ModelError> {
        if let (Some(guard), (ModelSpec::Hub { .. }, _)) = (&self.guard, files(spec)) {
            let denied = |refusal: Refusal| ModelError::Denied { model: spec.to_string(), why: refusal.to_string() };
            let (model, host) = (spec.to_string(), host(spec));
            let download = ModelCall { model: &model, host: host.as_deref(), reads: 0, generates: 0 };
            guard.permit_call(&download).map_err(denied)?;
        }
        let mut model = self.shared(spec)?;
        if !self.thinking.is_default() {
            model = model.with_thinking(&self.thinking)?;
        }
        Ok(match &self.guard {
            None => model,
            Some(guard) => Arc::new(GuardedModel::new(model, spec, guard)),
        })
    }

    fn shared(&self, spec: &ModelSpec) -> Result<Arc<dyn LanguageModel>, ModelError> {
        // The lock is held while a model is loaded, so that two callers do not load it twice.
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let (dtype, device, template) = (self.dtype, self.device, self.chat_template.clone());
        let undated = ModelKey { spec: identity(spec), dtype, device, template, day: TemplateDate::Unused };
        let dated = ModelKey { day: TemplateDate::Given(self.now), ..undated.clone() };
        if let Some(model) = opened.get(&undated).or_else(|| opened.get(&dated)) {
            return Ok(Arc::clone(model));
        }
        let model = self.load(spec)?;
        // Keep only the newest date of a model in the table; callers of an older one still hold it.
        opened.retain(|other, _| ModelKey { day: TemplateDate::Unused, ..other.clone() } != undated);
        opened.insert(if template_uses_date(&*model) { dated } else { undated }, Arc::clone(&model));
        Ok(model)
    }

    fn engine(&self, provider: Provider) -> EngineOptions {
        EngineOptions {
            threads: self.threads,
            device: self.device,
            chat_template: self.chat_template.clone(),
            now: self.now,
            budget: self.budget,
            dtype: self.dtype,
            provider,
        }
    }

    fn load(&self, spec: &ModelSpec) -> Result<Arc<dyn LanguageModel>, ModelError> {
        let (files, provider) = files(spec);
        let engine = self.engine(provider);
        Ok(match files {
            ModelSpec::Candle(_) => {
                let why = "`candle:` is given twice".to_owned();
                return Err(ModelError::Unavailable { model: spec.to_string(), why });
            }
            ModelSpec::Echo => Arc::new(Echo::new()),
            ModelSpec::Scripted(path) => Arc::new(Scripted::open(path)?),
            ModelSpec::Bundled => Arc::new(LocalModel::bundled(&engine)?),
            ModelSpec::Local(path) => {
                self.check_memory(spec, path, provider)?;
                Arc::new(LocalModel::from_path(path, &engine)?)
            }
            ModelSpec::OpenAi(_) | ModelSpec::Anthropic(_) | ModelSpec::OpenAiCompatible { .. } => {
                remote::open(spec, &self.remote)?
            }
            ModelSpec::Hub { repo, revision } => {
                let fetched = hub::cached_or_fetch(repo, revision.as_deref(), &self.hub);
                let fetched = fetched
                    .map_err(|error| ModelError::Unavailable { model: spec.to_string(), why: error.to_string() })?;
                self.check_memory(spec, &fetched.folder, provider)?;
                Arc::new(LocalModel::named(&spec.to_string(), &fetched.folder, &engine)?)
            }
        })
    }

    /// Rejects a model that does not fit into memory, before its weights are read. A model of unknown size is accepted;
    /// the engine reports what is wrong with it.
    fn check_memory(&self, spec: &ModelSpec, folder: &Path, provider: Provider) -> Result<(), ModelError> {
        let (Ok(shape), Some(available)) = (facts::shape(folder, provider), available_memory()) else { return Ok(()) };
        let dtype = self.dtype.or(shape.stored).unwrap_or(Dtype::F32);
        let fits = shape.fits(dtype, facts::context(&shape), available);
        fits.map_err(|error| ModelError::Unavailable { model: spec.to_string(), why: error.to_string() })
    }
}

/// Whose files a model has, and whose network.
fn files(spec: &ModelSpec) -> (&ModelSpec, Provider) {
    match spec {
        ModelSpec::Candle(inner) => (inner, Provider::Candle),
        spec => (spec, Provider::Native),
    }
}

/// Whether the model's chat template uses the date ([`OpenOptions::now`]).
pub fn template_uses_date(model: &dyn LanguageModel) -> bool {
    let template = model.vocabulary().and_then(|vocabulary| vocabulary.special().chat_template);
    template.is_some_and(|template| asks_for_the_date(&template))
}

/// Resolves paths, so that two names of one file give one model.
fn identity(spec: &ModelSpec) -> ModelSpec {
    let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    match spec {
        ModelSpec::Local(path) => ModelSpec::Local(real(path)),
        ModelSpec::Scripted(path) => ModelSpec::Scripted(real(path)),
        ModelSpec::Candle(inner) => ModelSpec::Candle(Box::new(identity(inner))),
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
    fn errors_name_the_model_that_could_not_be_opened() {
        assert!(refusal("openai-compatible:nowhere#m").contains("its base URL is not a URL"));
        assert!(refusal("scripted:/nowhere.txt").contains("/nowhere.txt"));
        let both = refusal("openai-compatible:ftp://a#a,scripted:/nowhere.txt");
        assert!(both.contains("ftp://a#a") && both.contains("/nowhere.txt"), "{both}");
    }

    #[test]
    fn the_host_is_taken_from_the_address() {
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
