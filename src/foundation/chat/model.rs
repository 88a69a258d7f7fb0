//! The traits [`LanguageModel`] and [`Embedder`], with their requests and results.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    DeltaGains, Message, ModelError, Sampling, Snapshot, SsmStats, Thinking, ThinkingInfo, ThoughtTokens, TokenId,
    TokenLogprob, TokenSink, Vocabulary,
};
use crate::foundation::base::limits::{REPLY_ASKED_TOKENS_MAX, THOUGHT_TOKENS_MAX};
use crate::foundation::base::{Digest, RngStream};
use crate::foundation::gate::CallPermit;

/// A future that can be sent between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A thought uses at most 1 / this of a model's window, unless its budget is set.
const THOUGHT_WINDOW_SHARE: usize = 6;

/// A model that continues a prompt.
pub trait LanguageModel: Send + Sync {
    /// Static properties of the model.
    fn info(&self) -> &ModelInfo;

    /// The number of tokens of the messages in the chat template; `None` if it is not known.
    fn count(&self, _messages: &[Message]) -> Option<usize> {
        None
    }

    /// The tokenizer, for callers that work with token ids; `None` if it is not available.
    fn vocabulary(&self) -> Option<&dyn Vocabulary> {
        None
    }

    /// The same model with other settings of how it thinks and of what its chat template is told, for all requests that do
    /// not set them.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] if it does not take them.
    fn with_thinking(&self, _thinking: &Thinking) -> Result<Arc<dyn LanguageModel>, ModelError> {
        Err(ModelError::Unsupported {
            model: self.info().name.clone(),
            why: "it has no chat template that settings of thinking could be given to; leave them out".to_owned(),
        })
    }

    /// Generates one reply. `sink` receives every token as it is generated and may end the reply.
    ///
    /// # Errors
    /// See [`ModelError`]. A refusal by the model is no error: it is [`Finish::Refusal`].
    fn complete<'a>(
        &'a self,
        request: Request,
        sink: Option<Box<dyn TokenSink + 'a>>,
    ) -> BoxFuture<'a, Result<Completion, ModelError>>;

    /// Log-probabilities of `continuation` after the request's prompt (teacher forcing). Of the request's sampling only
    /// `top_logprobs` is used.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] if the model gives no prompt log-probabilities.
    fn score(&self, request: Request, continuation: Continuation) -> BoxFuture<'_, Result<Scored, ModelError>>;

    /// Scores several continuations of one prompt independently and returns them in order. The prompt is read only once
    /// if the model supports that.
    ///
    /// # Errors
    /// As [`score`](Self::score); an error for one continuation fails the whole call.
    fn score_each(
        &self,
        mut request: Request,
        continuations: Vec<Continuation>,
    ) -> BoxFuture<'_, Result<Vec<Scored>, ModelError>> {
        Box::pin(async move {
            let mut each = Vec::with_capacity(continuations.len());
            for continuation in continuations {
                let scored = self.score(request.clone(), continuation).await?;
                request.after = scored.before.clone().or(request.after);
                each.push(scored);
            }
            Ok(each)
        })
    }
}

/// A model that embeds texts as vectors.
pub trait Embedder: Send + Sync {
    /// One unit-length vector per text.
    fn embed<'a>(&'a self, texts: &'a [&'a str]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, ModelError>>;
}

/// Static properties of a model. `None` means unknown.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelInfo {
    /// The spec string with which the model was opened, or the name of the model within a fallback chain.
    pub name: String,
    /// The combined digest of weights, tokenizer and configuration.
    pub digest: Option<Digest>,
    /// The type of most of its weights: `f32`, `bf16`, `q8_0` or `q4_k`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// Where a local model runs: `cpu`, or a GPU with its name and its matrix library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The provider of a local model's network, with what does not hold there; `None` if it is Loom's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The digest of the chat template's text; `None` for a model without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Digest>,
    /// Number of layers, for per-layer gains.
    pub layers: Option<usize>,
    /// Vocabulary size.
    pub vocabulary: Option<usize>,
    /// Context length: a hard limit for attention, the training length for a recurrent model.
    pub window_tokens: Option<usize>,
    /// Most tokens of instructions that it should be given.
    pub prompt_tokens_max: Option<usize>,
    /// Whether it gives raw log-probabilities.
    pub logprobs: bool,
    /// Whether it supports [`DeltaGains`].
    pub delta: bool,
    /// The model's default sampling, with its default stop texts.
    pub sampling: Option<Sampling>,
    /// How it thinks before it answers; `None` for a model that does not, or of which it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingInfo>,
    /// The settings of thinking in force; absent if none is set.
    #[serde(default, skip_serializing_if = "Thinking::is_default")]
    pub thinking_settings: Thinking,
}

impl ModelInfo {
    /// Most tokens of a thought before an answer of limited length; `None` for a model that does not think.
    pub fn thought_tokens_max(&self) -> Option<usize> {
        self.thinking.as_ref().filter(|thinking| thinking.on)?;
        let window = self.window_tokens.map_or(usize::MAX, |window| (window / THOUGHT_WINDOW_SHARE).max(1));
        Some(self.thinking_settings.tokens_max.unwrap_or(THOUGHT_TOKENS_MAX.min(window)))
    }
}

/// The input of a request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Prompt {
    /// A conversation, rendered with the model's chat template.
    Chat(Vec<Message>),
    /// Plain text without a template.
    Text(String),
    /// Token ids.
    Ids(Vec<TokenId>),
}

/// The text to score after a prompt.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Continuation {
    /// Text, tokenised separately from the prompt.
    Text(String),
    /// Token ids.
    Ids(Vec<TokenId>),
}

/// One call of a model.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request {
    /// The complete prompt, including the part that `after` has already read.
    pub prompt: Prompt,
    /// The state to continue from. The model checks that the prompt begins with what the snapshot has read.
    pub after: Option<Snapshot>,
    /// Sampling settings.
    pub sampling: Sampling,
    /// The random stream; token number `i` of the reply uses position `i`.
    pub stream: RngStream,
    /// Gains on Δ for all tokens that this request reads or generates; `None` is no modulation.
    pub gains: Option<DeltaGains>,
    /// Whether to return statistics of the recurrent state. It changes nothing else in the result; the prompt then does
    /// not use the shared-prefix cache.
    pub record_ssm: bool,
    /// Whether the final state is needed. If not, the last token of a scored continuation is not read, and
    /// [`Scored::snapshot`] is `None`. It changes nothing else in the result.
    pub keep_state: bool,
    /// How to think before the answer, over the settings that the model was opened with.
    pub thinking: Thinking,
    /// The permit that the call counts against. Without one, the guard of the model authorises the call, if it has one.
    pub permit: Option<CallPermit>,
}

impl Request {
    /// A request without a snapshot to continue from and without modulation.
    pub fn new(prompt: Prompt, sampling: Sampling, stream: RngStream) -> Self {
        Self {
            prompt,
            after: None,
            sampling,
            stream,
            gains: None,
            record_ssm: false,
            keep_state: true,
            thinking: Thinking::default(),
            permit: None,
        }
    }

    /// Adds room for a thought before the answer to `max_tokens`, if `model` thinks: its budget, or
    /// [`THOUGHT_TOKENS_MAX`] tokens, at most a sixth of the window. The thought is closed there, so that it does not take
    /// the place of the answer.
    pub fn allow_thought(&mut self, model: &ModelInfo) {
        let thought = model.thought_tokens_max().map(|most| most.min(REPLY_ASKED_TOKENS_MAX - 1));
        let answer = self.sampling.max_tokens.min(REPLY_ASKED_TOKENS_MAX - thought.unwrap_or_default());
        self.sampling.max_tokens = answer + thought.unwrap_or_default();
        self.thinking.tokens_max = self.thinking.tokens_max.or(thought);
    }
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finish {
    /// The model ended its turn, or a stop text was generated.
    Stop,
    /// `max_tokens` was reached, or the window is full.
    Length,
    /// The [`TokenSink`] ended it.
    #[serde(rename = "asked")]
    Cancelled,
    /// The provider reported a refusal.
    Refusal,
}

/// Whether a prompt was read from the beginning or continued from a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PrefixReuse {
    /// Only the tokens after the snapshot were read.
    Continued,
    /// Read from the beginning: no snapshot was given.
    Fresh,
    /// Read from the beginning although a snapshot was given, because the prompt does not continue from it.
    Reread,
}

/// Token counts of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt, including cached ones.
    pub tokens_in: u64,
    /// Tokens of the reply, including the one that ended it.
    pub tokens_out: u64,
    /// Those of `tokens_in` that were cached.
    pub tokens_cached: u64,
}

/// Details of a hosted model's reply.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HostedInfo {
    /// The model name in the provider's response, often more specific than the requested one.
    pub served: Option<String>,
    /// List price of the tokens, US dollars; `None` if the price or the usage is not known.
    pub cost_usd: Option<f64>,
    /// Whether the provider reported its usage. If not, [`Completion::usage`] counts the received chunks, and the prompt
    /// as 0.
    #[serde(rename = "usage_told")]
    pub usage_reported: bool,
    /// Whether the reply came from the response cache, without a request to the provider.
    pub replayed: bool,
    /// Number of retries.
    pub retries: u32,
    /// Requested settings that the provider did not apply, each with the reason.
    pub left_out: Vec<String>,
}

/// A reply.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Completion {
    /// The answer as a message from [`Role::Assistant`](super::Role::Assistant), with token ids if they are known, and the
    /// text of the thought before it.
    pub message: Message,
    /// The tokens of the thought before the answer; `None` if there was none.
    pub thought: Option<ThoughtTokens>,
    /// The tokens of the answer, in order.
    pub tokens: Vec<TokenLogprob>,
    /// The token that ended the reply, if there was one and it is known; it is not in `tokens`.
    pub end: Option<TokenLogprob>,
    /// Why the reply ended.
    pub finish: Finish,
    /// Tokens read and written.
    pub usage: Usage,
    /// How much of the prompt was reused from a snapshot.
    pub prefix_reuse: PrefixReuse,
    /// The name of the model that generated the reply.
    pub model: String,
    /// The state after the reply, to continue from.
    pub snapshot: Option<Snapshot>,
    /// The state before the reply, to retry from.
    pub before: Option<Snapshot>,
    /// Models of the fallback chain that failed before this one, each with its error.
    pub fallbacks: Vec<(String, String)>,
    /// Provider details; `None` for a local model.
    pub hosted: Option<HostedInfo>,
    /// Statistics of the recurrent state; `None` if not requested, or if the model has none.
    pub ssm: Option<SsmStats>,
}

impl Completion {
    /// A reply with text only.
    pub fn text(model: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            message: Message::assistant(content),
            thought: None,
            tokens: Vec::new(),
            end: None,
            finish: Finish::Stop,
            usage: Usage::default(),
            prefix_reuse: PrefixReuse::Fresh,
            model: model.into(),
            snapshot: None,
            before: None,
            fallbacks: Vec::new(),
            hosted: None,
            ssm: None,
        }
    }
}

/// A scored continuation.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Scored {
    /// The tokens of the continuation with their log-probabilities.
    pub tokens: Vec<TokenLogprob>,
    /// Token counts.
    pub usage: Usage,
    /// How much of the prompt was reused from a snapshot.
    pub prefix_reuse: PrefixReuse,
    /// The state after the continuation; `None` if [`Request::keep_state`] was false.
    pub snapshot: Option<Snapshot>,
    /// The state before the continuation, to score another one from.
    pub before: Option<Snapshot>,
    /// Statistics of the recurrent state; `None` if not requested, or if the model has none.
    pub ssm: Option<SsmStats>,
}

impl Scored {
    /// A score of `tokens`, without a snapshot before them.
    pub fn new(tokens: Vec<TokenLogprob>, usage: Usage, prefix_reuse: PrefixReuse, snapshot: Option<Snapshot>) -> Self {
        Self { tokens, usage, prefix_reuse, snapshot, before: None, ssm: None }
    }

    /// The continuation's log-likelihood in nats; `None` if any token's is unknown.
    pub fn logprob(&self) -> Option<f64> {
        self.tokens.iter().map(|token| token.logprob.map(f64::from)).sum()
    }
}
