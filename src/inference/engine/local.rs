//! A handle to a model that runs in this process: has requests prepared (`prepare.rs`), hands them to the engine thread
//! and brings back what became of them. `open.rs` makes one from a model's files.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use loom_kernels::Dtype;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::admission::{Admitted, Budget};
use super::bundled::{self, Manifest};
use super::device::Device;
use super::gguf::Gguf;
use super::open::Files;
use super::prepare::{self, bytes, bytes_to_score};
use super::sequence::{Given, Outcome, Prepared, Task};
use super::template::ChatTemplate;
use super::thread::{Answer, Engine, Event, Job, Message};
use super::tokenizer::Tokenizer;
use super::weights::{Weights, read_text};
use super::{LoadError, history};
use crate::foundation::chat::{
    BoxFuture, Completion, Continuation, Flow, LanguageModel, Message as ChatMessage, ModelError, ModelInfo, Request,
    Role, Scored, SpecialTokens, TokenId, TokenLogprob, TokenSink, Vocabulary,
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
        if path.is_file() {
            return Self::from_gguf(path, options);
        }
        match std::fs::metadata(path) {
            Ok(_) => Self::from_dir(path, options),
            Err(error) => Err(LoadError::read(path.display(), error).of(&format!("local:{}", path.display()))),
        }
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
            let prepared = prepare::aside(&self.0, bytes(&request.prompt), |shared| shared.to_write(request)).await?;
            let outcome = shared.ask(prepared, sink).await?;
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
            let goes_on = request.goes_on;
            let bytes = bytes(&request.prompt) + bytes_to_score(&continuation);
            let score = |shared: &Shared| shared.to_score(request, continuation);
            let prepared = prepare::aside(&self.0, bytes, score).await?;
            Ok(scored(self.0.ask(prepared, None).await?, goes_on))
        })
    }

    fn score_each(
        &self,
        request: Request,
        continuations: Vec<Continuation>,
    ) -> BoxFuture<'_, Result<Vec<Scored>, ModelError>> {
        Box::pin(async move {
            let goes_on = request.goes_on;
            let bytes = bytes(&request.prompt) + continuations.iter().map(bytes_to_score).sum::<usize>();
            let score = |shared: &Shared| shared.to_score_each(request, continuations);
            let (mut given, mut tasks) = prepare::aside(&self.0, bytes, score).await?;
            let mut each = Vec::with_capacity(tasks.len());
            while !tasks.is_empty() {
                let outcomes = self.0.ask_together(&given, &mut tasks).await?;
                given.after = outcomes.iter().find_map(|outcome| outcome.before.clone()).or(given.after);
                each.extend(outcomes.into_iter().map(|outcome| scored(outcome, goes_on)));
            }
            Ok(each)
        })
    }
}

/// What a caller is told of a score.
fn scored(outcome: Outcome, goes_on: bool) -> Scored {
    let Outcome { tokens, usage, reading, snapshot, before, ssm, .. } = outcome;
    Scored { before, ssm, ..Scored::new(tokens, usage, reading, Some(snapshot).filter(|_| goes_on)) }
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
    pub(super) fn unsupported(&self, why: String) -> ModelError {
        ModelError::Unsupported { model: self.info.name.clone(), why }
    }

    pub(super) fn failed(&self, why: String) -> ModelError {
        ModelError::Failed { model: self.info.name.clone(), why }
    }

    fn gone(&self) -> ModelError {
        self.failed("the engine thread has ended; this is a bug, please report it".to_owned())
    }

    /// Has a request served, letting `sink` hear the reply as it comes.
    async fn ask(&self, request: Prepared, sink: Option<Box<dyn TokenSink + '_>>) -> Result<Outcome, ModelError> {
        let Prepared { given, task } = &request;
        let admitted = self.admit(1, given, task.size()).await?;
        let mut asked = self.begin(admitted.into_iter().zip([request]), sink.is_some())?;
        asked.pop().ok_or_else(|| self.gone())?.outcome(sink).await
    }

    /// Has as many of `tasks` served as come in together, each behind `given`.
    async fn ask_together(&self, given: &Given, tasks: &mut VecDeque<Task>) -> Result<Vec<Outcome>, ModelError> {
        let size = tasks.iter().map(Task::size).fold((0, 0), |(a, b), (c, d)| (a.max(c), b.max(d)));
        let admitted = self.admit(tasks.len(), given, size).await?;
        let requests = tasks.drain(..admitted.len()).map(|task| Prepared { given: given.clone(), task });
        let mut outcomes = Vec::with_capacity(requests.len());
        for asked in self.begin(admitted.into_iter().zip(requests), false)? {
            outcomes.push(asked.outcome(None).await?);
        }
        Ok(outcomes)
    }

    async fn admit(
        &self,
        wanted: usize,
        given: &Given,
        (longest, top): (usize, usize),
    ) -> Result<Vec<Admitted>, ModelError> {
        let tokens = given.ids.len().saturating_add(longest);
        self.engine.admission.admit(wanted, tokens, top).await.map_err(|why| self.unsupported(why))
    }

    /// Gives requests to the engine, all at once.
    fn begin(
        &self,
        requests: impl Iterator<Item = (Admitted, Prepared)>,
        listens: bool,
    ) -> Result<Vec<Asked<'_>>, ModelError> {
        let job = |(admitted, request)| {
            let key = self.keys.fetch_add(1, Ordering::Relaxed);
            let (events, answers) = unbounded_channel();
            (Job { key, request, listens, events, admitted }, Asked { shared: self, key, answers })
        };
        let (jobs, asked) = requests.map(job).unzip();
        self.engine.inbox.send(Message::Start(jobs)).map_err(|_| self.gone())?;
        Ok(asked)
    }
}

/// A request with the engine. When its caller goes, whether it got its answer or not, the engine is told.
struct Asked<'a> {
    shared: &'a Shared,
    key: u64,
    answers: UnboundedReceiver<Event>,
}

impl Asked<'_> {
    async fn outcome(mut self, sink: Option<Box<dyn TokenSink + '_>>) -> Result<Outcome, ModelError> {
        let (shared, key) = (self.shared, self.key);
        let mut listener = sink.map(|sink| Listener { sink, heard: 0, stopped: false });
        loop {
            match self.answers.recv().await.ok_or_else(|| shared.gone())? {
                Event::Tokens(tokens) => {
                    let answer = listener.as_mut().map_or(Answer::Continue, |listener| listener.hear(&tokens));
                    shared.engine.inbox.send(Message::Heard { key, answer }).map_err(|_| shared.gone())?;
                }
                Event::Done(outcome) => return outcome.map(|outcome| *outcome).map_err(|why| shared.failed(why)),
            }
        }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        // An engine that has ended needs no word.
        let _ = self.shared.engine.inbox.send(Message::Left { key: self.key });
    }
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
