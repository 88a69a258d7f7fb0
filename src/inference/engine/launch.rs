//! Starts a model: loads its weights onto the requested device, and everything else that its files contain.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use loom_kernels::Dtype;
use serde::Deserialize;

use super::architecture::Architecture;
use super::bundled::Manifest;
#[cfg(feature = "cuda")]
use super::device::Device;
use super::error::LoadError;
#[cfg(feature = "cuda")]
use super::gpu::layers::GpuNetworkConfig;
use super::history::HistoryCache;
#[cfg(not(feature = "cuda"))]
use super::network::NetworkConfig;
use super::network::Tensors;
use super::options::EngineOptions;
use super::shared::Shared;
use super::template::{ChatTemplate, TokenizerConfig};
use super::thread;
use super::tokenizer::Tokenizer;
use super::weights::Weights;
use crate::foundation::base::Digest;
use crate::foundation::chat::{ModelInfo, Sampling, Thinking, TokenId};

/// A network that every device of this build can be asked for.
#[cfg(not(feature = "cuda"))]
pub(super) trait Launchable: NetworkConfig {}
#[cfg(not(feature = "cuda"))]
impl<N: NetworkConfig> Launchable for N {}
#[cfg(feature = "cuda")]
pub(super) trait Launchable: GpuNetworkConfig {}
#[cfg(feature = "cuda")]
impl<N: GpuNetworkConfig> Launchable for N {}

/// The contents of a model's files.
pub(super) struct ModelFiles<'a> {
    pub(super) name: String,
    pub(super) config: String,
    pub(super) generation_config: Option<String>,
    pub(super) tokenizer: String,
    pub(super) tokenizer_config: Option<String>,
    pub(super) template: Option<String>,
    pub(super) weights: Weights<'a>,
    pub(super) manifest: Manifest,
}

/// Settings for generation in `config.json` and `generation_config.json`.
#[derive(Default, Deserialize)]
struct GenerationConfig {
    eos_token_id: Option<EndTokenIds>,
    do_sample: Option<bool>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<usize>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`eos_token_id` must be a token's id, or a list of them")]
enum EndTokenIds {
    One(TokenId),
    Many(Vec<TokenId>),
}

/// A model about to be loaded.
pub(super) struct Launch<'a, 'o> {
    pub(super) files: ModelFiles<'a>,
    pub(super) options: &'o EngineOptions,
}

impl Launch<'_, '_> {
    /// Loads and starts a network on the requested device.
    pub(super) fn run<N: Launchable>(self, config: N) -> Result<Shared, LoadError> {
        let Self { files, options } = self;
        #[cfg(feature = "cuda")]
        if let Device::Cuda(ordinal) = options.device {
            let device = super::gpu::network::GpuDevice::open(ordinal)?;
            return files.start(options, |weights| device.load(config, weights));
        }
        options.device.must_be_cpu("a model")?;
        files.start(options, |weights| {
            let Tensors { embedding_and_head, layers } = config.load(weights)?;
            Ok(config.network(embedding_and_head, layers))
        })
    }

    /// Loads and starts a network of candle, which `load` makes of the weights.
    pub(super) fn run_candle<A: Architecture>(
        self,
        load: impl FnOnce(&mut Weights<'_>) -> Result<A, LoadError>,
    ) -> Result<Shared, LoadError> {
        let Self { files, options } = self;
        options.device.must_be_cpu("a model through candle")?;
        if let Some(dtype) = options.dtype.filter(|dtype| *dtype != Dtype::F32) {
            return Err(LoadError::Start(format!("candle reads weights as f32 here, not as {dtype}")));
        }
        files.start(options, load)
    }
}

impl ModelFiles<'_> {
    fn start<A: Architecture>(
        mut self,
        options: &EngineOptions,
        load: impl FnOnce(&mut Weights<'_>) -> Result<A, LoadError>,
    ) -> Result<Shared, LoadError> {
        let mut tokenizer = Tokenizer::parse(&self.tokenizer)?;
        let tokenizer_config = match &self.tokenizer_config {
            Some(json) => TokenizerConfig::parse(json)?,
            None => TokenizerConfig::default(),
        };
        let (add_bos, bos) = tokenizer_config.add_bos();
        tokenizer.set_leading(add_bos, bos)?;
        let tokenizer = Arc::new(tokenizer);
        let now = options.now.unwrap_or_else(Timestamp::now);
        let own = self.template.as_deref().or_else(|| tokenizer_config.template());
        let own = options.chat_template.as_deref().or(own);
        let template = ChatTemplate::new(own, &tokenizer_config, now)?;

        let malformed = |why| LoadError::malformed("chat template", why);
        let thinking = template.thinking_info(&template.settings(&Thinking::default()).map_err(malformed)?);

        let generation = GenerationConfig::parse("generation_config.json", self.generation_config.as_deref())?;
        let eos = GenerationConfig::parse("config.json", Some(&self.config))?.eos_token_id;
        let mut end_tokens: Vec<_> =
            [&generation.eos_token_id, &eos].into_iter().flatten().flat_map(EndTokenIds::as_slice).copied().collect();
        end_tokens.extend(tokenizer_config.eos().and_then(|token| tokenizer.id_of(token)));
        end_tokens.sort_unstable();
        end_tokens.dedup();
        let mut stops = template.stops.clone();
        stops.append(&mut self.manifest.stop);

        self.weights.set_dtype(options.dtype);
        let model = load(&mut self.weights)?;
        let (layers, vocabulary, window) = (model.layers(), model.vocabulary(), model.window());
        let delta = model.has_delta();
        let (device_name, provider) = (model.device_name(), model.provider());
        let dtype = self.weights.dtype().or(provider.map(|_| Dtype::F32));
        let digest = {
            let (config, tokenizer) = (Digest::of(&self.config), Digest::of(&self.tokenizer));
            let (template, weights) = (template.identity(options.now), self.weights.finish()?);
            let provider = provider.map(|provider| format!("provider {provider}\n")).unwrap_or_default();
            Digest::of(format!(
                "config {config}\ntokenizer {tokenizer}\ntemplate {template}\nends {end_tokens:?} {stops:?}\nweights {weights}\n{provider}"
            ))
        };
        let engine = thread::start(model, digest, options.threads()?, options.budget)?;
        let sampling = self.manifest.sampling.take().unwrap_or_else(|| generation.sampling());
        let info = ModelInfo {
            name: self.name,
            digest: Some(digest),
            dtype: dtype.map(|dtype| dtype.to_string()),
            device: Some(device_name),
            provider: provider.map(str::to_owned),
            template: own.map(Digest::of),
            layers: Some(layers),
            vocabulary: Some(vocabulary),
            window_tokens: self.manifest.window_tokens.or(window),
            prompt_tokens_max: self.manifest.prompt_tokens_max,
            logprobs: true,
            delta,
            sampling: Some(Sampling { stop: stops.clone(), ..sampling }),
            thinking,
            thinking_settings: Thinking::default(),
        };
        Ok(Shared {
            info,
            window,
            tokenizer,
            template,
            history_cache: HistoryCache::default(),
            end_tokens: end_tokens.into(),
            stops,
            engine,
            keys: AtomicU64::new(0),
        })
    }
}

impl GenerationConfig {
    fn parse(file: &str, json: Option<&str>) -> Result<Self, LoadError> {
        json.map_or_else(
            || Ok(Self::default()),
            |json| serde_json::from_str(json).map_err(|error| LoadError::malformed(file, error)),
        )
    }

    /// The model's own sampling settings, with our defaults.
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

impl EndTokenIds {
    fn as_slice(&self) -> &[TokenId] {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }
}
