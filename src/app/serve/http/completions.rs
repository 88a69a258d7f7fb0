//! `/v1/completions`: bare text or token ids, one prompt or a ragged batch, with the prompt's own log-probabilities on
//! request.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse, Response};
use futures_util::future::try_join_all;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer::{Chunks, complete, stream_of};
use super::asked::{Asked, alternatives, finish_reason, no_vocabulary, of_one_prompt, usage, with};
use super::error::ApiError;
use super::fields::Fields;
use super::{Shared, aside, reading, text_of_first};
use crate::foundation::base::limits::CHOICES_MAX;
use crate::foundation::chat::{
    Continuation, Finish, Flow, Prompt, Request, Snapshot, TokenId, TokenLogprob, Usage, Vocabulary,
};

/// Tokens written where the request does not say; OpenAI's own default.
const TOKENS: usize = 16;

struct Completions {
    asked: Asked,
    prompts: Vec<Given>,
    /// Log-probabilities are told.
    logprobs: bool,
    echo: bool,
}

/// A prompt as it was given.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Given {
    Text(String),
    Ids(Vec<TokenId>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Prompts {
    One(String),
    Ids(Vec<TokenId>),
    Many(Vec<Given>),
}

fn vocabulary(shared: &Shared) -> Result<&dyn Vocabulary, ApiError> {
    shared.model.vocabulary().ok_or_else(|| no_vocabulary(shared, "`echo`"))
}

/// A prompt that is told again at the beginning of its answer, and the state after it.
#[derive(Default)]
struct Echoed {
    text: String,
    tokens: Vec<TokenLogprob>,
    ids: Vec<TokenId>,
    after: Option<Snapshot>,
}

/// One choice, all of it or a piece.
struct Piece<'a> {
    text: &'a str,
    tokens: &'a [TokenLogprob],
    /// Characters that came before.
    offset: usize,
    /// Whether the first token stands at the very beginning of an echoed prompt, where nothing can be known.
    first: bool,
    finish: Option<Finish>,
}

pub(super) async fn completions(
    State(shared): State<Arc<Shared>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let asked = Arc::new(Completions::of(body, &shared)?);
    let turn = shared.enter().await?;
    let envelope = asked.asked.envelope(&shared, "text_completion");
    if asked.asked.stream {
        return stream_of(turn, move |chunks| {
            let work = Arc::clone(&asked);
            async move {
                let used = work.run(&shared, Some((&chunks, &envelope))).await?.1;
                if work.asked.usage {
                    let _ = chunks.send(with(envelope, json!({ "choices": [], "usage": usage(used) })));
                }
                Ok(())
            }
        })
        .await;
    }
    let (choices, used) = asked.run(&shared, None).await?;
    Ok(Json(with(envelope, json!({ "choices": choices, "usage": usage(used) }))).into_response())
}

impl Completions {
    fn of(body: Result<Bytes, BytesRejection>, shared: &Shared) -> Result<Self, ApiError> {
        let mut fields = Fields::of(body)?;
        let mut asked = Asked::of(&mut fields, shared)?;
        let not = "`prompt` is a text, a list of texts, a list of token ids or a list of such lists";
        let prompts = match fields.need::<Value>("prompt").map(serde_json::from_value)? {
            Ok(Prompts::One(text)) => vec![Given::Text(text)],
            Ok(Prompts::Ids(ids)) => vec![Given::Ids(ids)],
            Ok(Prompts::Many(list)) => list,
            Err(_) => return Err(ApiError::field("prompt", not)),
        };
        let empty = |given: &Given| matches!(given, Given::Ids(ids) if ids.is_empty());
        if prompts.is_empty() || prompts.iter().any(empty) {
            return Err(ApiError::field("prompt", "a prompt is empty: give it at least one token"));
        }
        if prompts.len().saturating_mul(asked.n as usize) > CHOICES_MAX {
            let message =
                format!("{} prompts with {} answers each are more than {CHOICES_MAX}", prompts.len(), asked.n);
            return Err(ApiError::field("prompt", message));
        }
        let best_of: Option<u64> = fields.take("best_of")?;
        if best_of.is_some_and(|best_of| best_of != asked.n) {
            let message = "`best_of` is not supported by this server; ask for `n` answers and choose";
            return Err(ApiError::field("best_of", message).code("unsupported_parameter"));
        }
        asked.sampling.max_tokens = fields.take("max_tokens")?.unwrap_or(TOKENS);
        let echo = fields.take("echo")?.unwrap_or(false);
        let top: Option<usize> = fields.take("logprobs")?;
        match top {
            Some(top) => asked.report("logprobs", top, shared)?,
            None => asked.sampling.top_logprobs = 0,
        }
        if asked.sampling.max_tokens == 0 && !echo {
            return Err(ApiError::field("max_tokens", "`max_tokens: 0` answers nothing without `echo: true`"));
        }
        fields.only("suffix", &[json!("")])?;
        fields.done("the request")?;
        Ok(Self { asked, prompts, logprobs: top.is_some(), echo })
    }

    /// All choices, in order, and what they used. With `stream`, each is sent piece by piece, and none is left at the end.
    async fn run(
        &self,
        shared: &Arc<Shared>,
        stream: Option<(&Chunks, &Value)>,
    ) -> Result<(Vec<Value>, Usage), ApiError> {
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
        given: &Given,
        stream: Option<(&Chunks, &Value)>,
    ) -> Result<(Vec<Value>, Usage), ApiError> {
        let echoed = if self.echo { self.echo(shared, given).await? } else { Echoed::default() };
        let read = echoed.ids.len() as u64;
        let choices = (0..self.asked.n).map(|n| {
            let index = number * self.asked.n + n;
            self.choice(shared, index, given, &echoed, stream)
        });
        let (choices, mut used): (Vec<_>, Vec<_>) = try_join_all(choices).await?.into_iter().unzip();
        if echoed.after.is_some() {
            // The prompt was read to be scored.
            for used in &mut used {
                (used.tokens_in, used.tokens_cached) = (read, 0);
            }
        }
        Ok((choices.into_iter().flatten().collect(), of_one_prompt(used.into_iter())))
    }

    /// Reads the prompt, and tells what the model thought of it if that is asked for.
    async fn echo(&self, shared: &Arc<Shared>, given: &Given) -> Result<Echoed, ApiError> {
        let given = given.clone();
        let both = aside(shared, |shared| {
            let vocabulary = vocabulary(shared)?;
            Ok(match given {
                Given::Text(text) => {
                    let ids = vocabulary.encode(&text)?;
                    (text, ids)
                }
                Given::Ids(ids) => (vocabulary.decode(&ids)?, ids),
            })
        });
        let (text, ids) = both.await?;
        let mut echoed = Echoed { text, ids, ..Echoed::default() };
        let Some((first, rest)) = echoed.ids.split_first() else {
            return Err(ApiError::field("prompt", "a prompt is empty: give it at least one token"));
        };
        if !self.logprobs && !self.asked.readings {
            return Ok(echoed);
        }
        let text = text_of_first(*first, vocabulary(shared)?);
        echoed.tokens.push(TokenLogprob::unknown(Some(*first), text));
        if !rest.is_empty() {
            let _at_work = shared.metrics.sequence();
            let request = self.asked.request(Prompt::Ids(vec![*first]), 0);
            let scored = shared.model.score(request, Continuation::Ids(rest.to_vec())).await?;
            echoed.tokens.extend(scored.tokens);
            echoed.after = scored.snapshot;
        }
        Ok(echoed)
    }

    /// One choice; streamed, or returned.
    async fn choice(
        &self,
        shared: &Arc<Shared>,
        index: u64,
        given: &Given,
        echoed: &Echoed,
        stream: Option<(&Chunks, &Value)>,
    ) -> Result<(Option<Value>, Usage), ApiError> {
        let send = |piece: &Piece<'_>| match stream {
            Some((chunks, envelope)) => {
                let choices = json!({ "choices": [self.told(shared, index, piece)] });
                chunks.send(with(envelope.clone(), choices))
            }
            None => Flow::Continue,
        };
        let mut offset = echoed.text.chars().count();
        if self.echo {
            let finish = (self.asked.sampling.max_tokens == 0).then_some(Finish::Length);
            let piece = Piece { text: &echoed.text, tokens: &echoed.tokens, offset: 0, first: true, finish };
            let _ = send(&piece);
            if finish.is_some() {
                let used = Usage { tokens_in: echoed.ids.len() as u64, ..Usage::default() };
                return Ok((stream.is_none().then(|| self.told(shared, index, &piece)), used));
            }
        }
        let hear = stream.is_some().then_some(|token: &TokenLogprob| {
            let tokens = std::slice::from_ref(token);
            let flow = send(&Piece { text: &token.text, tokens, offset, first: false, finish: None });
            offset += token.text.chars().count();
            flow
        });
        let reply = complete(shared, self.request(given, echoed, index), hear).await?;
        let end: Vec<_> = reply.end.into_iter().filter(|_| self.echo).collect();
        let finish = Some(reply.finish);
        if stream.is_some() {
            let _ = send(&Piece { text: "", tokens: &end, offset, first: false, finish });
            return Ok((None, reply.usage));
        }
        let text = echoed.text.clone() + &reply.message.content;
        let tokens = [echoed.tokens.clone(), reply.tokens, end].concat();
        let whole = Piece { text: &text, tokens: &tokens, offset: 0, first: self.echo, finish };
        Ok((Some(self.told(shared, index, &whole)), reply.usage))
    }

    fn request(&self, given: &Given, echoed: &Echoed, index: u64) -> Request {
        let prompt = match given {
            _ if self.echo => Prompt::Ids(echoed.ids.clone()),
            Given::Text(text) => Prompt::Text(text.clone()),
            Given::Ids(ids) => Prompt::Ids(ids.clone()),
        };
        let mut request = self.asked.request(prompt, index);
        request.after.clone_from(&echoed.after);
        request
    }

    fn told(&self, shared: &Shared, index: u64, piece: &Piece<'_>) -> Value {
        let choice = json!({
            "index": index,
            "text": piece.text,
            "logprobs": if self.logprobs { logprobs(piece, shared) } else { Value::Null },
            "finish_reason": piece.finish.map(finish_reason),
        });
        if !self.asked.readings {
            return choice;
        }
        let vocabulary: Option<&dyn Vocabulary> = shared.model.vocabulary();
        let tokens: Vec<_> = piece.tokens.iter().map(|token| reading(token, vocabulary)).collect();
        with(choice, json!({ "loom": { "tokens": tokens } }))
    }
}

/// OpenAI's four lists. At the very first token of an echoed prompt nothing is known: `null`.
fn logprobs(piece: &Piece<'_>, shared: &Shared) -> Value {
    let mut offset = piece.offset;
    let offsets: Vec<_> = piece
        .tokens
        .iter()
        .map(|token| {
            let at = offset;
            offset += token.text.chars().count();
            at
        })
        .collect();
    let top: Vec<_> = piece
        .tokens
        .iter()
        .enumerate()
        .map(|(place, token)| {
            if piece.first && place == 0 {
                return Value::Null;
            }
            let mut texts = alternatives(token, shared);
            if let Some(logprob) = token.logprob
                && texts.iter().all(|(text, _)| *text != token.text)
            {
                texts.push((token.text.clone(), logprob));
            }
            Value::Object(
                texts.into_iter().map(|(text, logprob)| (text, json!(f64::from(logprob)))).collect::<Map<_, _>>(),
            )
        })
        .collect();
    json!({
        "tokens": piece.tokens.iter().map(|token| &token.text).collect::<Vec<_>>(),
        "token_logprobs": piece.tokens.iter().map(|token| token.logprob.map(f64::from)).collect::<Vec<_>>(),
        "top_logprobs": top,
        "text_offset": offsets,
    })
}
