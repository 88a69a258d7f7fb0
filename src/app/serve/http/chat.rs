//! `/v1/chat/completions`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::Response;
use futures_util::future::try_join_all;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::{Map, Value, json};

use super::common::{
    Answered, CommonFields, Each, Enveloped, Readings, alternatives, finish_reason, prompt_usage, thinking, usage,
    with_fields,
};
use super::error::ApiError;
use super::fields::{Fields, ParsedBody};
use super::streaming::{Chunks, complete, stream_of};
use super::{Shared, run_sized, token_json};
use crate::foundation::base::limits::REPLY_TOKENS_MAX;
use crate::foundation::chat::{Completion, Flow, Message, Prompt, Role, Thought, ThoughtEnd, TokenLogprob, TokenSink};

/// A chat request.
struct Chat {
    common: CommonFields,
    messages: Vec<Message>,
    logprobs: bool,
    /// Whether the thought before the answer is returned.
    includes_thought: bool,
}

pub(super) async fn chat(
    State(shared): State<Arc<Shared>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let ParsedBody { fields, bytes, memory } = Fields::read(&shared, body).await?;
    let chat = Arc::new(run_sized(&shared, bytes, |shared| Chat::of(fields, shared)).await?);
    let memory = chat.common.memory(&shared, memory).await?;
    let turn = shared.enter().await?;
    if chat.common.stream {
        let envelope = chat.common.envelope(&shared, "chat.completion.chunk");
        return stream_of((turn, memory), move |chunks| stream(shared, chat, envelope, chunks)).await;
    }
    let replies = (0..chat.common.n).map(|index| {
        let (chat, shared) = (&chat, &shared);
        async move {
            // The semaphore is never closed.
            let _place = chat.common.places.acquire().await.ok();
            let request = chat.common.request(Prompt::Chat(chat.messages.clone()), index);
            let mut reply = complete(shared, request, None::<(&Chunks, fn(&TokenLogprob) -> Flow)>).await?;
            let thought = thought_tokens(&reply);
            if !chat.common.reports_tokens() {
                reply.tokens = Vec::new();
                reply.thought = None;
            }
            Ok::<_, ApiError>((reply, thought))
        }
    });
    let (replies, thoughts): (Vec<_>, Vec<_>) = try_join_all(replies).await?.into_iter().unzip();
    let used = prompt_usage(replies.iter().map(|reply| reply.usage));
    shared.metrics.used(used);
    let (chat, shared) = (&*chat, &*shared);
    let choice = |(index, reply)| Choice { chat, shared, index, reply };
    let choices = replies.iter().enumerate().map(choice).collect();
    let envelope = &chat.common.envelope(shared, "chat.completion");
    let usage = with_fields(usage(used), of_thoughts(&thoughts));
    memory.respond(&Enveloped { envelope, fields: Answered { choices, usage } })
}

/// Streams all choices concurrently, each chunk with its index.
async fn stream(shared: Arc<Shared>, chat: Arc<Chat>, envelope: Value, chunks: Chunks) -> Result<(), ApiError> {
    let chunk = |index: u64, delta: Value, of_choice: Value| {
        let choice = json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": null });
        let mut chunk = with_fields(envelope.clone(), json!({ "choices": [with_fields(choice, of_choice)] }));
        if chat.common.include_usage {
            chunk = with_fields(chunk, json!({ "usage": null }));
        }
        chunk
    };
    let replies = (0..chat.common.n).map(|index| {
        let (chat, shared, chunks, chunk) = (&chat, &shared, &chunks, &chunk);
        async move {
            let _place = chat.common.places.acquire().await.ok();
            let request = chat.common.request(Prompt::Chat(chat.messages.clone()), index);
            let mut begun = false;
            let mut open = || {
                if !std::mem::replace(&mut begun, true) {
                    let _ = chunks.send(&chunk(index, json!({ "role": "assistant", "content": "" }), json!({})));
                }
            };
            let on_token = Parts(|is_thought: bool, token: &TokenLogprob| {
                open();
                if is_thought && !chat.includes_thought {
                    return Flow::Continue;
                }
                if is_thought {
                    return chunks.send(&chunk(index, json!({ "reasoning_content": token.text }), json!({})));
                }
                let delta = json!({ "content": token.text });
                let token = std::slice::from_ref(token);
                let mut extra = Map::new();
                if let Some(logprobs) = chat.logprobs(token, shared) {
                    extra.insert("logprobs".to_owned(), json!(logprobs));
                }
                if let Some(readings) = chat.readings(token, shared) {
                    extra.insert("loom".to_owned(), json!(readings));
                }
                chunks.send(&chunk(index, delta, Value::Object(extra)))
            });
            let reply = complete(shared, request, Some((chunks, on_token))).await?;
            open();
            let finish = json!({ "finish_reason": finish_reason(reply.finish) });
            let _ = chunks.send(&chunk(index, json!({}), finish));
            Ok::<_, ApiError>((reply.usage, thought_tokens(&reply)))
        }
    });
    let (used, thoughts): (Vec<_>, Vec<_>) = try_join_all(replies).await?.into_iter().unzip();
    let used = prompt_usage(used.into_iter());
    shared.metrics.used(used);
    if chat.common.include_usage {
        let used = with_fields(usage(used), of_thoughts(&thoughts));
        let _ = chunks.send(&with_fields(envelope, json!({ "choices": [], "usage": used })));
    }
    Ok(())
}

/// Passes thought and answer to one function, with whether the token is of the thought.
struct Parts<F>(F);

impl<F: FnMut(bool, &TokenLogprob) -> Flow + Send> TokenSink for Parts<F> {
    fn token(&mut self, token: &TokenLogprob) -> Flow {
        self.0(false, token)
    }

    fn thought(&mut self, token: &TokenLogprob) -> Flow {
        self.0(true, token)
    }
}

/// How many tokens were thought before the answer; `None` if the model did not think.
fn thought_tokens(reply: &Completion) -> Option<usize> {
    reply.thought.as_ref().map(|thought| thought.tokens.len())
}

/// The tokens of thoughts in OpenAI's form, if there were any.
fn of_thoughts(thoughts: &[Option<usize>]) -> Value {
    match thoughts.iter().flatten().copied().reduce(|sum, one| sum + one) {
        Some(tokens) => json!({ "completion_tokens_details": { "reasoning_tokens": tokens } }),
        None => json!({}),
    }
}

impl Chat {
    fn of(mut fields: Fields, shared: &Shared) -> Result<Self, ApiError> {
        let mut common = CommonFields::of(&mut fields, shared)?;
        let messages = messages(&mut fields)?;
        common.thinking = thinking(&mut fields, shared)?;
        let includes_thought = fields.take("include_reasoning")?.unwrap_or(true);
        let longest = fields.take("max_completion_tokens")?;
        let longest = longest.or(fields.take("max_tokens")?);
        common.sampling.max_tokens = longest.unwrap_or(common.sampling.max_tokens.min(REPLY_TOKENS_MAX));
        let logprobs = fields.take("logprobs")?.unwrap_or(false);
        let top: Option<usize> = fields.take("top_logprobs")?;
        match (logprobs, top) {
            (false, Some(1..)) => {
                return Err(ApiError::field("top_logprobs", "`top_logprobs` needs `logprobs: true`"));
            }
            (false, _) => common.sampling.top_logprobs = 0,
            (true, top) => common.set_top_logprobs("logprobs", top.unwrap_or(0), shared)?,
        }
        fields.take_neutral("tools", &[])?;
        fields.take_neutral("tool_choice", &[json!("none"), json!("auto")])?;
        fields.take_neutral("functions", &[])?;
        fields.take_neutral("function_call", &[json!("none"), json!("auto")])?;
        fields.take_neutral("response_format", &[json!({ "type": "text" })])?;
        fields.take_neutral("modalities", &[json!(["text"])])?;
        fields.take_neutral("store", &[json!(false)])?;
        fields.take_neutral("service_tier", &[json!("auto"), json!("default")])?;
        fields.finish("the request")?;
        let thought = |message: &Message| message.thought.as_ref().map_or(0, |thought| thought.text.len());
        let bytes = messages.iter().map(|message| message.content.len() + thought(message)).sum();
        let reported = logprobs || common.readings;
        common.check_size(1, bytes, 0, reported)?;
        Ok(Self { common, messages, logprobs, includes_thought })
    }

    /// The log-probabilities of tokens, if requested.
    fn logprobs(&self, tokens: &[TokenLogprob], shared: &Shared) -> Option<impl Serialize> {
        let content = Each(move || tokens.iter().map(|token| logprob(token, shared)));
        self.logprobs.then_some(Logprobs { content, refusal: () })
    }

    /// The readings of tokens, if requested.
    fn readings(&self, tokens: &[TokenLogprob], shared: &Shared) -> Option<impl Serialize> {
        self.common.readings.then(|| Readings { tokens: all_readings(tokens, shared) })
    }

    /// The readings of a reply: of its answer and, if it is returned, of its thought.
    fn reply_readings(&self, reply: &Completion, shared: &Shared) -> Option<impl Serialize> {
        let thought = reply.thought.as_ref().filter(|_| self.includes_thought);
        let thought =
            thought.map(|thought| ThoughtReadings { end: thought.end, tokens: all_readings(&thought.tokens, shared) });
        self.common.readings.then(|| ReplyReadings { tokens: all_readings(&reply.tokens, shared), thought })
    }
}

fn all_readings(tokens: &[TokenLogprob], shared: &Shared) -> impl Serialize {
    Each(move || tokens.iter().map(|token| token_json(token, shared.model.vocabulary())))
}

#[derive(Serialize)]
struct ReplyReadings<A, T> {
    tokens: A,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought: Option<T>,
}

#[derive(Serialize)]
struct ThoughtReadings<T> {
    end: ThoughtEnd,
    tokens: T,
}

#[derive(Serialize)]
struct Logprobs<L> {
    content: L,
    refusal: (),
}

/// A choice of a response that is not streamed.
struct Choice<'a> {
    chat: &'a Chat,
    shared: &'a Shared,
    index: usize,
    reply: &'a Completion,
}

impl Serialize for Choice<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut message = json!({ "role": "assistant", "content": self.reply.message.content, "refusal": null });
        if let Some(thought) = self.reply.message.thought.as_ref().filter(|_| self.chat.includes_thought) {
            message = with_fields(message, json!({ "reasoning_content": thought.text }));
        }
        let mut choice = serializer.serialize_map(None)?;
        choice.serialize_entry("index", &self.index)?;
        choice.serialize_entry("message", &message)?;
        choice.serialize_entry("logprobs", &self.chat.logprobs(&self.reply.tokens, self.shared))?;
        choice.serialize_entry("finish_reason", finish_reason(self.reply.finish))?;
        if let Some(readings) = self.chat.reply_readings(self.reply, self.shared) {
            choice.serialize_entry("loom", &readings)?;
        }
        choice.end()
    }
}

fn logprob(token: &TokenLogprob, shared: &Shared) -> Value {
    let entry = |text: &str, logprob: Option<f32>| {
        // The bytes of a token that is a partial character are unknown.
        let bytes = (!text.contains(char::REPLACEMENT_CHARACTER)).then_some(text.as_bytes());
        json!({ "token": text, "logprob": logprob.map(f64::from), "bytes": bytes })
    };
    let top = alternatives(token, shared);
    let top: Vec<_> = top.iter().map(|(text, logprob)| entry(text, Some(*logprob))).collect();
    with_fields(entry(&token.text, token.logprob), json!({ "top_logprobs": top }))
}

pub(super) fn messages(fields: &mut Fields) -> Result<Vec<Message>, ApiError> {
    let list: Vec<Map<String, Value>> = fields.require("messages")?;
    if list.is_empty() {
        return Err(ApiError::field("messages", "`messages` is empty; give at least one message"));
    }
    list.into_iter()
        .enumerate()
        .map(|(index, message)| one_message(message).map_err(|error| error.in_message(index)))
        .collect()
}

fn one_message(message: Map<String, Value>) -> Result<Message, ApiError> {
    let mut fields = Fields::new(message);
    let role: String = fields.require("role")?;
    let role = match role.as_str() {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        other => {
            let message = format!("messages of role `{other}` are not supported; use `system`, `user` and `assistant`");
            return Err(ApiError::field("role", message).code("unsupported_parameter"));
        }
    };
    let content = match fields.require("content")? {
        Value::String(text) => text,
        Value::Array(parts) => parts.iter().map(part).collect::<Result<_, _>>()?,
        _ => return Err(ApiError::field("content", "`content` must be a string or a list of text parts")),
    };
    // The thought of an earlier response. The chat template decides whether the model is told it again.
    let thought: Option<String> = fields.take("reasoning_content")?;
    let thought = thought.or(fields.take("reasoning")?).filter(|thought| !thought.is_empty());
    if thought.is_some() && role != Role::Assistant {
        return Err(ApiError::field("reasoning_content", "only messages of the assistant have thoughts"));
    }
    // Empty fields of earlier responses that clients send back.
    for name in ["refusal", "tool_calls", "function_call", "audio", "annotations"] {
        fields.take_neutral(name, &[])?;
    }
    fields.finish("a message")?;
    let thought = thought.map(|text| Thought { text, ids: None });
    Ok(Message { thought, ..Message::new(role, content) })
}

fn part(part: &Value) -> Result<String, ApiError> {
    let text = part.get("text").and_then(Value::as_str);
    match (part.get("type").and_then(Value::as_str), text) {
        (Some("text"), Some(text)) => Ok(text.to_owned()),
        (kind, _) => {
            let kind = kind.unwrap_or("?");
            let message = format!("content of type `{kind}` is not supported: this server reads text only");
            Err(ApiError::field("content", message).code("unsupported_parameter"))
        }
    }
}
