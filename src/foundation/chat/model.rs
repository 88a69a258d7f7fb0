//! The contract between Loom and whatever generates text.

use std::future::Future;
use std::pin::Pin;

use serde::{Deserialize, Serialize};

use super::{DeltaGains, Message, Sampling, Snapshot, SsmReading, TokenId, TokenLogprob, TokenSink, Vocabulary};
use crate::foundation::base::{Digest, Stream};

/// A future that can be sent between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Something that continues a conversation.
pub trait LanguageModel: Send + Sync {
    /// What is known of the model before it is asked anything.
    fn info(&self) -> &ModelInfo;

    /// How many tokens the messages take, with everything the chat template adds; `None` when the model cannot tell.
    fn count(&self, _messages: &[Message]) -> Option<usize> {
        None
    }

    /// The model's tokens, for those who speak in ids; `None` where they are not known here.
    fn vocabulary(&self) -> Option<&dyn Vocabulary> {
        None
    }

    /// One reply. `sink` hears every token as it comes and may end the reply.
    ///
    /// # Errors
    /// See [`ModelError`]. A refusal is no error: it is a [`Finish`].
    fn complete<'a>(
        &'a self,
        request: Request,
        sink: Option<Box<dyn TokenSink + 'a>>,
    ) -> BoxFuture<'a, Result<Completion, ModelError>>;

    /// How likely `continuation` is after the request's prompt, token by token (teacher forcing). The request's
    /// sampling decides only how many alternatives are reported.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] where the model cannot give prompt log-probabilities.
    fn score(&self, request: Request, continuation: Continuation) -> BoxFuture<'_, Result<Scored, ModelError>>;

    /// The same of several continuations that know nothing of each other: how likely each is by itself, in their order. The
    /// prompt is read once where the model can do that.
    ///
    /// # Errors
    /// As those of [`score`](Self::score); nothing is told then of any of them.
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

/// Something that turns text into a vector.
pub trait Embedder: Send + Sync {
    /// One unit-length vector per text.
    fn embed<'a>(&'a self, texts: &'a [&'a str]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, ModelError>>;
}

/// What is known of a model before it is asked anything. `None` means unknown.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelInfo {
    /// The spec string under which the model was opened, or the name of the link of a chain.
    pub name: String,
    /// The digest of weights, tokenizer and configuration together.
    pub digest: Option<Digest>,
    /// The number type in which most of its weights are kept: `f32`, `bf16`, `q8_0` or `q4_k`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// Where a model of this process runs: `cpu`, or a GPU with its name and the library for products of many rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The digest of the chat template's text; `None` for a model without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Digest>,
    /// Number of layers, for per-layer gains.
    pub layers: Option<usize>,
    /// Vocabulary size.
    pub vocabulary: Option<usize>,
    /// How many tokens the model reads well: a hard limit for attention, the trained length for a recurrent model.
    pub window_tokens: Option<usize>,
    /// How many tokens of instructions to give it at most.
    pub prompt_tokens_max: Option<usize>,
    /// Raw log-probabilities come with every token.
    pub logprobs: bool,
    /// Understands [`DeltaGains`].
    pub delta: bool,
    /// The model's own sampling defaults, and its default stop texts.
    pub sampling: Option<Sampling>,
}

/// What comes before the reply.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Prompt {
    /// A conversation, put into the model's chat template.
    Chat(Vec<Message>),
    /// Bare text, tokenised as it is.
    Text(String),
    /// Bare token ids.
    Ids(Vec<TokenId>),
}

/// What to score after a prompt.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Continuation {
    /// Text, tokenised on its own.
    Text(String),
    /// Token ids, as they were generated.
    Ids(Vec<TokenId>),
}

/// One call of a model.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request {
    /// Everything before the reply, from the beginning, even when `after` has read most of it.
    pub prompt: Prompt,
    /// What has been read already. Whether the prompt continues from it is checked, never assumed.
    pub after: Option<Snapshot>,
    /// How to sample.
    pub sampling: Sampling,
    /// Where the draws come from; the draw for the reply's token number `i` is at position `i`.
    pub stream: Stream,
    /// Gains on Δ for every token read or written by this request; `None` is no modulation.
    pub gains: Option<DeltaGains>,
    /// Whether to tell what the recurrent state did meanwhile. It changes nothing else of the answer; a prompt is then
    /// read by itself, and shares no opening with others.
    pub readings: bool,
    /// Whether somebody may go on from the end. If not, a scored continuation's last token is not read, for nothing is asked
    /// of what comes after it, and [`Scored::snapshot`] is `None`. It changes nothing else of the answer.
    pub goes_on: bool,
}

impl Request {
    /// A request from the beginning, without modulation.
    pub fn new(prompt: Prompt, sampling: Sampling, stream: Stream) -> Self {
        Self { prompt, after: None, sampling, stream, gains: None, readings: false, goes_on: true }
    }
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finish {
    /// The model ended its turn, or a stop text came.
    Stop,
    /// `max_tokens` was reached, or the window is full.
    Length,
    /// The listener asked for it.
    Asked,
    /// The provider says that the model refused.
    Refusal,
}

/// How much of a prompt was read for a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reading {
    /// Only what came after the snapshot.
    Continued,
    /// From the beginning: no snapshot was given.
    Fresh,
    /// From the beginning although a snapshot was given, because the prompt does not continue from it.
    Reread,
}

/// Tokens read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// The prompt's tokens, cached ones included.
    pub tokens_in: u64,
    /// The reply's tokens, the one that ended it included.
    pub tokens_out: u64,
    /// Those of `tokens_in` that needed no reading.
    pub tokens_cached: u64,
}

/// What is known of a reply that a hosted model gave.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Hosted {
    /// The model, as the provider names it in its answer: often more exact than the name that was asked for.
    pub served: Option<String>,
    /// The list price of the tokens, US dollars; `None` where a price or the usage is not known.
    pub cost_usd: Option<f64>,
    /// The provider told how many tokens it read and wrote. If not, [`Completion::usage`] counts the pieces that were
    /// heard, and no prompt.
    pub usage_told: bool,
    /// Read from the response cache: nobody was asked and nothing was paid.
    pub replayed: bool,
    /// How often the request was sent again.
    pub retries: u32,
    /// What was asked for and not given, each with why.
    pub left_out: Vec<String>,
}

/// A reply.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Completion {
    /// The reply as a message from [`Role::Assistant`](super::Role::Assistant), with its token ids where they are known.
    pub message: Message,
    /// Its tokens, in order.
    pub tokens: Vec<TokenLogprob>,
    /// The token that ended the reply, where one did and the model tells: it is no part of `tokens`.
    pub end: Option<TokenLogprob>,
    /// Why it ended.
    pub finish: Finish,
    /// Tokens read and written.
    pub usage: Usage,
    /// How the prompt was read.
    pub reading: Reading,
    /// The name of the model that really answered.
    pub model: String,
    /// Everything read and written so far, the reply included, to continue from.
    pub snapshot: Option<Snapshot>,
    /// Everything read before the reply, to try again from.
    pub before: Option<Snapshot>,
    /// The models tried before the one that answered, each with why it did not.
    pub fallbacks: Vec<(String, String)>,
    /// About the provider; `None` for a model inside the process.
    pub hosted: Option<Hosted>,
    /// What the recurrent state did; `None` where it was not asked for, or there is none.
    pub ssm: Option<SsmReading>,
}

impl Completion {
    /// A reply of which only the text is known.
    pub fn text(model: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            message: Message::assistant(content),
            tokens: Vec::new(),
            end: None,
            finish: Finish::Stop,
            usage: Usage::default(),
            reading: Reading::Fresh,
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
    /// The continuation's tokens with their log-probabilities.
    pub tokens: Vec<TokenLogprob>,
    /// Tokens read.
    pub usage: Usage,
    /// How the prompt was read.
    pub reading: Reading,
    /// Everything read, the continuation included; `None` where nobody was to go on from there.
    pub snapshot: Option<Snapshot>,
    /// Everything read before the continuation, to score another one from.
    pub before: Option<Snapshot>,
    /// What the recurrent state did; `None` where it was not asked for, or there is none.
    pub ssm: Option<SsmReading>,
}

impl Scored {
    /// A score over `tokens`, without a snapshot before them.
    pub fn new(tokens: Vec<TokenLogprob>, usage: Usage, reading: Reading, snapshot: Option<Snapshot>) -> Self {
        Self { tokens, usage, reading, snapshot, before: None, ssm: None }
    }

    /// The continuation's log-likelihood in nats; `None` if any token's is unknown.
    pub fn logprob(&self) -> Option<f64> {
        self.tokens.iter().map(|token| token.logprob.map(f64::from)).sum()
    }
}

/// Why a model gave no reply. Every message says what to do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The model cannot be opened or reached.
    #[error("model `{model}` is not available: {why}")]
    Unavailable {
        /// Its spec string.
        model: String,
        /// What went wrong, and what to do.
        why: String,
    },
    /// The request cannot be served as it is, by this model, ever.
    #[error("model `{model}` cannot do this: {why}")]
    Unsupported {
        /// Its spec string.
        model: String,
        /// What it cannot do.
        why: String,
    },
    /// The gate did not let it be called.
    #[error("model `{model}` was not called: {why}")]
    Denied {
        /// Its spec string.
        model: String,
        /// The refusal, and what to do instead.
        why: String,
    },
    /// The model failed while it worked.
    #[error("model `{model}` failed: {why}")]
    Failed {
        /// Its spec string.
        model: String,
        /// What went wrong.
        why: String,
    },
}
