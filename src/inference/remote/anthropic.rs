//! Anthropic's Messages API. It gives no log-probabilities.
//!
//! Its conversations begin with the user, and system instructions are a separate field. A conversation that begins with
//! the assistant is preceded by [`OPENER`]; a later system message is sent as a user message inside `<instruction>`
//! tags.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::credentials::Credentials;
use super::openai::number;
use super::partial_reply::PartialReply;
use super::provider_error::{ProviderError, ProviderErrorKind, quote};
use super::{ChatRequest, ProviderApi};
use crate::foundation::chat::{Finish, Message, Role, Usage};

/// The API version.
const VERSION: &str = "2023-06-01";
/// The first user message where the model speaks first.
const OPENER: &str = "(The conversation begins.)";

#[derive(Debug, Clone, Copy)]
pub(super) struct Anthropic;

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicEvent {
    MessageStart {
        message: Start,
    },
    ContentBlockDelta {
        delta: Delta,
    },
    MessageDelta {
        delta: End,
        usage: Option<Written>,
    },
    MessageStop,
    Error {
        error: Value,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Start {
    model: Option<String>,
    usage: Option<Read>,
}

#[derive(Deserialize)]
struct Read {
    #[serde(rename = "input_tokens")]
    fresh: u64,
    #[serde(rename = "cache_read_input_tokens")]
    cached: Option<u64>,
    #[serde(rename = "cache_creation_input_tokens")]
    newly_cached: Option<u64>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Delta {
    TextDelta {
        text: String,
    },
    /// Thinking and tool use, which are never requested here.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct End {
    stop_reason: Option<String>,
}

/// Totals so far; a proxy may report the prompt's tokens only here.
#[derive(Deserialize)]
struct Written {
    output_tokens: u64,
    input_tokens: Option<u64>,
}

impl ProviderApi for Anthropic {
    fn name(&self) -> &'static str {
        "anthropic"
    }

    fn path(&self) -> &'static str {
        "/v1/messages"
    }

    fn scores(&self) -> bool {
        false
    }

    fn headers(&self, credentials: &Credentials) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static("anthropic-version"), HeaderValue::from_static(VERSION));
        if let Some(key) = credentials.header("")? {
            headers.insert(HeaderName::from_static("x-api-key"), key);
        }
        Ok(headers)
    }

    fn body(&self, request: &ChatRequest<'_>) -> Result<Map<String, Value>, String> {
        let sampling = request.sampling;
        if sampling.temperature > 1.0 {
            return Err(format!("Anthropic's temperatures are at most 1, not {}; lower it", sampling.temperature));
        }
        if request.thinking.enabled.is_some() || !request.thinking.template_arguments.is_empty() {
            return Err("Anthropic's models take no settings of a chat template; leave them out".to_owned());
        }
        if sampling.min_p > 0.0 || sampling.repetition_penalty.to_bits() != 1f32.to_bits() {
            return Err("Anthropic samples with neither `min_p` nor `repetition_penalty`; leave them out".to_owned());
        }
        let (system, messages) = conversation(request.messages);
        let mut body = Map::new();
        let mut set = |key: &str, value: Value| drop(body.insert(key.to_owned(), value));
        set("model", json!(request.model));
        if !system.is_empty() {
            set("system", json!(system));
        }
        set("messages", json!(messages));
        set("max_tokens", json!(sampling.max_tokens));
        // Newer models reject requests with both settings, so values equal to the API's defaults are left out.
        if sampling.temperature.to_bits() != 1f32.to_bits() {
            set("temperature", number(sampling.temperature));
        }
        if sampling.top_p < 1.0 {
            set("top_p", number(sampling.top_p));
        }
        if let Some(top_k) = sampling.top_k {
            set("top_k", json!(top_k));
        }
        if !sampling.stop.is_empty() {
            set("stop_sequences", json!(sampling.stop));
        }
        set("stream", json!(true));
        Ok(body)
    }

    fn event(&self, data: &str, partial: &mut PartialReply) -> Result<(), ProviderError> {
        let event: AnthropicEvent = serde_json::from_str(data).map_err(|_| {
            ProviderError::new(ProviderErrorKind::Garbled, format!("it sent an invalid event: {}", quote(data)))
        })?;
        match event {
            AnthropicEvent::MessageStart { message } => {
                partial.served = message.model;
                partial.usage = message.usage.map(|read| {
                    let cached = read.cached.unwrap_or(0);
                    let tokens_in = read.fresh.saturating_add(cached).saturating_add(read.newly_cached.unwrap_or(0));
                    Usage { tokens_in, tokens_out: 0, tokens_cached: cached }
                });
            }
            AnthropicEvent::ContentBlockDelta { delta: Delta::TextDelta { text } } => partial.push_untokenized(&text),
            AnthropicEvent::MessageDelta { delta, usage } => {
                if let (Some(sum), Some(usage)) = (&mut partial.usage, usage) {
                    sum.tokens_out = usage.output_tokens;
                    sum.tokens_in = sum.tokens_in.max(usage.input_tokens.unwrap_or(0));
                }
                partial.finish = match delta.stop_reason.as_deref() {
                    None => partial.finish,
                    Some("end_turn" | "stop_sequence") => Some(Finish::Stop),
                    Some("max_tokens" | "model_context_window_exceeded") => Some(Finish::Length),
                    Some("refusal") => Some(Finish::Refusal),
                    Some(other) => {
                        let why = format!("it ended the reply with `{}`, which was not requested", quote(other));
                        return Err(ProviderError::new(ProviderErrorKind::Garbled, why));
                    }
                };
            }
            AnthropicEvent::MessageStop => partial.ended = true,
            AnthropicEvent::Error { error } => return Err(ProviderError::from_event(&error)),
            AnthropicEvent::ContentBlockDelta { delta: Delta::Other } | AnthropicEvent::Other => {}
        }
        Ok(())
    }
}

/// The system text and the messages of a conversation.
fn conversation(messages: &[Message]) -> (String, Vec<Value>) {
    let leading = messages.iter().take_while(|message| message.role == Role::System).count();
    let (leading, spoken) = messages.split_at(leading);
    let system = leading.iter().map(|message| message.content.as_str()).collect::<Vec<_>>().join("\n\n");
    let mut sent: Vec<Value> = Vec::with_capacity(spoken.len() + 1);
    if spoken.first().is_none_or(|message| message.role == Role::Assistant) {
        sent.push(json!({"role": "user", "content": OPENER}));
    }
    sent.extend(spoken.iter().map(|message| match message.role {
        Role::System => {
            json!({"role": "user", "content": format!("<instruction>\n{}\n</instruction>", message.content)})
        }
        role => json!({"role": role.as_str(), "content": message.content}),
    }));
    (system, sent)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{chat_request, read};
    use super::*;
    use crate::foundation::chat::Sampling;

    #[test]
    fn system_messages_become_the_system_field_and_the_user_begins() {
        let sampling = Sampling { temperature: 0.5, top_p: 1.0, max_tokens: 9, ..Sampling::default() };
        let messages =
            [Message::system("be Anna"), Message::assistant("hello"), Message::system("be sad"), Message::user("hi")];
        let body = Anthropic.body(&chat_request(&messages, &sampling)).unwrap();
        let expected = json!({
            "model": "m", "system": "be Anna", "max_tokens": 9, "temperature": 0.5, "stream": true,
            "messages": [
                {"role": "user", "content": "(The conversation begins.)"},
                {"role": "assistant", "content": "hello"},
                {"role": "user", "content": "<instruction>\nbe sad\n</instruction>"},
                {"role": "user", "content": "hi"},
            ],
        });
        assert_eq!(Value::Object(body), expected);
        let hot = Sampling { temperature: 1.5, ..sampling };
        assert!(Anthropic.body(&chat_request(&messages, &hot)).unwrap_err().contains("at most 1"));
    }

    #[test]
    fn a_streamed_reply_has_its_text_and_token_counts() {
        let partial = read(&Anthropic, &[
            r#"{"type": "message_start", "message": {"model": "claude-x-1", "usage": {"input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": 1}}}"#,
            r#"{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}"#,
            r#"{"type": "ping"}"#,
            r#"{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}}"#,
            r#"{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " there"}}"#,
            r#"{"type": "content_block_stop", "index": 0}"#,
            r#"{"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}}"#,
            r#"{"type": "message_stop"}"#,
        ]).unwrap();
        assert!(partial.ended);
        assert_eq!((partial.finish, partial.served.as_deref()), (Some(Finish::Stop), Some("claude-x-1")));
        assert_eq!(partial.usage, Some(Usage { tokens_in: 8, tokens_out: 4, tokens_cached: 3 }));
        let texts: Vec<_> = partial.tokens.iter().map(|token| (token.text.as_str(), token.logprob)).collect();
        assert_eq!(texts, [("Hello", None), (" there", None)]);
    }

    #[test]
    fn refusals_and_errors_are_distinguished() {
        let refused =
            r#"{"type": "message_delta", "delta": {"stop_reason": "refusal"}, "usage": {"output_tokens": 0}}"#;
        assert_eq!(read(&Anthropic, &[refused]).unwrap().finish, Some(Finish::Refusal));
        for (data, kind) in [
            (
                r#"{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}"#,
                ProviderErrorKind::Overloaded,
            ),
            (r#"{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}"#, ProviderErrorKind::Garbled),
            ("rubbish", ProviderErrorKind::Garbled),
        ] {
            assert_eq!(read(&Anthropic, &[data]).unwrap_err().kind, kind, "{data}");
        }
    }
}
