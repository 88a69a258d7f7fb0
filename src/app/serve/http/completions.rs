//! `/v1/completions`: plain text or token ids, one prompt or several of different lengths, with the prompt's
//! log-probabilities on request.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::Response;
use futures_util::future::try_join_all;
use serde::ser::{SerializeMap as _, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::common::{
    Answered, CommonFields, Each, Enveloped, Readings, alternatives, finish_reason, no_vocabulary, prompt_usage, usage,
    with_fields,
};
use super::error::ApiError;
use super::fields::{Fields, ParsedBody};
use super::streaming::{Chunks, complete, stream_of};
use super::{Shared, run_blocking, run_sized, text_of_first, token_json};
use crate::foundation::base::limits::{CHOICES_MAX, PROMPT_TOKENS_MAX};
use crate::foundation::chat::{
    Continuation, Finish, Flow, Prompt, Request, Snapshot, TokenId, TokenLogprob, Usage, Vocabulary,
};

/// Default `max_tokens`, as at OpenAI.
const TOKENS: usize = 16;

struct Completions {
    common: CommonFields,
    prompts: Vec<PromptInput>,
    /// Whether log-probabilities are reported.
    logprobs: bool,
    echo: bool,
}

/// A prompt in a request.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum PromptInput {
    Text(String),
    Ids(Vec<TokenId>),
}

impl PromptInput {
    /// Its size in memory.
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Ids(ids) => size_of_val(ids.as_slice()),
        }
    }

    /// The largest number of its tokens.
    fn tokens_max(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Ids(ids) => ids.len(),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Prompts {
    One(String),
    Ids(Vec<TokenId>),
    Many(Vec<PromptInput>),
}

fn vocabulary(shared: &Shared) -> Result<&dyn Vocabulary, ApiError> {
    shared.model.vocabulary().ok_or_else(|| no_vocabulary(shared, "`echo`"))
}

/// A prompt repeated at the beginning of its choices, and the state after it.
#[derive(Default)]
struct EchoedPrompt {
    text: String,
    tokens: Vec<TokenLogprob>,
    ids: Vec<TokenId>,
    after: Option<Snapshot>,
}

/// A choice or a chunk of it.
struct ChoiceChunk {
    index: u64,
    text: String,
    tokens: Vec<TokenLogprob>,
    /// Characters before it.
    offset: usize,
    /// Whether the first token is the first of an echoed prompt, which has no log-probability.
    first: bool,
    finish: Option<Finish>,
}

pub(super) async fn completions(
    State(shared): State<Arc<Shared>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let ParsedBody { fields, bytes, memory } = Fields::read(&shared, body).await?;
    let completions = Arc::new(run_sized(&shared, bytes, |shared| Completions::of(fields, shared)).await?);
    let memory = completions.common.memory(&shared, memory).await?;
    let turn = shared.enter().await?;
    let envelope = completions.common.envelope(&shared, "text_completion");
    if completions.common.stream {
        return stream_of((turn, memory), move |chunks| {
            let work = Arc::clone(&completions);
            async move {
                let used = work.run(&shared, Some((&chunks, &envelope))).await?.1;
                if work.common.include_usage {
                    let _ = chunks.send(&with_fields(envelope, json!({ "choices": [], "usage": usage(used) })));
                }
                Ok(())
            }
        })
        .await;
    }
    let (choices, used) = completions.run(&shared, None).await?;
    let choices = choices.iter().map(|chunk| Choice { completions: &completions, shared: &shared, chunk }).collect();
    memory.respond(&Enveloped { envelope: &envelope, fields: Answered { choices, usage: usage(used) } })
}

impl Completions {
    fn of(mut fields: Fields, shared: &Shared) -> Result<Self, ApiError> {
        let mut common = CommonFields::of(&mut fields, shared)?;
        let not = "`prompt` must be a string, a list of strings, a list of token ids or a list of such lists";
        let prompts = match fields.require::<Value>("prompt").map(serde_json::from_value)? {
            Ok(Prompts::One(text)) => vec![PromptInput::Text(text)],
            Ok(Prompts::Ids(ids)) => vec![PromptInput::Ids(ids)],
            Ok(Prompts::Many(list)) => list,
            Err(_) => return Err(ApiError::field("prompt", not)),
        };
        let empty = |given: &PromptInput| matches!(given, PromptInput::Ids(ids) if ids.is_empty());
        if prompts.is_empty() || prompts.iter().any(empty) {
            return Err(ApiError::field("prompt", "a prompt is empty: give it at least one token"));
        }
        if prompts.len().saturating_mul(common.n as usize) > CHOICES_MAX {
            let message =
                format!("{} prompts with {} choices each exceed the limit of {CHOICES_MAX}", prompts.len(), common.n);
            return Err(ApiError::field("prompt", message));
        }
        let best_of: Option<u64> = fields.take("best_of")?;
        if best_of.is_some_and(|best_of| best_of != common.n) {
            let message = "`best_of` is not supported by this server; request `n` choices and select one";
            return Err(ApiError::field("best_of", message).code("unsupported_parameter"));
        }
        common.sampling.max_tokens = fields.take("max_tokens")?.unwrap_or(TOKENS);
        let echo = fields.take("echo")?.unwrap_or(false);
        let top: Option<usize> = fields.take("logprobs")?;
        match top {
            Some(top) => common.set_top_logprobs("logprobs", top, shared)?,
            None => common.sampling.top_logprobs = 0,
        }
        if common.sampling.max_tokens == 0 && !echo {
            return Err(ApiError::field("max_tokens", "`max_tokens: 0` needs `echo: true`"));
        }
        fields.take_neutral("suffix", &[json!("")])?;
        fields.finish("the request")?;
        let bytes = prompts.iter().map(PromptInput::bytes).sum();
        let echoed = if echo { prompts.iter().map(PromptInput::tokens_max).max().unwrap_or(0) } else { 0 };
        let reported = top.is_some() || common.readings;
        common.check_size(prompts.len(), bytes, echoed.min(PROMPT_TOKENS_MAX), reported)?;
        Ok(Self { common, prompts, logprobs: top.is_some(), echo })
    }

    /// All choices in order, and their usage. With `stream`, chunks are sent instead of returned.
    async fn run(
        &self,
        shared: &Arc<Shared>,
        stream: Option<(&Chunks, &Value)>,
    ) -> Result<(Vec<ChoiceChunk>, Usage), ApiError> {
        let prompts = self.prompts.iter().enumerate();
        let answered = prompts.map(|(number, given)| self.answer(shared, number as u64, given, stream));
        let mut choices = Vec::new();
        let mut used = Usage::default();
        for (of_prompt, one) in try_join_all(answered).await? {
            choices.extend(of_prompt);
            used.tokens_in += one.tokens_in;
            used.tokens_out += one.tokens_out;
            used.tokens_cached += one.tokens_cached;
        }
        shared.metrics.used(used);
        Ok((choices, used))
    }

    /// The choices of prompt `number`.
    async fn answer(
        &self,
        shared: &Arc<Shared>,
        number: u64,
        given: &PromptInput,
        stream: Option<(&Chunks, &Value)>,
    ) -> Result<(Vec<ChoiceChunk>, Usage), ApiError> {
        let echoed = if self.echo { self.echo(shared, given).await? } else { EchoedPrompt::default() };
        let read = echoed.ids.len() as u64;
        let choices = (0..self.common.n).map(|n| {
            let index = number * self.common.n + n;
            self.choice(shared, index, given, &echoed, stream)
        });
        let (choices, mut used): (Vec<_>, Vec<_>) = try_join_all(choices).await?.into_iter().unzip();
        if echoed.after.is_some() {
            // The prompt was read for its scores.
            for used in &mut used {
                (used.tokens_in, used.tokens_cached) = (read, 0);
            }
        }
        Ok((choices.into_iter().flatten().collect(), prompt_usage(used.into_iter())))
    }

    /// Reads the prompt, and scores its tokens if requested.
    async fn echo(&self, shared: &Arc<Shared>, given: &PromptInput) -> Result<EchoedPrompt, ApiError> {
        let given = given.clone();
        let both = run_blocking(shared, |shared| {
            let vocabulary = vocabulary(shared)?;
            Ok(match given {
                PromptInput::Text(text) => {
                    let ids = vocabulary.encode_text(&text)?;
                    let added = ids.len() > vocabulary.encode(&text)?.len();
                    (text, ids, added)
                }
                PromptInput::Ids(ids) => (vocabulary.decode(&ids)?, ids, false),
            })
        });
        let (text, ids, added) = both.await?;
        let mut echoed = EchoedPrompt { text, ids, ..EchoedPrompt::default() };
        let Some((first, rest)) = echoed.ids.split_first() else {
            return Err(ApiError::field("prompt", "a prompt is empty: give it at least one token"));
        };
        if !self.logprobs && !self.common.readings {
            return Ok(echoed);
        }
        // A token that the tokenizer adds is no part of the text.
        let text = if added { String::new() } else { text_of_first(*first, vocabulary(shared)?) };
        echoed.tokens.push(TokenLogprob::unknown(Some(*first), text));
        if !rest.is_empty() {
            let _active = shared.metrics.sequence();
            let request = self.common.request(Prompt::Ids(vec![*first]), 0);
            let scored = shared.model.score(request, Continuation::Ids(rest.to_vec())).await?;
            echoed.tokens.extend(scored.tokens);
            echoed.after = scored.snapshot;
        }
        Ok(echoed)
    }

    /// One choice, streamed or returned.
    async fn choice(
        &self,
        shared: &Arc<Shared>,
        index: u64,
        given: &PromptInput,
        echoed: &EchoedPrompt,
        stream: Option<(&Chunks, &Value)>,
    ) -> Result<(Option<ChoiceChunk>, Usage), ApiError> {
        let send = |chunk: &ChoiceChunk| match stream {
            Some((chunks, envelope)) => {
                let choices = [Choice { completions: self, shared, chunk }];
                chunks.send(&Enveloped { envelope, fields: Chunk { choices } })
            }
            None => Flow::Continue,
        };
        let mut offset = echoed.text.chars().count();
        if self.echo {
            let finish = (self.common.sampling.max_tokens == 0).then_some(Finish::Length);
            let (text, tokens) = (echoed.text.clone(), echoed.tokens.clone());
            let chunk = ChoiceChunk { index, text, tokens, offset: 0, first: true, finish };
            let _ = send(&chunk);
            if finish.is_some() {
                let used = Usage { tokens_in: echoed.ids.len() as u64, ..Usage::default() };
                return Ok((stream.is_none().then_some(chunk), used));
            }
        }
        // The semaphore is never closed.
        let _place = self.common.places.acquire().await.ok();
        let on_token = stream.map(|(chunks, _)| {
            (chunks, |token: &TokenLogprob| {
                let (text, tokens) = (token.text.clone(), vec![token.clone()]);
                let flow = send(&ChoiceChunk { index, text, tokens, offset, first: false, finish: None });
                offset += token.text.chars().count();
                flow
            })
        });
        let reply = complete(shared, self.request(given, echoed, index), on_token).await?;
        let end: Vec<_> = reply.end.into_iter().filter(|_| self.echo).collect();
        let finish = Some(reply.finish);
        if stream.is_some() {
            let _ = send(&ChoiceChunk { index, text: String::new(), tokens: end, offset, first: false, finish });
            return Ok((None, reply.usage));
        }
        let text = echoed.text.clone() + &reply.message.content;
        let mut tokens = Vec::new();
        if self.common.reports_tokens() {
            tokens = [echoed.tokens.clone(), reply.tokens, end].concat();
        }
        Ok((Some(ChoiceChunk { index, text, tokens, offset: 0, first: self.echo, finish }), reply.usage))
    }

    fn request(&self, given: &PromptInput, echoed: &EchoedPrompt, index: u64) -> Request {
        let prompt = match given {
            _ if self.echo => Prompt::Ids(echoed.ids.clone()),
            PromptInput::Text(text) => Prompt::Text(text.clone()),
            PromptInput::Ids(ids) => Prompt::Ids(ids.clone()),
        };
        let mut request = self.common.request(prompt, index);
        request.after.clone_from(&echoed.after);
        request
    }
}

/// A streamed chunk.
#[derive(Serialize)]
struct Chunk<'a> {
    choices: [Choice<'a>; 1],
}

/// A choice as it is reported.
struct Choice<'a> {
    completions: &'a Completions,
    shared: &'a Shared,
    chunk: &'a ChoiceChunk,
}

impl Serialize for Choice<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { completions, shared, chunk } = *self;
        let vocabulary: Option<&dyn Vocabulary> = shared.model.vocabulary();
        let mut choice = serializer.serialize_map(None)?;
        choice.serialize_entry("index", &chunk.index)?;
        choice.serialize_entry("text", &chunk.text)?;
        choice.serialize_entry("logprobs", &completions.logprobs.then(|| logprobs(chunk, shared)))?;
        choice.serialize_entry("finish_reason", &chunk.finish.map(finish_reason))?;
        if completions.common.readings {
            let tokens = Each(|| chunk.tokens.iter().map(|token| token_json(token, vocabulary)));
            choice.serialize_entry("loom", &Readings { tokens })?;
        }
        choice.end()
    }
}

#[derive(Serialize)]
struct Logprobs<T, L, O, F> {
    tokens: T,
    token_logprobs: L,
    top_logprobs: O,
    text_offset: F,
}

/// OpenAI's four lists. The first token of an echoed prompt has `null`.
fn logprobs(chunk: &ChoiceChunk, shared: &Shared) -> impl Serialize {
    let tokens = &chunk.tokens;
    let top = move |(index, token): (usize, &TokenLogprob)| {
        (!chunk.first || index > 0).then(|| {
            let mut texts = alternatives(token, shared);
            if let Some(logprob) = token.logprob
                && texts.iter().all(|(text, _)| *text != token.text)
            {
                texts.push((token.text.clone(), logprob));
            }
            texts.into_iter().map(|(text, logprob)| (text, json!(f64::from(logprob)))).collect::<Map<_, _>>()
        })
    };
    Logprobs {
        tokens: Each(|| tokens.iter().map(|token| &token.text)),
        token_logprobs: Each(|| tokens.iter().map(|token| token.logprob.map(f64::from))),
        top_logprobs: Each(move || tokens.iter().enumerate().map(top)),
        text_offset: Each(|| {
            tokens.iter().scan(chunk.offset, |next, token| {
                let at = *next;
                *next += token.text.chars().count();
                Some(at)
            })
        }),
    }
}
