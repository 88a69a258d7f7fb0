//! From a model's files to a model at work: everything that is decided once, when it is opened.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use serde::Deserialize;

use super::bundled::Manifest;
use super::config::{Config, standard_json};
use super::history::Memory;
use super::local::{EngineOptions, Shared};
use super::template::{ChatTemplate, TokenizerConfig};
use super::tokenizer::Tokenizer;
use super::weights::Weights;
use super::{Architecture, LoadError, thread};
use crate::foundation::base::Digest;
use crate::foundation::base::limits::THREADS_MAX;
use crate::foundation::chat::{ModelInfo, Sampling, TokenId};

/// A model's files, by what they say.
pub(super) struct Files<'a> {
    pub(super) name: String,
    pub(super) config: String,
    pub(super) generation_config: Option<String>,
    pub(super) tokenizer: String,
    pub(super) tokenizer_config: Option<String>,
    pub(super) template: Option<String>,
    pub(super) weights: Weights<'a>,
    pub(super) manifest: Manifest,
}

/// The parts of `config.json` and `generation_config.json` that are about writing.
#[derive(Default, Deserialize)]
struct Writing {
    eos_token_id: Option<Ids>,
    do_sample: Option<bool>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<usize>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
}

impl EngineOptions {
    /// How many threads do the arithmetic.
    pub(super) fn threads(&self) -> Result<usize, LoadError> {
        match self.threads {
            None => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
            Some(threads) if (1..=THREADS_MAX).contains(&threads) => Ok(threads),
            Some(threads) => {
                Err(LoadError::Start(format!("{threads} threads were asked for; it takes 1 to {THREADS_MAX}")))
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`eos_token_id` must be a token's id, or a list of them")]
enum Ids {
    One(TokenId),
    Many(Vec<TokenId>),
}

impl Files<'_> {
    /// Loads everything and starts the engine.
    pub(super) fn open(mut self, options: &EngineOptions) -> Result<Shared, LoadError> {
        self.config = standard_json(&self.config);
        let config = Config::parse(&self.config)?;
        self.start_on(options, config)
    }

    pub(super) fn start<A: Architecture>(
        mut self,
        options: &EngineOptions,
        load: impl FnOnce(&mut Weights<'_>) -> Result<A, LoadError>,
    ) -> Result<Shared, LoadError> {
        let tokenizer = Arc::new(Tokenizer::parse(&self.tokenizer)?);
        let tokenizer_config = match &self.tokenizer_config {
            Some(json) => TokenizerConfig::parse(json)?,
            None => TokenizerConfig::default(),
        };
        let now = options.now.unwrap_or_else(Timestamp::now);
        let own = self.template.as_deref().or_else(|| tokenizer_config.template());
        let own = options.chat_template.as_deref().or(own);
        let template = ChatTemplate::new(own, &tokenizer_config, now)?;

        let writing = Writing::parse("generation_config.json", self.generation_config.as_deref())?;
        let eos = Writing::parse("config.json", Some(&self.config))?.eos_token_id;
        let mut ends: Vec<_> =
            [&writing.eos_token_id, &eos].into_iter().flatten().flat_map(Ids::as_slice).copied().collect();
        ends.extend(tokenizer_config.eos().and_then(|token| tokenizer.id_of(token)));
        ends.sort_unstable();
        ends.dedup();
        let mut stops = template.stops.clone();
        stops.append(&mut self.manifest.stop);

        self.weights.ask(options.dtype);
        let model = load(&mut self.weights)?;
        let (layers, vocabulary, window) = (model.layers(), model.vocabulary(), model.window());
        let (dtype, place) = (self.weights.dtype(), model.place());
        let digest = {
            let (config, tokenizer) = (Digest::of(&self.config), Digest::of(&self.tokenizer));
            let (template, weights) = (template.identity(options.now), self.weights.finish()?);
            Digest::of(format!(
                "config {config}\ntokenizer {tokenizer}\ntemplate {template}\nends {ends:?} {stops:?}\nweights {weights}\n"
            ))
        };
        let engine = thread::start(model, digest, options.threads()?, options.budget)?;
        let sampling = self.manifest.sampling.take().unwrap_or_else(|| writing.sampling());
        let info = ModelInfo {
            name: self.name,
            digest: Some(digest),
            dtype: dtype.map(|dtype| dtype.to_string()),
            device: Some(place),
            template: own.map(Digest::of),
            layers: Some(layers),
            vocabulary: Some(vocabulary),
            window_tokens: self.manifest.window_tokens.or(window),
            prompt_tokens_max: self.manifest.prompt_tokens_max,
            logprobs: true,
            delta: A::DELTA,
            sampling: Some(Sampling { stop: stops.clone(), ..sampling }),
        };
        Ok(Shared {
            info,
            window,
            tokenizer,
            template,
            memory: Memory::default(),
            ends: ends.into(),
            stops,
            engine,
            keys: AtomicU64::new(0),
        })
    }
}

impl Writing {
    fn parse(file: &str, json: Option<&str>) -> Result<Self, LoadError> {
        json.map_or_else(
            || Ok(Self::default()),
            |json| serde_json::from_str(json).map_err(|error| LoadError::malformed(file, error)),
        )
    }

    /// The model's own way to sample; where it says nothing, ours.
    fn sampling(&self) -> Sampling {
        let ours = Sampling::default();
        Sampling {
            temperature: if self.do_sample == Some(false) { 0.0 } else { self.temperature.unwrap_or(ours.temperature) },
            top_p: self.top_p.unwrap_or(ours.top_p),
            top_k: self.top_k.filter(|&k| k > 0).or(ours.top_k),
            min_p: self.min_p.unwrap_or(ours.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(ours.repetition_penalty),
            ..ours
        }
    }
}

impl Ids {
    fn as_slice(&self) -> &[TokenId] {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }
}
