//! `/v1/chat/completions`.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse, Response};
use futures_util::future::try_join_all;
use serde_json::{Map, Value, json};

use super::common::{CommonFields, alternatives, finish_reason, prompt_usage, thinking, usage, with_fields};
use super::error::ApiError;
use super::fields::{Fields, ParsedBody};
use super::streaming::{Chunks, complete, stream_of};
use super::{Shared, run_sized, token_json};
use crate::foundation::base::limits::REPLY_TOKENS_MAX;
use crate::foundation::chat::{Completion, Flow, Message, Prompt, Role, Thought, TokenLogprob, TokenSink};

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
            complete(shared, request, None::<(&Chunks, fn(&TokenLogprob) -> Flow)>).await
        }
    });
    let replies = try_join_all(replies).await?;
    let used = prompt_usage(replies.iter().map(|reply| reply.usage));
    shared.metrics.used(used);
    let choices: Vec<_> = replies.iter().enumerate().map(|(index, reply)| chat.choice(index, reply, &shared)).collect();
    let thoughts: Vec<_> = replies.iter().map(thought_tokens).collect();
    let envelope = chat.common.envelope(&shared, "chat.completion");
    let used = with_fields(usage(used), of_thoughts(&thoughts));
    Ok(Json(with_fields(envelope, json!({ "choices": choices, "usage": used }))).into_response())
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
                let extra = chat.of_tokens(std::slice::from_ref(token), shared);
                chunks.send(&chunk(index, json!({ "content": token.text }), extra))
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

    fn choice(&self, index: usize, reply: &Completion, shared: &Shared) -> Value {
        let choice = json!({
            "index": index,
            "message": { "role": "assistant", "content": reply.message.content, "refusal": null },
            "logprobs": null,
            "finish_reason": finish_reason(reply.finish),
        });
        let mut choice = with_fields(choice, self.of_tokens(&reply.tokens, shared));
        let thought = reply.message.thought.as_ref().filter(|_| self.includes_thought);
        if let (Some(thought), Some(Value::Object(message))) = (thought, choice.get_mut("message")) {
            message.insert("reasoning_content".to_owned(), json!(thought.text));
        }
        let tokens = reply.thought.as_ref().filter(|_| self.common.readings && self.includes_thought);
        if let (Some(thought), Some(Value::Object(own))) = (tokens, choice.get_mut("loom")) {
            let tokens = thought.tokens.iter().map(|token| token_json(token, shared.model.vocabulary()));
            own.insert("thought".to_owned(), json!({ "end": thought.end, "tokens": tokens.collect::<Vec<_>>() }));
        }
        choice
    }

    /// The log-probabilities and readings of tokens, if requested.
    fn of_tokens(&self, tokens: &[TokenLogprob], shared: &Shared) -> Value {
        let mut extra = Map::new();
        if self.logprobs {
            let content: Vec<_> = tokens.iter().map(|token| logprob(token, shared)).collect();
            extra.insert("logprobs".to_owned(), json!({ "content": content, "refusal": null }));
        }
        if self.common.readings {
            let tokens: Vec<_> = tokens.iter().map(|token| token_json(token, shared.model.vocabulary())).collect();
            extra.insert("loom".to_owned(), json!({ "tokens": tokens }));
        }
        Value::Object(extra)
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
