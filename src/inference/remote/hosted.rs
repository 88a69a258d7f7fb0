//! One hosted model: asks, waits, asks again, lets listeners hear, keeps replies.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use reqwest::{Client, Response};
use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};

use super::cache::{Answer, Responses};
use super::draft::Draft;
use super::fault::{Fault, Kind};
use super::keys::Account;
use super::pace::{Meter, backoff};
use super::prices::Prices;
use super::sse::Events;
use super::{Ask, Dialect, RemoteOptions, causes};
use crate::foundation::base::Stream;
use crate::foundation::base::limits::REMOTE_ANSWER_BYTES_MAX;
use crate::foundation::chat::{
    BoxFuture, Completion, Continuation, DeltaGains, Finish, Flow, Hosted, LanguageModel, LayerGains, Message,
    ModelError, ModelInfo, Prompt, Request, Sampling, Scored, TokenLogprob, TokenSink, Usage,
};

/// Settings that change what is reported, not what is said. A provider that refuses one is asked without it.
const OPTIONAL: [&str; 4] = ["top_logprobs", "logprobs", "stream_options", "seed"];
/// So many bytes of a request are taken for a token until the provider has counted.
const BYTES_PER_TOKEN: usize = 4;

pub(super) struct HostedModel {
    pub(super) info: ModelInfo,
    /// Its name at the provider.
    pub(super) name: String,
    pub(super) dialect: Box<dyn Dialect>,
    pub(super) account: Account,
    client: Client,
    prices: Prices,
    cache: Option<Responses>,
    options: RemoteOptions,
    begun: Instant,
    meters: Mutex<[Option<Meter>; 2]>,
    /// Optional settings that the provider refused, with its words.
    refused: Mutex<BTreeMap<&'static str, String>>,
    /// Whether the server scores prompts; known once it was tried.
    pub(super) echoes: OnceCell<()>,
}

/// A sink and what it has heard.
struct Listener<'a> {
    sink: Option<Box<dyn TokenSink + 'a>>,
    heard: usize,
}

impl Listener<'_> {
    /// Lets the sink hear what is new; `true` once it wants no more.
    fn hear(&mut self, tokens: &[TokenLogprob]) -> bool {
        let Some(sink) = &mut self.sink else { return false };
        for token in tokens.iter().skip(self.heard) {
            self.heard += 1;
            if sink.token(token) == Flow::Stop {
                return true;
            }
        }
        false
    }
}

impl HostedModel {
    pub(super) fn new(
        spec: String,
        name: String,
        dialect: Box<dyn Dialect>,
        account: Account,
        options: &RemoteOptions,
    ) -> Result<Self, String> {
        let cache = options.cache.as_deref().map(Responses::open).transpose();
        let cache =
            cache.map_err(|error| format!("its response cache cannot be made: {error}; name another folder"))?;
        let client = Client::builder()
            .connect_timeout(options.connect)
            // A key must not follow to another host.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("loom/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| format!("no connection can be made: {error}"))?;
        let sampling = Sampling { temperature: 1.0, top_p: 1.0, ..Sampling::default() };
        let meters = [options.requests_per_minute, options.tokens_per_minute].map(|limit| limit.map(Meter::new));
        Ok(Self {
            info: ModelInfo { name: spec, sampling: Some(sampling), ..ModelInfo::default() },
            name,
            dialect,
            account,
            client,
            prices: Prices::load()?,
            cache,
            options: options.clone(),
            begun: Instant::now(),
            meters: Mutex::new(meters),
            refused: Mutex::default(),
            echoes: OnceCell::new(),
        })
    }

    pub(super) fn unsupported(&self, why: impl Into<String>) -> ModelError {
        ModelError::Unsupported { model: self.info.name.clone(), why: why.into() }
    }

    pub(super) fn told(&self, mut fault: Fault) -> ModelError {
        fault.why = self.account.redact(&fault.why);
        fault.told(&self.info.name, self.account.variable)
    }

    async fn reply(&self, request: Request, sink: Option<Box<dyn TokenSink + '_>>) -> Result<Completion, ModelError> {
        let Prompt::Chat(messages) = &request.prompt else {
            return Err(self.unsupported("it takes conversations only, neither bare text nor token ids"));
        };
        self.check(request.gains.as_ref())?;
        let body = self.body(messages, &request.sampling, request.stream).map_err(|why| self.unsupported(why))?;
        // Left out of the key: how the answer travels.
        let mut asked = body.clone();
        asked.retain(|key, _| !matches!(key.as_str(), "stream" | "stream_options"));
        let drawn = request.sampling.temperature > 0.0;
        let place = drawn.then(|| [request.stream.bits(0), request.stream.bits(1)].map(|bits| format!("{bits:016x}")));
        let key = json!({"dialect": self.dialect.name(), "url": self.account.url, "body": asked, "place": place});
        let mut listener = Listener { sink, heard: 0 };
        if let Some(answer) = self.kept(&key).await? {
            return Ok(self.replay(answer, &mut listener));
        }
        let (answer, retries) = self.ask(body, request.stream, &mut listener).await?;
        if answer.finish != Finish::Asked && !answer.content.trim().is_empty() {
            self.keep(key, answer.clone()).await?;
        }
        Ok(self.completion(answer, retries, false))
    }

    pub(super) fn check(&self, gains: Option<&DeltaGains>) -> Result<(), ModelError> {
        let neutral = match gains {
            None => true,
            Some(DeltaGains::Uniform(gains)) => *gains == LayerGains::ONE,
            Some(DeltaGains::PerLayer(layers)) => layers.iter().all(|gains| *gains == LayerGains::ONE),
        };
        if neutral { Ok(()) } else { Err(self.unsupported("it has no Δ to modulate; use `bundled` or `local:DIR`")) }
    }

    fn body(&self, messages: &[Message], sampling: &Sampling, stream: Stream) -> Result<Map<String, Value>, String> {
        // 31 bits: servers differ in what integers they take.
        let seed = (sampling.temperature > 0.0).then(|| (stream.bits(0) >> 33) as u32);
        self.dialect.body(&Ask { model: &self.name, messages, sampling, seed })
    }

    /// Asks until there is an answer; how often it was asked again is told as well.
    async fn ask(
        &self,
        mut body: Map<String, Value>,
        stream: Stream,
        listener: &mut Listener<'_>,
    ) -> Result<(Answer, u32), ModelError> {
        let wanted: Vec<_> = body.keys().cloned().collect();
        self.leave_out(&mut body);
        let mut retries = 0;
        loop {
            let value = Value::Object(body.clone());
            let booked = self.wait(&value).await;
            let asked = body.get("top_logprobs").and_then(Value::as_u64).map(|top| top as usize);
            let mut draft = Draft::of(asked);
            let fault = match self.once(&value, &mut draft, listener).await {
                Ok(()) => {
                    let answer = self.answer(draft, &wanted);
                    self.settle(booked, answer.usage);
                    return Ok((answer, retries));
                }
                Err(fault) => fault,
            };
            // What was heard cannot be unheard: a second answer would come on top of it.
            if listener.heard > 0 {
                return Err(self.told(fault));
            }
            if self.refuses(&fault, &body) {
                self.leave_out(&mut body);
                continue;
            }
            retries += 1;
            match backoff(self.options.first_wait, retries, fault.retry_after, stream) {
                Some(wait) if fault.passes() && retries <= self.options.retries => sleep(wait).await,
                _ => return Err(self.told(fault)),
            }
        }
    }

    /// One request and its answer.
    async fn once(&self, body: &Value, draft: &mut Draft, listener: &mut Listener<'_>) -> Result<(), Fault> {
        let mut chunks = self.post(self.dialect.path(), body).await?.bytes_stream();
        let mut events = Events::default();
        let mut patience = self.options.first_byte;
        let mut bytes = 0usize;
        let cut = |why: String, draft: &Draft| {
            Fault::new(Kind::Cut, format!("the answer broke off after {} tokens ({why})", draft.tokens.len()))
        };
        loop {
            let chunk = match timeout(patience, chunks.next()).await {
                Err(_) => return Err(cut(format!("silence for {patience:?}"), draft)),
                Ok(None) if draft.finish.is_some() => return Ok(()),
                Ok(None) => return Err(cut("its end is missing".to_owned(), draft)),
                Ok(Some(Err(error))) => return Err(cut(causes(&error), draft)),
                Ok(Some(Ok(chunk))) => chunk,
            };
            patience = self.options.idle;
            bytes = bytes.saturating_add(chunk.len());
            if bytes > REMOTE_ANSWER_BYTES_MAX {
                let why = format!("its answer is larger than {REMOTE_ANSWER_BYTES_MAX} bytes");
                if draft.tokens.is_empty() {
                    return Err(Fault::new(Kind::Garbled, why));
                }
                // What came was heard: it is the reply, and the answer says that there was more.
                draft.finish = Some(Finish::Length);
                draft.cut = Some(why);
                return Ok(());
            }
            let read = events.push(&chunk);
            for event in read.map_err(|why| Fault::new(Kind::Garbled, format!("its stream is no stream: {why}")))? {
                self.dialect.event(&event, draft)?;
                if listener.hear(&draft.tokens) {
                    draft.tokens.truncate(listener.heard);
                    draft.finish = Some(Finish::Asked);
                    return Ok(());
                }
                if draft.over && draft.finish.is_some() {
                    return Ok(());
                }
            }
        }
    }

    /// Sends `body`; an answer that is not 2xx is a fault.
    async fn post(&self, path: &str, body: &Value) -> Result<Response, Fault> {
        let headers = self.dialect.headers(&self.account).map_err(|why| Fault::new(Kind::Key, why))?;
        let send = self.client.post(format!("{}{path}", self.account.url)).headers(headers).json(body).send();
        let response = match timeout(self.options.first_byte, send).await {
            Err(_) => {
                let why = format!("no answer from {} within {:?}", self.account.url, self.options.first_byte);
                return Err(Fault::new(Kind::Unreachable, why));
            }
            Ok(Err(error)) => {
                let why = format!("{} cannot be reached ({})", self.account.url, causes(&error));
                return Err(Fault::new(Kind::Unreachable, why));
            }
            Ok(Ok(response)) => response,
        };
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let text = self.text(response).await.unwrap_or_default();
        Err(Fault::of_answer(status, &headers, &text))
    }

    /// An answer that is no stream.
    async fn text(&self, response: Response) -> Result<String, Fault> {
        let mut chunks = response.bytes_stream();
        let mut bytes = Vec::new();
        let cut = |why: String| Fault::new(Kind::Cut, format!("the answer broke off ({why})"));
        while let Some(chunk) =
            timeout(self.options.idle, chunks.next()).await.map_err(|_| cut("silence".to_owned()))?
        {
            bytes.extend_from_slice(&chunk.map_err(|error| cut(causes(&error)))?);
            if bytes.len() > REMOTE_ANSWER_BYTES_MAX {
                let why = format!("its answer is larger than {REMOTE_ANSWER_BYTES_MAX} bytes");
                return Err(Fault::new(Kind::Garbled, why));
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Asks for something that is not a stream, as often as it takes.
    pub(super) async fn json(&self, path: &str, body: &Value, stream: Stream) -> Result<Value, Fault> {
        let mut retries = 0;
        loop {
            let booked = self.wait(body).await;
            let answer = match self.post(path, body).await {
                Ok(response) => self.text(response).await,
                Err(fault) => Err(fault),
            };
            let fault = match answer {
                Ok(text) => {
                    self.settle(booked, Usage { tokens_in: booked, ..Usage::default() });
                    return serde_json::from_str(&text).map_err(|_| {
                        Fault::new(Kind::Garbled, format!("it sent no JSON: {}", super::fault::quote(&text)))
                    });
                }
                Err(fault) => fault,
            };
            retries += 1;
            match backoff(self.options.first_wait, retries, fault.retry_after, stream) {
                Some(wait) if fault.passes() && retries <= self.options.retries => sleep(wait).await,
                _ => return Err(fault),
            }
        }
    }

    /// Waits until the limits allow another request; its guessed tokens are booked and returned.
    async fn wait(&self, body: &Value) -> u64 {
        let guess = (body.to_string().len() / BYTES_PER_TOKEN) as u64;
        let wait = {
            let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.begun.elapsed();
            let [requests, tokens] = &mut *meters;
            let requests = requests.as_mut().map_or(Duration::ZERO, |meter| meter.book(now, 1));
            requests.max(tokens.as_mut().map_or(Duration::ZERO, |meter| meter.book(now, guess)))
        };
        sleep(wait).await;
        guess
    }

    fn settle(&self, booked: u64, usage: Usage) {
        let [_, tokens] = &mut *self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(meter) = tokens {
            meter.settle(booked, usage.tokens_in.saturating_add(usage.tokens_out));
        }
    }

    /// Whether `fault` is about an optional setting of `body`, which is then left out from now on.
    fn refuses(&self, fault: &Fault, body: &Map<String, Value>) -> bool {
        if matches!(fault.kind, Kind::Key | Kind::Quota | Kind::Rate | Kind::Unreachable | Kind::Cut) {
            return false;
        }
        let named = |name: &str| match &fault.parameter {
            Some(parameter) => parameter.split('.').next() == Some(name),
            None => fault.why.contains(name),
        };
        let Some(name) = OPTIONAL.into_iter().find(|name| body.contains_key(*name) && named(name)) else {
            return false;
        };
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.insert(name, self.account.redact(&fault.why));
        if name == "logprobs" {
            // Means nothing without it.
            refused.insert("top_logprobs", self.account.redact(&fault.why));
        }
        true
    }

    fn leave_out(&self, body: &mut Map<String, Value>) {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        body.retain(|key, _| !refused.contains_key(key.as_str()));
    }

    fn answer(&self, mut draft: Draft, wanted: &[String]) -> Answer {
        let (content, respelled) = draft.settle();
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let left_out = refused.iter().filter(|(name, _)| wanted.iter().any(|wanted| wanted == *name));
        let left_out = left_out.map(|(name, why)| format!("{name}: {why}"));
        let cut = draft.cut.take().map(|why| format!("the rest of the reply: {why}"));
        let left_out = left_out.chain(respelled).chain(cut).collect();
        // A stream that a listener ended told its counts only in part.
        let told = draft.usage.filter(|_| draft.finish != Some(Finish::Asked));
        let heard = Usage { tokens_in: 0, tokens_out: draft.tokens.len() as u64, tokens_cached: 0 };
        Answer {
            content,
            tokens: draft.tokens,
            finish: draft.finish.unwrap_or(Finish::Stop),
            usage: told.unwrap_or(heard),
            usage_told: told.is_some(),
            served: draft.served.map(|served| self.account.redact(&served)),
            left_out,
        }
    }

    async fn kept(&self, key: &Value) -> Result<Option<Answer>, ModelError> {
        let Some(cache) = self.cache.clone() else { return Ok(None) };
        let key = key.clone();
        self.on_disk(move || cache.get(&key)).await
    }

    async fn keep(&self, key: Value, answer: Answer) -> Result<(), ModelError> {
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

    /// A kept answer, heard as if it came now.
    fn replay(&self, mut answer: Answer, listener: &mut Listener<'_>) -> Completion {
        if listener.hear(&answer.tokens) {
            answer.tokens.truncate(listener.heard);
            answer.content = answer.tokens.iter().map(|token| token.text.as_str()).collect();
            answer.finish = Finish::Asked;
        }
        self.completion(answer, 0, true)
    }

    fn completion(&self, answer: Answer, retries: u32, replayed: bool) -> Completion {
        let mut completion = Completion::text(self.info.name.clone(), answer.content);
        let cost = answer.usage_told.then(|| self.prices.cost(&self.info.name, answer.usage)).flatten();
        completion.tokens = answer.tokens;
        completion.finish = answer.finish;
        completion.usage = answer.usage;
        completion.hosted = Some(Hosted {
            served: answer.served,
            cost_usd: cost,
            usage_told: answer.usage_told,
            replayed,
            retries,
            left_out: answer.left_out,
        });
        completion
    }
}

impl LanguageModel for HostedModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn complete<'a>(
        &'a self,
        request: Request,
        sink: Option<Box<dyn TokenSink + 'a>>,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(self.reply(request, sink))
    }

    fn score(&self, request: Request, continuation: Continuation) -> BoxFuture<'_, Result<Scored, ModelError>> {
        Box::pin(self.likelihood(request, continuation))
    }
}
