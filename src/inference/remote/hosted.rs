//! One hosted model: sends requests, retries, feeds sinks, stores replies in the cache.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use eventsource_stream::{EventStreamError, Eventsource as _};
use futures_util::{Stream, StreamExt as _, stream};
use reqwest::{Client, Response};
use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};

use super::cache::{CachedReply, ResponseCache};
use super::credentials::Credentials;
use super::partial_reply::PartialReply;
use super::prices::Prices;
use super::provider_error::{ProviderError, ProviderErrorKind};
use super::rate_limit::{RateLimiter, backoff};
use super::{ChatRequest, ProviderApi, RemoteOptions, causes};
use crate::foundation::base::RngStream;
use crate::foundation::base::limits::{REMOTE_ANSWER_BYTES_MAX, STREAM_EVENT_BYTES_MAX};
use crate::foundation::chat::{
    BoxFuture, Completion, Continuation, DeltaGains, Finish, Flow, HostedInfo, LanguageModel, LayerGains, Message,
    ModelError, ModelInfo, Prompt, Request, Sampling, Scored, Thinking, ThinkingInfo, Thought, ThoughtEnd,
    ThoughtTokens, TokenLogprob, TokenSink, Usage,
};
use crate::inference::thought::{Divider, Start, ThoughtFormat};

/// Settings that change only what is reported, not the reply. If the provider rejects one, the request is sent without
/// it.
const OPTIONAL: [&str; 4] = ["top_logprobs", "logprobs", "stream_options", "seed"];
/// Bytes per token assumed until the provider reports the token count.
const BYTES_PER_TOKEN: usize = 4;

pub(super) struct HostedModel {
    pub(super) info: ModelInfo,
    /// The model's name at the provider.
    pub(super) name: String,
    pub(super) api: Box<dyn ProviderApi>,
    pub(super) credentials: Credentials,
    client: Client,
    prices: Prices,
    cache: Option<ResponseCache>,
    options: RemoteOptions,
    created: Instant,
    limiters: Mutex<[Option<RateLimiter>; 2]>,
    /// Optional settings that the provider rejected, with its message.
    rejected: Mutex<BTreeMap<&'static str, String>>,
    /// Set once the server has passed the support test for scoring.
    pub(super) echoes: OnceCell<()>,
}

/// A token sink and the number of tokens delivered to it.
struct Delivery<'a> {
    sink: Option<Box<dyn TokenSink + 'a>>,
    delivered: usize,
    thoughts_delivered: usize,
    /// Divides replies in which thought and answer come together.
    divider: Option<Divider>,
}

impl Delivery<'_> {
    /// Delivers new tokens to the sink; `true` once the sink stops the reply.
    fn deliver(&mut self, thought: &[TokenLogprob], tokens: &[TokenLogprob]) -> bool {
        let Some(sink) = &mut self.sink else { return false };
        for token in thought.iter().skip(self.thoughts_delivered) {
            self.thoughts_delivered += 1;
            if sink.thought(token) == Flow::Stop {
                return true;
            }
        }
        for token in tokens.iter().skip(self.delivered) {
            self.delivered += 1;
            let stopped = match &mut self.divider {
                None => sink.token(token) == Flow::Stop,
                Some(divider) => {
                    let pieces = divider.push(token.clone());
                    pieces.iter().any(|piece| piece.hand_over(&mut **sink) == Flow::Stop)
                }
            };
            if stopped {
                return true;
            }
        }
        false
    }

    /// Delivers what was held back as a possible marker, when the reply is complete.
    fn finish(&mut self) {
        let pieces = self.divider.take().map(Divider::finish).unwrap_or_default();
        if let Some(sink) = &mut self.sink {
            for piece in pieces {
                // The reply is complete, so it cannot be stopped.
                let _flow = piece.hand_over(&mut **sink);
            }
        }
    }
}

/// Why the stream of a response ends early.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error("{0}")]
    Broken(String),
    #[error("its answer is larger than {REMOTE_ANSWER_BYTES_MAX} bytes")]
    TooLarge,
    #[error("one event is larger than {STREAM_EVENT_BYTES_MAX} bytes")]
    LongLine,
}

/// The bytes of a response, with limits on the wait for each chunk, on a line and on the whole.
fn limited(
    response: Response,
    first: Duration,
    idle: Duration,
) -> impl Stream<Item = Result<impl AsRef<[u8]>, StreamError>> {
    let chunks = Box::pin(response.bytes_stream());
    stream::unfold(Some((chunks, first, 0, 0)), move |state| async move {
        let (mut chunks, wait, bytes, line): (_, _, usize, usize) = state?;
        let chunk = match timeout(wait, chunks.next()).await {
            Err(_) => return Some((Err(StreamError::Broken(format!("no data for {wait:?}"))), None)),
            Ok(chunk) => chunk?,
        };
        let chunk = match chunk {
            Err(error) => return Some((Err(StreamError::Broken(causes(&error))), None)),
            Ok(chunk) => chunk,
        };
        let bytes = bytes.saturating_add(chunk.len());
        let line = match chunk.iter().rposition(|byte| matches!(byte, b'\n' | b'\r')) {
            Some(end) => chunk.len() - end,
            None => line + chunk.len(),
        };
        match () {
            () if bytes > REMOTE_ANSWER_BYTES_MAX => Some((Err(StreamError::TooLarge), None)),
            () if line > STREAM_EVENT_BYTES_MAX => Some((Err(StreamError::LongLine), None)),
            () => Some((Ok(chunk), Some((chunks, idle, bytes, line)))),
        }
    })
}

impl HostedModel {
    pub(super) fn new(
        spec: String,
        name: String,
        api: Box<dyn ProviderApi>,
        credentials: Credentials,
        options: &RemoteOptions,
    ) -> Result<Self, String> {
        let cache = options.cache.as_deref().map(ResponseCache::open).transpose();
        let cache =
            cache.map_err(|error| format!("its response cache cannot be created: {error}; name another folder"))?;
        let client = Client::builder()
            .connect_timeout(options.connect)
            // The API key must not be sent to another host.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("loom/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| format!("the HTTP client cannot be created: {error}"))?;
        let sampling = Sampling { temperature: 1.0, top_p: 1.0, ..Sampling::default() };
        let limiters =
            [options.requests_per_minute, options.tokens_per_minute].map(|limit| limit.map(RateLimiter::new));
        Ok(Self {
            info: ModelInfo { name: spec, sampling: Some(sampling), ..ModelInfo::default() },
            name,
            api,
            credentials,
            client,
            prices: Prices::load()?,
            cache,
            options: options.clone(),
            created: Instant::now(),
            limiters: Mutex::new(limiters),
            rejected: Mutex::default(),
            echoes: OnceCell::new(),
        })
    }

    pub(super) fn unsupported(&self, why: impl Into<String>) -> ModelError {
        ModelError::Unsupported { model: self.info.name.clone(), why: why.into() }
    }

    pub(super) fn model_error(&self, mut error: ProviderError) -> ModelError {
        error.why = self.credentials.redact(&error.why);
        error.into_model_error(&self.info.name, self.credentials.variable)
    }

    async fn reply(&self, request: Request, sink: Option<Box<dyn TokenSink + '_>>) -> Result<Completion, ModelError> {
        let Prompt::Chat(messages) = &request.prompt else {
            return Err(self.unsupported("it accepts chat messages only, neither plain text nor token ids"));
        };
        self.check(request.gains.as_ref())?;
        let body = self.body(messages, &request).map_err(|why| self.unsupported(why))?;
        let markers = request.thinking.markers.as_deref().unwrap_or_default();
        let format = ThoughtFormat::of_markers(markers).map_err(|why| self.unsupported(why))?.map(Arc::new);
        // The key does not include how the response is transferred.
        let mut key_body = body.clone();
        key_body.retain(|key, _| !matches!(key.as_str(), "stream" | "stream_options"));
        let drawn = request.sampling.temperature > 0.0;
        let place = drawn.then(|| [request.stream.bits(0), request.stream.bits(1)].map(|bits| format!("{bits:016x}")));
        let key = json!({"dialect": self.api.name(), "url": self.credentials.url, "body": key_body, "place": place});
        let divider = format.as_ref().map(|format| Divider::new(format, Start::Open));
        let mut delivery = Delivery { sink, delivered: 0, thoughts_delivered: 0, divider };
        if let Some(answer) = self.cached(&key).await? {
            let answer = replay(answer, &mut delivery);
            return Ok(self.completion(answer, format.as_ref(), 0, true));
        }
        let (answer, retries) = self.send_with_retries(body, request.stream, &mut delivery).await?;
        if answer.finish != Finish::Cancelled {
            delivery.finish();
            if !answer.content.trim().is_empty() {
                self.store(key, answer.clone()).await?;
            }
        }
        Ok(self.completion(answer, format.as_ref(), retries, false))
    }

    pub(super) fn check(&self, gains: Option<&DeltaGains>) -> Result<(), ModelError> {
        let neutral = match gains {
            None => true,
            Some(DeltaGains::Uniform(gains)) => *gains == LayerGains::ONE,
            Some(DeltaGains::PerLayer(layers)) => layers.iter().all(|gains| *gains == LayerGains::ONE),
        };
        if neutral {
            Ok(())
        } else {
            Err(self.unsupported("Δ gains are supported by local Mamba models only; use `bundled` or `local:DIR`"))
        }
    }

    fn body(&self, messages: &[Message], request: &Request) -> Result<Map<String, Value>, String> {
        let Request { sampling, stream, thinking, .. } = request;
        // 31 bits, because servers differ in the integers they accept.
        let seed = (sampling.temperature > 0.0).then(|| (stream.bits(0) >> 33) as u32);
        self.api.body(&ChatRequest { model: &self.name, messages, sampling, thinking, seed })
    }

    /// Sends the request until it succeeds or the retries are used up; returns the number of retries too.
    async fn send_with_retries(
        &self,
        mut body: Map<String, Value>,
        stream: RngStream,
        delivery: &mut Delivery<'_>,
    ) -> Result<(CachedReply, u32), ModelError> {
        let wanted: Vec<_> = body.keys().cloned().collect();
        self.drop_refused_settings(&mut body);
        let mut retries = 0;
        loop {
            let value = Value::Object(body.clone());
            let booked = self.wait_for_limits(&value).await;
            let top_requested = body.get("top_logprobs").and_then(Value::as_u64).map(|top| top as usize);
            let mut partial = PartialReply::with_top(top_requested);
            let error = match self.send_once(&value, &mut partial, delivery).await {
                Ok(()) => {
                    let answer = self.finish_reply(partial, &wanted);
                    self.correct_booking(booked, answer.usage);
                    return Ok((answer, retries));
                }
                Err(error) => error,
            };
            // Tokens were already delivered to the sink: a second reply would be appended to them.
            if delivery.delivered + delivery.thoughts_delivered > 0 {
                return Err(self.model_error(error));
            }
            if self.drops_refused_setting(&error, &body) {
                self.drop_refused_settings(&mut body);
                continue;
            }
            retries += 1;
            match backoff(self.options.first_wait, retries, error.retry_after, stream) {
                Some(wait) if error.is_temporary() && retries <= self.options.retries => sleep(wait).await,
                _ => return Err(self.model_error(error)),
            }
        }
    }

    /// Sends one request and reads its response.
    async fn send_once(
        &self,
        body: &Value,
        partial: &mut PartialReply,
        delivery: &mut Delivery<'_>,
    ) -> Result<(), ProviderError> {
        let response = self.post(self.api.path(), body).await?;
        let mut events = pin!(limited(response, self.options.first_byte, self.options.idle).eventsource());
        let cut = |why: &str, partial: &PartialReply| {
            let tokens = partial.tokens.len();
            let why = format!("the response broke off after {tokens} tokens ({why})");
            ProviderError::new(ProviderErrorKind::Cut, why)
        };
        loop {
            let event = match events.next().await {
                Some(Ok(event)) => event,
                None if partial.finish.is_some() => return Ok(()),
                None => return Err(cut("the end of the stream is missing", partial)),
                Some(Err(EventStreamError::Transport(StreamError::Broken(why)))) => return Err(cut(&why, partial)),
                Some(Err(EventStreamError::Transport(StreamError::TooLarge))) if !partial.tokens.is_empty() => {
                    // The tokens received so far are the reply, marked as cut.
                    partial.finish = Some(Finish::Length);
                    partial.cut_reason = Some(StreamError::TooLarge.to_string());
                    return Ok(());
                }
                Some(Err(error)) => {
                    let why = format!("its event stream is invalid: {error}");
                    return Err(ProviderError::new(ProviderErrorKind::Garbled, why));
                }
            };
            self.api.event(&event.data, partial)?;
            if delivery.deliver(&partial.thought_tokens, &partial.tokens) {
                partial.tokens.truncate(delivery.delivered);
                partial.thought_tokens.truncate(delivery.thoughts_delivered);
                partial.finish = Some(Finish::Cancelled);
                return Ok(());
            }
            if partial.ended && partial.finish.is_some() {
                return Ok(());
            }
        }
    }

    /// Sends `body`; a status other than 2xx is an error.
    async fn post(&self, path: &str, body: &Value) -> Result<Response, ProviderError> {
        let headers =
            self.api.headers(&self.credentials).map_err(|why| ProviderError::new(ProviderErrorKind::Key, why))?;
        let send = self.client.post(format!("{}{path}", self.credentials.url)).headers(headers).json(body).send();
        let response = match timeout(self.options.first_byte, send).await {
            Err(_) => {
                let why = format!("no response from {} within {:?}", self.credentials.url, self.options.first_byte);
                return Err(ProviderError::new(ProviderErrorKind::Unreachable, why));
            }
            Ok(Err(error)) => {
                let why = format!("{} cannot be reached ({})", self.credentials.url, causes(&error));
                return Err(ProviderError::new(ProviderErrorKind::Unreachable, why));
            }
            Ok(Ok(response)) => response,
        };
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let text = self.text(response).await.unwrap_or_default();
        Err(ProviderError::from_response(status, &headers, &text))
    }

    /// Reads a response that is not a stream.
    async fn text(&self, response: Response) -> Result<String, ProviderError> {
        let mut chunks = response.bytes_stream();
        let mut bytes = Vec::new();
        let cut = |why: String| ProviderError::new(ProviderErrorKind::Cut, format!("the response broke off ({why})"));
        while let Some(chunk) =
            timeout(self.options.idle, chunks.next()).await.map_err(|_| cut("no data".to_owned()))?
        {
            bytes.extend_from_slice(&chunk.map_err(|error| cut(causes(&error)))?);
            if bytes.len() > REMOTE_ANSWER_BYTES_MAX {
                let why = format!("its answer is larger than {REMOTE_ANSWER_BYTES_MAX} bytes");
                return Err(ProviderError::new(ProviderErrorKind::Garbled, why));
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Posts a request whose response is JSON, not a stream, with retries.
    pub(super) async fn post_json(&self, path: &str, body: &Value, stream: RngStream) -> Result<Value, ProviderError> {
        let mut retries = 0;
        loop {
            let booked = self.wait_for_limits(body).await;
            let answer = match self.post(path, body).await {
                Ok(response) => self.text(response).await,
                Err(error) => Err(error),
            };
            let error = match answer {
                Ok(text) => {
                    self.correct_booking(booked, Usage { tokens_in: booked, ..Usage::default() });
                    return serde_json::from_str(&text).map_err(|_| {
                        ProviderError::new(
                            ProviderErrorKind::Garbled,
                            format!("it did not send JSON: {}", super::provider_error::quote(&text)),
                        )
                    });
                }
                Err(error) => error,
            };
            retries += 1;
            match backoff(self.options.first_wait, retries, error.retry_after, stream) {
                Some(wait) if error.is_temporary() && retries <= self.options.retries => sleep(wait).await,
                _ => return Err(error),
            }
        }
    }

    /// Waits until the rate limits allow another request. Books its estimated tokens and returns them.
    async fn wait_for_limits(&self, body: &Value) -> u64 {
        let guess = (body.to_string().len() / BYTES_PER_TOKEN) as u64;
        let wait = {
            let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.created.elapsed();
            let [requests, tokens] = &mut *limiters;
            let requests = requests.as_mut().map_or(Duration::ZERO, |limiter| limiter.book(now, 1));
            requests.max(tokens.as_mut().map_or(Duration::ZERO, |limiter| limiter.book(now, guess)))
        };
        sleep(wait).await;
        guess
    }

    fn correct_booking(&self, booked: u64, usage: Usage) {
        let [_, tokens] = &mut *self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limiter) = tokens {
            limiter.settle(booked, usage.tokens_in.saturating_add(usage.tokens_out));
        }
    }

    /// Whether `error` rejects an optional setting of `body`, which is then left out of this and later requests.
    fn drops_refused_setting(&self, error: &ProviderError, body: &Map<String, Value>) -> bool {
        if matches!(
            error.kind,
            ProviderErrorKind::Key
                | ProviderErrorKind::Quota
                | ProviderErrorKind::Rate
                | ProviderErrorKind::Unreachable
                | ProviderErrorKind::Cut
        ) {
            return false;
        }
        let named = |name: &str| match &error.parameter {
            Some(parameter) => parameter.split('.').next() == Some(name),
            None => error.why.contains(name),
        };
        let Some(name) = OPTIONAL.into_iter().find(|name| body.contains_key(*name) && named(name)) else {
            return false;
        };
        let mut rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        rejected.insert(name, self.credentials.redact(&error.why));
        if name == "logprobs" {
            // It requires `logprobs`.
            rejected.insert("top_logprobs", self.credentials.redact(&error.why));
        }
        true
    }

    fn drop_refused_settings(&self, body: &mut Map<String, Value>) {
        let rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        body.retain(|key, _| !rejected.contains_key(key.as_str()));
    }

    fn finish_reply(&self, mut partial: PartialReply, wanted: &[String]) -> CachedReply {
        let (content, respelled) = partial.settle();
        let rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        let left_out = rejected.iter().filter(|(name, _)| wanted.iter().any(|wanted| wanted == *name));
        let left_out = left_out.map(|(name, why)| format!("{name}: {why}"));
        let cut = partial.cut_reason.take().map(|why| format!("the rest of the reply: {why}"));
        let left_out = left_out.chain(respelled).chain(cut).collect();
        // A stream that the sink stopped has incomplete counts.
        let reported = partial.usage.filter(|_| partial.finish != Some(Finish::Cancelled));
        let written = (partial.thought_tokens.len() + partial.tokens.len()) as u64;
        let counted = Usage { tokens_in: 0, tokens_out: written, tokens_cached: 0 };
        CachedReply {
            content,
            thought: partial.thought.map(|_| partial.thought_tokens),
            tokens: partial.tokens,
            finish: partial.finish.unwrap_or(Finish::Stop),
            usage: reported.unwrap_or(counted),
            usage_reported: reported.is_some(),
            served: partial.served.map(|served| self.credentials.redact(&served)),
            left_out,
        }
    }

    async fn cached(&self, key: &Value) -> Result<Option<CachedReply>, ModelError> {
        let Some(cache) = self.cache.clone() else { return Ok(None) };
        let key = key.clone();
        self.on_disk(move || cache.get(&key)).await
    }

    async fn store(&self, key: Value, answer: CachedReply) -> Result<(), ModelError> {
        let Some(cache) = self.cache.clone() else { return Ok(()) };
        self.on_disk(move || cache.put(&key, &answer)).await
    }

    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, ModelError> {
        let done = tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string()).flatten();
        done.map_err(|why| ModelError::Failed { model: self.info.name.clone(), why })
    }

    fn completion(
        &self,
        answer: CachedReply,
        format: Option<&Arc<ThoughtFormat>>,
        retries: u32,
        replayed: bool,
    ) -> Completion {
        let mut completion = Completion::text(self.info.name.clone(), answer.content);
        let cost = answer.usage_reported.then(|| self.prices.cost(&self.info.name, answer.usage)).flatten();
        completion.tokens = answer.tokens;
        let ended = !completion.message.content.is_empty() || answer.finish == Finish::Stop;
        let mut thought = answer.thought.map(|tokens| (tokens, ended));
        if let Some(format) = format {
            let divided = format.divide(Start::Open, std::mem::take(&mut completion.tokens));
            completion.message.content = text_of(&divided.answer);
            completion.tokens = divided.answer;
            if let Some(tokens) = divided.thought {
                thought = Some((thought.unwrap_or_default().0.into_iter().chain(tokens).collect(), divided.closed));
            }
        }
        if let Some((tokens, ended)) = thought {
            let end = if ended { ThoughtEnd::Closed } else { ThoughtEnd::Unfinished };
            completion.message.thought = Some(Thought { text: text_of(&tokens), ids: None });
            completion.thought = Some(ThoughtTokens { tokens, end });
        }
        completion.finish = answer.finish;
        completion.usage = answer.usage;
        completion.hosted = Some(HostedInfo {
            served: answer.served,
            cost_usd: cost,
            usage_reported: answer.usage_reported,
            replayed,
            retries,
            left_out: answer.left_out,
        });
        completion
    }
}

fn text_of(tokens: &[TokenLogprob]) -> String {
    tokens.iter().map(|token| token.text.as_str()).collect()
}

/// Replays a cached reply into the sink.
fn replay(mut answer: CachedReply, delivery: &mut Delivery<'_>) -> CachedReply {
    if delivery.deliver(answer.thought.as_deref().unwrap_or_default(), &answer.tokens) {
        answer.tokens.truncate(delivery.delivered);
        if let Some(thought) = &mut answer.thought {
            thought.truncate(delivery.thoughts_delivered);
        }
        answer.content = text_of(&answer.tokens);
        answer.finish = Finish::Cancelled;
    } else {
        delivery.finish();
    }
    answer
}

/// A hosted model with settings of thinking; handles of one model share its connection, limits and cache.
pub(super) struct HostedHandle {
    model: Arc<HostedModel>,
    info: ModelInfo,
}

impl HostedHandle {
    pub(super) fn new(model: HostedModel) -> Self {
        Self { info: model.info.clone(), model: Arc::new(model) }
    }
}

impl LanguageModel for HostedHandle {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn with_thinking(&self, thinking: &Thinking) -> Result<Arc<dyn LanguageModel>, ModelError> {
        let settings = self.info.thinking_settings.with(thinking);
        if settings.tokens_max.is_some() {
            let why = "a budget for its thoughts cannot be enforced; leave it out, or use a local model";
            return Err(self.model.unsupported(why));
        }
        let markers = settings.markers.as_deref().unwrap_or_default();
        let format = ThoughtFormat::of_markers(markers).map_err(|why| self.model.unsupported(why))?;
        // What an invalid request would say at its first call.
        let request = Request { thinking: settings.clone(), ..empty_request() };
        self.model.body(&[], &request).map_err(|why| self.model.unsupported(why))?;
        let on = settings.enabled != Some(false) && (format.is_some() || settings.enabled.is_some());
        let [open, close] = format.as_ref().map_or_else(Default::default, |format| [format.open(), format.close()]);
        let thinking = on.then(|| ThinkingInfo::new(open.to_owned(), close.to_owned(), None, true));
        let info = ModelInfo { thinking, thinking_settings: settings, ..self.info.clone() };
        Ok(Arc::new(Self { model: Arc::clone(&self.model), info }))
    }

    fn complete<'a>(
        &'a self,
        request: Request,
        sink: Option<Box<dyn TokenSink + 'a>>,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        let thinking = self.info.thinking_settings.with(&request.thinking);
        Box::pin(self.model.reply(Request { thinking, ..request }, sink))
    }

    fn score(&self, request: Request, continuation: Continuation) -> BoxFuture<'_, Result<Scored, ModelError>> {
        Box::pin(self.model.score_by_echo(request, continuation))
    }
}

fn empty_request() -> Request {
    Request::new(
        Prompt::Chat(Vec::new()),
        Sampling { temperature: 1.0, top_p: 1.0, ..Sampling::default() },
        RngStream::root(0),
    )
}
