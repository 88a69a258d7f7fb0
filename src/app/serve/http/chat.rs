//! `/v1/chat/completions`.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse, Response};
use futures_util::future::try_join_all;
use serde_json::{Map, Value, json};

use super::answer::{Chunks, complete, stream_of};
use super::asked::{Asked, alternatives, finish_reason, of_one_prompt, usage, with};
use super::error::ApiError;
use super::fields::Fields;
use super::{Shared, reading};
use crate::foundation::base::limits::REPLY_TOKENS_MAX;
use crate::foundation::chat::{Completion, Flow, Message, Prompt, Role, TokenLogprob};

/// A chat request.
struct Chat {
    asked: Asked,
    messages: Vec<Message>,
    logprobs: bool,
}

pub(super) async fn chat(
    State(shared): State<Arc<Shared>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let chat = Arc::new(Chat::of(body, &shared)?);
    let turn = shared.enter().await?;
    if chat.asked.stream {
        let envelope = chat.asked.envelope(&shared, "chat.completion.chunk");
        return stream_of(turn, move |chunks| stream(shared, chat, envelope, chunks)).await;
    }
    let replies = (0..chat.asked.n).map(|index| {
        let request = chat.asked.request(Prompt::Chat(chat.messages.clone()), index);
        complete(&shared, request, None::<fn(&TokenLogprob) -> Flow>)
    });
    let replies = try_join_all(replies).await?;
    let used = of_one_prompt(replies.iter().map(|reply| reply.usage));
    shared.metrics.used(used);
    let choices: Vec<_> = replies.iter().enumerate().map(|(index, reply)| chat.choice(index, reply, &shared)).collect();
    let envelope = chat.asked.envelope(&shared, "chat.completion");
    Ok(Json(with(envelope, json!({ "choices": choices, "usage": usage(used) }))).into_response())
}

/// All choices at once, each chunk under its index.
async fn stream(shared: Arc<Shared>, chat: Arc<Chat>, envelope: Value, chunks: Chunks) -> Result<(), ApiError> {
    let chunk = |index: u64, delta: Value, of_choice: Value| {
        let choice = json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": null });
        let mut chunk = with(envelope.clone(), json!({ "choices": [with(choice, of_choice)] }));
        if chat.asked.usage {
            chunk = with(chunk, json!({ "usage": null }));
        }
        chunk
    };
    let replies = (0..chat.asked.n).map(|index| {
        let request = chat.asked.request(Prompt::Chat(chat.messages.clone()), index);
        let (chat, shared, chunks, chunk) = (&chat, &shared, &chunks, &chunk);
        async move {
            let mut begun = false;
            let mut open = || {
                if !std::mem::replace(&mut begun, true) {
                    let _ = chunks.send(chunk(index, json!({ "role": "assistant", "content": "" }), json!({})));
                }
            };
            let hear = |token: &TokenLogprob| {
                open();
                let told = chat.of_tokens(std::slice::from_ref(token), shared);
                chunks.send(chunk(index, json!({ "content": token.text }), told))
            };
            let reply = complete(shared, request, Some(hear)).await?;
            open();
            let finish = json!({ "finish_reason": finish_reason(reply.finish) });
            let _ = chunks.send(chunk(index, json!({}), finish));
            Ok::<_, ApiError>(reply.usage)
        }
    });
    let used = of_one_prompt(try_join_all(replies).await?.into_iter());
    shared.metrics.used(used);
    if chat.asked.usage {
        let _ = chunks.send(with(envelope, json!({ "choices": [], "usage": usage(used) })));
    }
    Ok(())
}

impl Chat {
    fn of(body: Result<Bytes, BytesRejection>, shared: &Shared) -> Result<Self, ApiError> {
        let mut fields = Fields::of(body)?;
        let mut asked = Asked::of(&mut fields, shared)?;
        let messages = messages(&mut fields)?;
        let longest = fields.take("max_completion_tokens")?;
        let longest = longest.or(fields.take("max_tokens")?);
        asked.sampling.max_tokens = longest.unwrap_or(asked.sampling.max_tokens.min(REPLY_TOKENS_MAX));
        let logprobs = fields.take("logprobs")?.unwrap_or(false);
        let top: Option<usize> = fields.take("top_logprobs")?;
        match (logprobs, top) {
            (false, Some(1..)) => {
                return Err(ApiError::field("top_logprobs", "`top_logprobs` needs `logprobs: true`"));
            }
            (false, _) => asked.sampling.top_logprobs = 0,
            (true, top) => asked.report("logprobs", top.unwrap_or(0), shared)?,
        }
        fields.only("tools", &[])?;
        fields.only("tool_choice", &[json!("none"), json!("auto")])?;
        fields.only("functions", &[])?;
        fields.only("function_call", &[json!("none"), json!("auto")])?;
        fields.only("response_format", &[json!({ "type": "text" })])?;
        fields.only("modalities", &[json!(["text"])])?;
        fields.only("store", &[json!(false)])?;
        fields.only("service_tier", &[json!("auto"), json!("default")])?;
        fields.done("the request")?;
        Ok(Self { asked, messages, logprobs })
    }

    fn choice(&self, index: usize, reply: &Completion, shared: &Shared) -> Value {
        let choice = json!({
            "index": index,
            "message": { "role": "assistant", "content": reply.message.content, "refusal": null },
            "logprobs": null,
            "finish_reason": finish_reason(reply.finish),
        });
        with(choice, self.of_tokens(&reply.tokens, shared))
    }

    /// What is told of tokens beside their text.
    fn of_tokens(&self, tokens: &[TokenLogprob], shared: &Shared) -> Value {
        let mut told = Map::new();
        if self.logprobs {
            let content: Vec<_> = tokens.iter().map(|token| logprob(token, shared)).collect();
            told.insert("logprobs".to_owned(), json!({ "content": content, "refusal": null }));
        }
        if self.asked.readings {
            let tokens: Vec<_> = tokens.iter().map(|token| reading(token, shared.model.vocabulary())).collect();
            told.insert("loom".to_owned(), json!({ "tokens": tokens }));
        }
        Value::Object(told)
    }
}

fn logprob(token: &TokenLogprob, shared: &Shared) -> Value {
    let entry = |text: &str, logprob: Option<f32>| {
        // Where a token holds only a part of a character, its bytes are not known here.
        let bytes = (!text.contains(char::REPLACEMENT_CHARACTER)).then_some(text.as_bytes());
        json!({ "token": text, "logprob": logprob.map(f64::from), "bytes": bytes })
    };
    let top = alternatives(token, shared);
    let top: Vec<_> = top.iter().map(|(text, logprob)| entry(text, Some(*logprob))).collect();
    with(entry(&token.text, token.logprob), json!({ "top_logprobs": top }))
}

pub(super) fn messages(fields: &mut Fields) -> Result<Vec<Message>, ApiError> {
    let list: Vec<Map<String, Value>> = fields.need("messages")?;
    if list.is_empty() {
        return Err(ApiError::field("messages", "`messages` is empty; give at least one"));
    }
    list.into_iter()
        .enumerate()
        .map(|(index, message)| one_message(message).map_err(|error| error.in_message(index)))
        .collect()
}

fn one_message(message: Map<String, Value>) -> Result<Message, ApiError> {
    let mut fields = Fields::new(message);
    let role: String = fields.need("role")?;
    let role = match role.as_str() {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        other => {
            let message = format!("messages of role `{other}` are not supported; use `system`, `user` and `assistant`");
            return Err(ApiError::field("role", message).code("unsupported_parameter"));
        }
    };
    let content = match fields.need("content")? {
        Value::String(text) => text,
        Value::Array(parts) => parts.iter().map(part).collect::<Result<_, _>>()?,
        _ => return Err(ApiError::field("content", "`content` is a text or a list of text parts")),
    };
    // What clients send back of an answer's empty fields.
    for name in ["refusal", "tool_calls", "function_call", "audio", "annotations"] {
        fields.only(name, &[])?;
    }
    fields.done("a message")?;
    Ok(Message::new(role, content))
}

fn part(part: &Value) -> Result<String, ApiError> {
    let text = part.get("text").and_then(Value::as_str);
    match (part.get("type").and_then(Value::as_str), text) {
        (Some("text"), Some(text)) => Ok(text.to_owned()),
        (kind, _) => {
            let kind = kind.unwrap_or("?");
            let message = format!("content of type `{kind}` is not supported: this server reads text alone");
            Err(ApiError::field("content", message).code("unsupported_parameter"))
        }
    }
}
