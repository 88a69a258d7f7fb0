//! The handle of a model that runs in this process. It prepares requests (`prepare.rs`), submits them to the engine
//! thread and returns their results. `open.rs` creates it from a model's files.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::admission::AdmissionPermit;
use super::error::LoadError;
use super::options::{EngineOptions, Provider};
use super::prepare::{self, ReplyParts, continuation_bytes, prompt_bytes};
use super::sequence::{Outcome, PreparedRequest, PromptInput, Task};
use super::shared::Shared;
use super::thread::{Answer, Event, Job, Message};
use super::{history, open};
use crate::foundation::base::RngStream;
use crate::foundation::chat::{
    BoxFuture, Completion, Continuation, Flow, LanguageModel, Message as ChatMessage, ModelError, ModelInfo, Prompt,
    Request, Sampling, Scored, SpecialTokens, Thinking, Thought, ThoughtEnd, ThoughtTokens, TokenId, TokenLogprob,
    TokenSink, Vocabulary,
};
use crate::inference::thought::Divider;

/// A model that runs in this process. Clones share it; it is unloaded when the last clone is dropped.
#[derive(Clone)]
pub struct LocalModel {
    shared: Arc<Shared>,
    /// As [`Shared::info`], with the settings of thinking.
    info: Arc<ModelInfo>,
}

impl LocalModel {
    /// The model that is embedded in the program.
    ///
    /// # Errors
    /// [`ModelError::Unavailable`] if an option is invalid (a malformed chat template, for example) or threads cannot
    /// be started.
    pub fn bundled(options: &EngineOptions) -> Result<Self, ModelError> {
        let name = spec("bundled".to_owned(), options);
        Self::opened(&name, || open::bundled(&name, options))
    }

    /// Opens a folder ([`from_dir`](Self::from_dir)) or a GGUF file ([`from_gguf`](Self::from_gguf)).
    ///
    /// # Errors
    /// See these.
    pub fn from_path(path: &Path, options: &EngineOptions) -> Result<Self, ModelError> {
        if path.is_file() {
            return Self::from_gguf(path, options);
        }
        match std::fs::metadata(path) {
            Ok(_) => Self::from_dir(path, options),
            Err(error) => Err(LoadError::read(path.display(), error).of(&local(path, options))),
        }
    }

    /// Opens a GGUF file, with its own tokenizer and chat template.
    ///
    /// # Errors
    /// [`ModelError::Unavailable`], which names the key or tensor that is wrong.
    pub fn from_gguf(path: &Path, options: &EngineOptions) -> Result<Self, ModelError> {
        let name = local(path, options);
        Self::opened(&name, || open::gguf(&name, path, options))
    }

    fn opened(name: &str, open: impl FnOnce() -> Result<Shared, LoadError>) -> Result<Self, ModelError> {
        let shared = open().map_err(|error| error.of(name))?;
        let info = Arc::new(shared.info.clone());
        Ok(Self { shared: Arc::new(shared), info })
    }

    /// Opens a folder with Hugging Face's files: `config.json`, `tokenizer.json`, `model.safetensors` or its sharded
    /// form, and optionally `tokenizer_config.json`, `generation_config.json` and `chat_template.jinja`.
    ///
    /// # Errors
    /// [`ModelError::Unavailable`], which names the file or tensor that is wrong.
    pub fn from_dir(path: &Path, options: &EngineOptions) -> Result<Self, ModelError> {
        Self::named(&local(path, options), path, options)
    }

    /// Like [`from_dir`](Self::from_dir), under another display name (the source of the folder).
    ///
    /// # Errors
    /// See [`from_dir`](Self::from_dir).
    pub fn named(name: &str, path: &Path, options: &EngineOptions) -> Result<Self, ModelError> {
        Self::opened(name, || open::folder(name, path, options))
    }
}

impl LocalModel {
    /// The ids of a conversation under the settings in force.
    fn ids(&self, messages: &[ChatMessage]) -> Result<Vec<TokenId>, String> {
        let shared = &*self.shared;
        let settings = shared.template.settings(&self.info.thinking_settings)?;
        let reading = history::read(&shared.template, &shared.tokenizer, &shared.history_cache, messages, &settings)?;
        Ok(reading.ids)
    }
}

impl LanguageModel for LocalModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn count(&self, messages: &[ChatMessage]) -> Option<usize> {
        self.ids(messages).ok().map(|ids| ids.len())
    }

    fn with_thinking(&self, thinking: &Thinking) -> Result<Arc<dyn LanguageModel>, ModelError> {
        let shared = &self.shared;
        let settings = self.info.thinking_settings.with(thinking);
        let checked = shared.template.settings(&settings).map_err(|why| shared.unsupported(why))?;
        let thinking = shared.template.thinking_info(&checked);
        let info = Arc::new(ModelInfo { thinking, thinking_settings: settings, ..shared.info.clone() });
        Ok(Arc::new(Self { shared: Arc::clone(shared), info }))
    }

    fn vocabulary(&self) -> Option<&dyn Vocabulary> {
        Some(self)
    }

    fn complete<'a>(
        &'a self,
        mut request: Request,
        sink: Option<Box<dyn TokenSink + 'a>>,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(async move {
            let shared = &*self.shared;
            request.thinking = self.info.thinking_settings.with(&request.thinking);
            let (prepared, parts) = prepare::run_blocking(&self.shared, prompt_bytes(&request.prompt), |shared| {
                shared.prepare_completion(request)
            })
            .await?;
            let outcome = shared.run(prepared, sink, parts.as_ref()).await?;
            let (message, thought, tokens) = reply(outcome.tokens, parts, outcome.thought_spent);
            Ok(Completion {
                message,
                thought,
                tokens,
                end: outcome.end,
                finish: outcome.finish,
                usage: outcome.usage,
                prefix_reuse: outcome.reading,
                model: shared.info.name.clone(),
                snapshot: Some(outcome.snapshot),
                before: outcome.before,
                fallbacks: Vec::new(),
                hosted: None,
                ssm: outcome.ssm,
            })
        })
    }

    fn score(&self, mut request: Request, continuation: Continuation) -> BoxFuture<'_, Result<Scored, ModelError>> {
        Box::pin(async move {
            let keep_state = request.keep_state;
            request.thinking = self.info.thinking_settings.with(&request.thinking);
            let prompt_bytes = prompt_bytes(&request.prompt) + continuation_bytes(&continuation);
            let score = |shared: &Shared| shared.prepare_score(request, continuation);
            let prepared = prepare::run_blocking(&self.shared, prompt_bytes, score).await?;
            Ok(scored(self.shared.run(prepared, None, None).await?, keep_state))
        })
    }

    fn score_each(
        &self,
        mut request: Request,
        continuations: Vec<Continuation>,
    ) -> BoxFuture<'_, Result<Vec<Scored>, ModelError>> {
        Box::pin(async move {
            let keep_state = request.keep_state;
            request.thinking = self.info.thinking_settings.with(&request.thinking);
            let prompt_bytes =
                prompt_bytes(&request.prompt) + continuations.iter().map(continuation_bytes).sum::<usize>();
            let score = |shared: &Shared| shared.prepare_scores(request, continuations);
            let (mut input, mut tasks) = prepare::run_blocking(&self.shared, prompt_bytes, score).await?;
            let mut each = Vec::with_capacity(tasks.len());
            while !tasks.is_empty() {
                let outcomes = self.shared.run_together(&input, &mut tasks).await?;
                input.after = outcomes.iter().find_map(|outcome| outcome.before.clone()).or(input.after);
                each.extend(outcomes.into_iter().map(|outcome| scored(outcome, keep_state)));
            }
            Ok(each)
        })
    }
}

/// The spec string of a model on this machine.
fn local(path: &Path, options: &EngineOptions) -> String {
    spec(format!("local:{}", path.display()), options)
}

/// The spec string of a model that is `native` through Loom's own network.
fn spec(native: String, options: &EngineOptions) -> String {
    match options.provider {
        Provider::Native => native,
        Provider::Candle => format!("candle:{native}"),
    }
}

/// The message of a reply with its thought, the thought's tokens and the answer's.
fn reply(
    tokens: Vec<TokenLogprob>,
    parts: Option<ReplyParts>,
    spent: bool,
) -> (ChatMessage, Option<ThoughtTokens>, Vec<TokenLogprob>) {
    let text = |tokens: &[TokenLogprob]| tokens.iter().map(|token| token.text.as_str()).collect::<String>();
    let ids = |tokens: &[TokenLogprob]| tokens.iter().filter_map(|token| token.id).collect();
    let Some(ReplyParts { format, start }) = parts else {
        let message = ChatMessage { ids: Some(ids(&tokens)), ..ChatMessage::assistant(text(&tokens)) };
        return (message, None, tokens);
    };
    let divided = format.divide(start, tokens);
    let mut message = ChatMessage::assistant(text(&divided.answer));
    message.ids = divided.whole.then(|| ids(&divided.answer));
    let end = if !divided.closed {
        ThoughtEnd::Unfinished
    } else if spent {
        ThoughtEnd::Budget
    } else {
        ThoughtEnd::Closed
    };
    let before = divided.before_answer.map(Arc::from);
    message.thought = divided.thought.as_deref().map(|thought| Thought { text: text(thought), ids: before });
    let thought = divided.thought.map(|tokens| ThoughtTokens { tokens, end });
    (message, thought, divided.answer)
}

/// The public form of a score.
fn scored(outcome: Outcome, keep_state: bool) -> Scored {
    let Outcome { tokens, usage, reading, snapshot, before, ssm, .. } = outcome;
    Scored { before, ssm, ..Scored::new(tokens, usage, reading, Some(snapshot).filter(|_| keep_state)) }
}

impl Vocabulary for LocalModel {
    fn encode(&self, text: &str) -> Result<Vec<TokenId>, ModelError> {
        self.shared.tokenizer.encode(text).map_err(|why| self.shared.unsupported(why))
    }

    fn encode_text(&self, text: &str) -> Result<Vec<TokenId>, ModelError> {
        self.shared.tokenizer.encode_text(text, usize::MAX).map_err(|why| self.shared.unsupported(why))
    }

    fn decode(&self, ids: &[TokenId]) -> Result<String, ModelError> {
        self.shared.check_ids(ids).map_err(|why| self.shared.unsupported(why))?;
        Ok(self.shared.tokenizer.decode(ids))
    }

    fn chat(&self, messages: &[ChatMessage]) -> Result<Vec<TokenId>, ModelError> {
        self.ids(messages).map_err(|why| self.shared.unsupported(why))
    }

    fn chat_to_answer(&self, messages: &[ChatMessage]) -> Result<Vec<TokenId>, ModelError> {
        let shared = &*self.shared;
        let mut request = Request::new(Prompt::Chat(messages.to_vec()), Sampling::greedy(), RngStream::root(0));
        request.thinking = self.info.thinking_settings.clone();
        shared.ids_to_answer(request).map_err(|why| shared.unsupported(why))
    }

    fn special(&self) -> SpecialTokens {
        let template = &self.shared.template;
        SpecialTokens {
            bos: template.special("bos_token"),
            eos: template.special("eos_token"),
            pad: template.special("pad_token"),
            unk: template.special("unk_token"),
            ends: self.shared.end_tokens.to_vec(),
            chat_template: Some(template.source().to_owned()),
        }
    }
}

impl Shared {
    fn engine_ended(&self) -> ModelError {
        self.failed("the engine thread has ended; this is a bug, please report it".to_owned())
    }

    /// Runs one request; `sink` receives the reply as it is generated.
    async fn run(
        &self,
        request: PreparedRequest,
        sink: Option<Box<dyn TokenSink + '_>>,
        parts: Option<&ReplyParts>,
    ) -> Result<Outcome, ModelError> {
        let PreparedRequest { input, task } = &request;
        let permit = self.admit(1, input, task.size()).await?;
        let mut pending = self.submit(permit.into_iter().zip([request]), sink.is_some())?;
        pending.pop().ok_or_else(|| self.engine_ended())?.outcome(sink, parts).await
    }

    /// Runs as many of `tasks` as are admitted together, each after `input`.
    async fn run_together(&self, input: &PromptInput, tasks: &mut VecDeque<Task>) -> Result<Vec<Outcome>, ModelError> {
        let size = tasks.iter().map(Task::size).fold((0, 0), |(a, b), (c, d)| (a.max(c), b.max(d)));
        let permit = self.admit(tasks.len(), input, size).await?;
        let requests = tasks.drain(..permit.len()).map(|task| PreparedRequest { input: input.clone(), task });
        let mut outcomes = Vec::with_capacity(requests.len());
        for pending in self.submit(permit.into_iter().zip(requests), false)? {
            outcomes.push(pending.outcome(None, None).await?);
        }
        Ok(outcomes)
    }

    async fn admit(
        &self,
        wanted: usize,
        input: &PromptInput,
        (longest, top): (usize, usize),
    ) -> Result<Vec<AdmissionPermit>, ModelError> {
        let tokens = input.ids.len().saturating_add(longest);
        self.engine.admission.admit(wanted, tokens, top).await.map_err(|why| self.unsupported(why))
    }

    /// Submits requests to the engine in one message.
    fn submit(
        &self,
        requests: impl Iterator<Item = (AdmissionPermit, PreparedRequest)>,
        listens: bool,
    ) -> Result<Vec<PendingRequest<'_>>, ModelError> {
        let job = |(permit, request)| {
            let key = self.keys.fetch_add(1, Ordering::Relaxed);
            let (events, answers) = unbounded_channel();
            (Job { key, request, listens, events, permit }, PendingRequest { shared: self, key, answers })
        };
        let (jobs, pending) = requests.map(job).unzip();
        self.engine.inbox.send(Message::Start(jobs)).map_err(|_| self.engine_ended())?;
        Ok(pending)
    }
}

/// A submitted request. Dropping it tells the engine that the caller no longer waits.
struct PendingRequest<'a> {
    shared: &'a Shared,
    key: u64,
    answers: UnboundedReceiver<Event>,
}

impl PendingRequest<'_> {
    async fn outcome(
        mut self,
        sink: Option<Box<dyn TokenSink + '_>>,
        parts: Option<&ReplyParts>,
    ) -> Result<Outcome, ModelError> {
        let (shared, key) = (self.shared, self.key);
        let divider = parts.map(|parts| Divider::new(&parts.format, parts.start));
        let mut listener = sink.map(|sink| Listener { sink, divider, delivered: 0, stopped: false });
        loop {
            match self.answers.recv().await.ok_or_else(|| shared.engine_ended())? {
                Event::Tokens(tokens) => {
                    let answer = listener.as_mut().map_or(Answer::Continue, |listener| listener.deliver(&tokens));
                    shared.engine.inbox.send(Message::Listened { key, answer }).map_err(|_| shared.engine_ended())?;
                }
                Event::Done(outcome) => {
                    if let (Ok(_), Some(listener)) = (&outcome, listener) {
                        listener.finish();
                    }
                    return outcome.map(|outcome| *outcome).map_err(|why| shared.failed(why));
                }
            }
        }
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        // Ignore the error: the engine has already ended.
        let _ = self.shared.engine.inbox.send(Message::CallerLeft { key: self.key });
    }
}

struct Listener<'a> {
    sink: Box<dyn TokenSink + 'a>,
    /// Divides the reply of a model that thinks.
    divider: Option<Divider>,
    /// Tokens of the reply that the sink has had.
    delivered: usize,
    stopped: bool,
}

impl Listener<'_> {
    /// Passes `tokens` to the sink until it stops.
    fn deliver(&mut self, tokens: &[TokenLogprob]) -> Answer {
        for token in tokens {
            if self.stopped {
                break;
            }
            match &mut self.divider {
                None => {
                    self.delivered += 1;
                    self.stopped = self.sink.token(token) == Flow::Stop;
                }
                Some(divider) => {
                    for piece in divider.push(token.clone()) {
                        if !self.stopped {
                            self.delivered = piece.index + 1;
                            self.stopped = piece.hand_over(&mut *self.sink) == Flow::Stop;
                        }
                    }
                }
            }
        }
        if self.stopped { Answer::StopAfter(self.delivered) } else { Answer::Continue }
    }

    /// Passes on what was held back as a possible marker, when the reply is complete.
    fn finish(mut self) {
        for piece in self.divider.filter(|_| !self.stopped).into_iter().flat_map(Divider::finish) {
            // The reply is complete, so it cannot be stopped.
            let _flow = piece.hand_over(&mut *self.sink);
        }
    }
}
