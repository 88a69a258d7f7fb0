//! A handle to a model that runs in this process: turns requests into token ids on the caller's task and hands them to
//! the engine thread. `open.rs` makes one from a model's files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use loom_kernels::Dtype;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::admission::Budget;
use super::bundled::{self, Manifest};
use super::device::Device;
use super::gguf::Gguf;
use super::open::Files;
use super::reply::Reply;
use super::sequence::{Outcome, Prepared, Task};
use super::template::ChatTemplate;
use super::thread::{Answer, Engine, Event, Job, Message};
use super::tokenizer::Tokenizer;
use super::weights::{Weights, read_text};
use super::{LoadError, detokenize, history};
use crate::foundation::base::limits::PROMPT_TOKENS_MAX;
use crate::foundation::chat::{
    BoxFuture, Completion, Continuation, DeltaGains, Flow, LanguageModel, LayerGains, Message as ChatMessage,
    ModelError, ModelInfo, Prompt, Request, Role, Scored, SpecialTokens, TokenId, TokenLogprob, TokenSink, Vocabulary,
};

/// How to run a model.
#[derive(Debug, Clone, Default)]
pub struct EngineOptions {
    /// Threads for the arithmetic; all cores if absent. Results do not depend on it.
    pub threads: Option<usize>,
    /// Where to run it.
    pub device: Device,
    /// The text of a chat template that replaces the model's own.
    pub chat_template: Option<String>,
    /// What `strftime_now` tells in a chat template; the time of opening if absent.
    pub now: Option<Timestamp>,
    /// How much memory it may use beside the weights.
    pub budget: Budget,
    /// How matrices are kept; as the model's files have them if absent, f16 widened to f32. Another dtype is another
    /// model: it says other things.
    pub dtype: Option<Dtype>,
}

/// A model that runs in this process. Clones share it; it is unloaded when the last is gone.
#[derive(Clone)]
pub struct LocalModel(Arc<Shared>);

/// What the clones of a handle share.
pub(super) struct Shared {
    pub(super) info: ModelInfo,
    /// Longest sequence, prompt and reply together, where the architecture sets an end to it.
    pub(super) window: Option<usize>,
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) template: ChatTemplate,
    pub(super) memory: history::Memory,
    /// Tokens that end the model's turn, and texts that end a reply in a conversation.
    pub(super) ends: Arc<[TokenId]>,
    pub(super) stops: Vec<String>,
    pub(super) engine: Engine,
    pub(super) keys: AtomicU64,
}

impl LocalModel {
    /// The model that ships inside the program.
    ///
    /// # Errors
    /// [`ModelError::Unavailable`] when the options do not fit (a broken chat template, say) or threads cannot start.
    pub fn bundled(options: &EngineOptions) -> Result<Self, ModelError> {
        let name = "bundled";
        let files = || {
            Ok(Files {
                name: name.to_owned(),
                config: bundled::CONFIG.to_owned(),
                generation_config: Some(bundled::GENERATION_CONFIG.to_owned()),
                tokenizer: bundled::TOKENIZER.to_owned(),
                tokenizer_config: Some(bundled::TOKENIZER_CONFIG.to_owned()),
                template: None,
                weights: Weights::from_bytes(bundled::WEIGHTS)?,
                manifest: bundled::manifest()?,
            })
        };
        files().and_then(|files| files.open(options)).map(Self::of).map_err(|error: LoadError| error.of(name))
    }

    /// A model in a folder ([`from_dir`](Self::from_dir)) or in a GGUF file ([`from_gguf`](Self::from_gguf)).
    ///
    /// # Errors
    /// As theirs.
    pub fn from_path(path: &Path, options: &EngineOptions) -> Result<Self, ModelError> {
        if path.is_file() { Self::from_gguf(path, options) } else { Self::from_dir(path, options) }
    }

    /// A model in a GGUF file, with the file's own tokenizer and chat template.
    ///
    /// # Errors
    /// [`ModelError::Unavailable`], naming the key or tensor that does not fit.
    pub fn from_gguf(path: &Path, options: &EngineOptions) -> Result<Self, ModelError> {
        let name = format!("local:{}", path.display());
        let files = || {
            let (gguf, file) = Gguf::open(path)?;
            Ok(Files {
                name: name.clone(),
                config: gguf.config()?,
                generation_config: Some(gguf.generation_config()?),
                tokenizer: gguf.tokenizer()?,
                tokenizer_config: Some(gguf.tokenizer_config()?),
                template: None,
                weights: Weights::from_gguf(&path.display().to_string(), file, &gguf)?,
                manifest: Manifest::default(),
            })
        };
        files().and_then(|files| files.open(options)).map(Self::of).map_err(|error: LoadError| error.of(&name))
    }

    fn of(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }

    /// A model in a folder with Hugging Face's files: `config.json`, `tokenizer.json`, `model.safetensors` or its
    /// sharded form; `tokenizer_config.json`, `generation_config.json` and `chat_template.jinja` if they are there.
    ///
    /// # Errors
    /// [`ModelError::Unavailable`], naming the file or tensor that does not fit.
    pub fn from_dir(path: &Path, options: &EngineOptions) -> Result<Self, ModelError> {
        Self::named(&format!("local:{}", path.display()), path, options)
    }

    /// The same under another name: where the folder came from.
    ///
    /// # Errors
    /// As [`from_dir`](Self::from_dir).
    pub fn named(name: &str, path: &Path, options: &EngineOptions) -> Result<Self, ModelError> {
        let needed = |file: &str| read_text(&path.join(file));
        let maybe = |file: &str| if path.join(file).is_file() { needed(file).map(Some) } else { Ok(None) };
        let files = || {
            Ok(Files {
                name: name.to_owned(),
                config: needed("config.json")?,
                generation_config: maybe("generation_config.json")?,
                tokenizer: needed("tokenizer.json")?,
                tokenizer_config: maybe("tokenizer_config.json")?,
                template: maybe("chat_template.jinja")?,
                weights: Weights::from_dir(path)?,
                manifest: Manifest::default(),
            })
        };
        files().and_then(|files| files.open(options)).map(Self::of).map_err(|error: LoadError| error.of(name))
    }
}

impl LanguageModel for LocalModel {
    fn info(&self) -> &ModelInfo {
        &self.0.info
    }

    fn count(&self, messages: &[ChatMessage]) -> Option<usize> {
        history::read(&self.0.template, &self.0.tokenizer, &self.0.memory, messages)
            .ok()
            .map(|reading| reading.ids.len())
    }

    fn vocabulary(&self) -> Option<&dyn Vocabulary> {
        Some(self)
    }

    fn complete<'a>(
        &'a self,
        request: Request,
        sink: Option<Box<dyn TokenSink + 'a>>,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(async move {
            let shared = &*self.0;
            let reply = shared.reply(&request).map_err(|why| shared.unsupported(why))?;
            let (longest, top) = (request.sampling.max_tokens, request.sampling.top_logprobs);
            let prepared =
                shared.prepare(request, Task::Write(Box::new(reply))).map_err(|why| shared.unsupported(why))?;
            let outcome = shared.ask(prepared, (longest, top), sink).await?;
            let content: String = outcome.tokens.iter().map(|token| token.text.as_str()).collect();
            let ids = outcome.tokens.iter().filter_map(|token| token.id).collect();
            Ok(Completion {
                message: ChatMessage { role: Role::Assistant, content, ids: Some(ids) },
                tokens: outcome.tokens,
                end: outcome.end,
                finish: outcome.finish,
                usage: outcome.usage,
                reading: outcome.reading,
                model: shared.info.name.clone(),
                snapshot: Some(outcome.snapshot),
                before: outcome.before,
                fallbacks: Vec::new(),
                hosted: None,
                ssm: outcome.ssm,
            })
        })
    }

    fn score(&self, request: Request, continuation: Continuation) -> BoxFuture<'_, Result<Scored, ModelError>> {
        Box::pin(async move {
            let shared = &*self.0;
            let (top, goes_on) = (request.sampling.top_logprobs, request.goes_on);
            let continuation =
                shared.to_score(continuation, told(&request.prompt)).map_err(|why| shared.unsupported(why))?;
            let longest = continuation.len();
            let task = Task::Score { tokens: continuation, top, goes_on };
            let prepared = shared.prepare(request, task).map_err(|why| shared.unsupported(why))?;
            let Outcome { tokens, usage, reading, snapshot, before, ssm, .. } =
                shared.ask(prepared, (longest, top), None).await?;
            let snapshot = Some(snapshot).filter(|_| goes_on);
            Ok(Scored { before, ssm, ..Scored::new(tokens, usage, reading, snapshot) })
        })
    }
}

impl Vocabulary for LocalModel {
    fn encode(&self, text: &str) -> Result<Vec<TokenId>, ModelError> {
        self.0.tokenizer.encode(text).map_err(|why| self.0.unsupported(why))
    }

    fn decode(&self, ids: &[TokenId]) -> Result<String, ModelError> {
        self.0.check_ids(ids).map_err(|why| self.0.unsupported(why))?;
        Ok(self.0.tokenizer.decode(ids))
    }

    fn chat(&self, messages: &[ChatMessage]) -> Result<Vec<TokenId>, ModelError> {
        let shared = &*self.0;
        history::read(&shared.template, &shared.tokenizer, &shared.memory, messages)
            .map(|reading| reading.ids)
            .map_err(|why| shared.unsupported(why))
    }

    fn special(&self) -> SpecialTokens {
        let template = &self.0.template;
        SpecialTokens {
            bos: template.special("bos_token"),
            eos: template.special("eos_token"),
            pad: template.special("pad_token"),
            unk: template.special("unk_token"),
            ends: self.0.ends.to_vec(),
            chat_template: Some(template.source().to_owned()),
        }
    }
}

impl Shared {
    fn unsupported(&self, why: String) -> ModelError {
        ModelError::Unsupported { model: self.info.name.clone(), why }
    }

    fn failed(&self, why: String) -> ModelError {
        ModelError::Failed { model: self.info.name.clone(), why }
    }

    fn reply(&self, request: &Request) -> Result<Reply, String> {
        let mut sampling = request.sampling.clone();
        if matches!(request.prompt, Prompt::Chat(_)) {
            sampling.stop.extend(self.stops.iter().cloned());
        }
        let before = told(&request.prompt);
        Reply::new(Arc::clone(&self.tokenizer), before, Arc::clone(&self.ends), sampling, request.stream)
    }

    fn to_score(&self, continuation: Continuation, before: &[TokenId]) -> Result<Vec<(TokenId, String)>, String> {
        let ids = match continuation {
            Continuation::Text(text) => self.tokenizer.encode(&text)?,
            Continuation::Ids(ids) => ids,
        };
        if ids.is_empty() {
            return Err("there is nothing to score: give a continuation of at least one token".to_owned());
        }
        self.check_ids(&ids)?;
        Ok(detokenize::pieces(&self.tokenizer, before, ids))
    }

    fn prepare(&self, request: Request, mut task: Task) -> Result<Prepared, String> {
        let (ids, history) = match request.prompt {
            Prompt::Chat(messages) => {
                let reading = history::read(&self.template, &self.tokenizer, &self.memory, &messages)?;
                (reading.ids, reading.history)
            }
            Prompt::Text(text) => (self.tokenizer.encode(&text)?, usize::MAX),
            Prompt::Ids(ids) => (ids, usize::MAX),
        };
        if ids.is_empty() {
            return Err("the prompt is empty: give it at least one token to continue from".to_owned());
        }
        self.check_ids(&ids)?;
        if let Some(gains) = &request.gains {
            self.check_gains(gains)?;
        }
        self.fit(ids.len(), &mut task)?;
        Ok(Prepared { ids, history, after: request.after, gains: request.gains, readings: request.readings, task })
    }

    fn check_ids(&self, ids: &[TokenId]) -> Result<(), String> {
        let vocabulary = self.info.vocabulary.unwrap_or_default();
        if let Some(id) = ids.iter().find(|&&id| id as usize >= vocabulary) {
            return Err(format!(
                "token {id} is outside its vocabulary of {vocabulary}; were the ids made by another model?"
            ));
        }
        if ids.len() > PROMPT_TOKENS_MAX {
            return Err(format!("{} tokens are more than the {PROMPT_TOKENS_MAX} it takes in one request", ids.len()));
        }
        Ok(())
    }

    /// Sees to it that prompt and task lie within the window: a reply ends where the window does.
    fn fit(&self, prompt: usize, task: &mut Task) -> Result<(), String> {
        let Some(window) = self.window else { return Ok(()) };
        let least = match task {
            Task::Write(_) => 1,
            Task::Score { tokens, .. } => tokens.len(),
        };
        let room = window.saturating_sub(prompt);
        if room < least {
            return Err(format!(
                "a prompt of {prompt} tokens and {least} more are over its window of {window}: shorten the prompt"
            ));
        }
        if let Task::Write(reply) = task {
            reply.limit(room);
        }
        Ok(())
    }

    fn check_gains(&self, gains: &DeltaGains) -> Result<(), String> {
        if !self.info.delta {
            return Err("it has no Δ that gains could scale; use a Mamba, or leave the gains out".to_owned());
        }
        let layers = self.info.layers.unwrap_or_default();
        let all = match gains {
            DeltaGains::Uniform(gains) => std::slice::from_ref(gains),
            DeltaGains::PerLayer(each) if each.len() == layers => each,
            DeltaGains::PerLayer(each) => {
                return Err(format!(
                    "the gains on Δ name {} layers, it has {layers}: give one entry per layer",
                    each.len()
                ));
            }
        };
        let sane =
            |gains: &LayerGains| [gains.delta, gains.decay, gains.write].iter().all(|g| g.is_finite() && *g >= 0.0);
        if all.iter().all(sane) { Ok(()) } else { Err("a gain on Δ must be a finite number, 0 or more".to_owned()) }
    }

    /// Has a request served, letting `sink` hear the reply as it comes. At most `longest` tokens come after the prompt,
    /// each with `top` alternatives.
    async fn ask(
        &self,
        request: Prepared,
        (longest, top): (usize, usize),
        sink: Option<Box<dyn TokenSink + '_>>,
    ) -> Result<Outcome, ModelError> {
        let gone = || self.failed("the engine thread has ended; this is a bug, please report it".to_owned());
        let Engine { admission, inbox } = &self.engine;
        let tokens = request.ids.len().saturating_add(longest).min(self.window.unwrap_or(usize::MAX));
        let admitted = admission.admit(tokens, top).await.map_err(|why| self.unsupported(why))?;
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        let (events, mut answers) = unbounded_channel();
        let job = Job { key, request, listens: sink.is_some(), events, admitted };
        inbox.send(Message::Start(job)).map_err(|_| gone())?;
        let _leave = Leave { engine: inbox, key };
        let mut listener = sink.map(|sink| Listener { sink, heard: 0, stopped: false });
        loop {
            match answers.recv().await.ok_or_else(gone)? {
                Event::Tokens(tokens) => {
                    let answer = listener.as_mut().map_or(Answer::Continue, |listener| listener.hear(&tokens));
                    inbox.send(Message::Heard { key, answer }).map_err(|_| gone())?;
                }
                Event::Done(outcome) => return outcome.map(|outcome| *outcome).map_err(|why| self.failed(why)),
            }
        }
    }
}

/// The tokens that a prompt names: these alone may end inside a character.
fn told(prompt: &Prompt) -> &[TokenId] {
    if let Prompt::Ids(ids) = prompt { ids } else { &[] }
}

struct Listener<'a> {
    sink: Box<dyn TokenSink + 'a>,
    heard: usize,
    stopped: bool,
}

impl Listener<'_> {
    /// Lets the sink hear `tokens` until it wants no more.
    fn hear(&mut self, tokens: &[TokenLogprob]) -> Answer {
        for token in tokens {
            if self.stopped {
                break;
            }
            self.heard += 1;
            self.stopped = self.sink.token(token) == Flow::Stop;
        }
        if self.stopped { Answer::StopAfter(self.heard) } else { Answer::Continue }
    }
}

/// Tells the engine when a caller goes, whether it got its answer or not.
struct Leave<'a> {
    engine: &'a UnboundedSender<Message>,
    key: u64,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        // An engine that has ended needs no word.
        let _ = self.engine.send(Message::Left { key: self.key });
    }
}
