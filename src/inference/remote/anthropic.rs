//! Anthropic's messages. It gives no log-probabilities.
//!
//! Its conversations begin with the user, and instructions stand above them, not among them. So a conversation that the
//! model opens is preceded by [`OPENER`], and an instruction further down is told in the user's place, marked as one.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::draft::Draft;
use super::fault::{Fault, Kind, quote};
use super::keys::Account;
use super::openai::number;
use super::sse::Event;
use super::{Ask, Dialect};
use crate::foundation::chat::{Finish, Message, Role, Usage};

/// The version of the interface that is spoken.
const VERSION: &str = "2023-06-01";
/// Stands for the user's silence where the model speaks first.
const OPENER: &str = "(The conversation begins.)";

#[derive(Debug, Clone, Copy)]
pub(super) struct Anthropic;

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Told {
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
    /// Thoughts and tools, which no request here asks for.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct End {
    stop_reason: Option<String>,
}

/// Sums so far; a proxy may tell the prompt's tokens only here.
#[derive(Deserialize)]
struct Written {
    output_tokens: u64,
    input_tokens: Option<u64>,
}

impl Dialect for Anthropic {
    fn name(&self) -> &'static str {
        "anthropic"
    }

    fn path(&self) -> &'static str {
        "/v1/messages"
    }

    fn scores(&self) -> bool {
        false
    }

    fn headers(&self, account: &Account) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static("anthropic-version"), HeaderValue::from_static(VERSION));
        if let Some(key) = account.header("")? {
            headers.insert(HeaderName::from_static("x-api-key"), key);
        }
        Ok(headers)
    }

    fn body(&self, ask: &Ask<'_>) -> Result<Map<String, Value>, String> {
        let sampling = ask.sampling;
        if sampling.temperature > 1.0 {
            return Err(format!("Anthropic's temperatures end at 1, not {}; lower it", sampling.temperature));
        }
        if sampling.min_p > 0.0 || sampling.repetition_penalty.to_bits() != 1f32.to_bits() {
            return Err("Anthropic samples with neither `min_p` nor `repetition_penalty`; leave them out".to_owned());
        }
        let (system, messages) = conversation(ask.messages);
        let mut body = Map::new();
        let mut set = |key: &str, value: Value| drop(body.insert(key.to_owned(), value));
        set("model", json!(ask.model));
        if !system.is_empty() {
            set("system", json!(system));
        }
        set("messages", json!(messages));
        set("max_tokens", json!(sampling.max_tokens));
        // Newer models refuse to be given both, so the interface's defaults are left out.
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

    fn event(&self, event: &Event, draft: &mut Draft) -> Result<(), Fault> {
        let told: Told = serde_json::from_str(&event.data)
            .map_err(|_| Fault::new(Kind::Garbled, format!("it sent no event of a reply: {}", quote(&event.data))))?;
        match told {
            Told::MessageStart { message } => {
                draft.served = message.model;
                draft.usage = message.usage.map(|read| {
                    let cached = read.cached.unwrap_or(0);
                    let tokens_in = read.fresh.saturating_add(cached).saturating_add(read.newly_cached.unwrap_or(0));
                    Usage { tokens_in, tokens_out: 0, tokens_cached: cached }
                });
            }
            Told::ContentBlockDelta { delta: Delta::TextDelta { text } } => draft.piece(&text),
            Told::MessageDelta { delta, usage } => {
                if let (Some(sum), Some(usage)) = (&mut draft.usage, usage) {
                    sum.tokens_out = usage.output_tokens;
                    sum.tokens_in = sum.tokens_in.max(usage.input_tokens.unwrap_or(0));
                }
                draft.finish = match delta.stop_reason.as_deref() {
                    None => draft.finish,
                    Some("end_turn" | "stop_sequence") => Some(Finish::Stop),
                    Some("max_tokens" | "model_context_window_exceeded") => Some(Finish::Length),
                    Some("refusal") => Some(Finish::Refusal),
                    Some(other) => {
                        let why = format!("it ended the reply with `{}`, which no request here asks for", quote(other));
                        return Err(Fault::new(Kind::Garbled, why));
                    }
                };
            }
            Told::MessageStop => draft.over = true,
            Told::Error { error } => return Err(Fault::of_event(&error)),
            Told::ContentBlockDelta { delta: Delta::Other } | Told::Other => {}
        }
        Ok(())
    }
}

/// What stands above the conversation, and the conversation.
fn conversation(messages: &[Message]) -> (String, Vec<Value>) {
    let above = messages.iter().take_while(|message| message.role == Role::System).count();
    let (above, spoken) = messages.split_at(above);
    let system = above.iter().map(|message| message.content.as_str()).collect::<Vec<_>>().join("\n\n");
    let mut told: Vec<Value> = Vec::with_capacity(spoken.len() + 1);
    if spoken.first().is_none_or(|message| message.role == Role::Assistant) {
        told.push(json!({"role": "user", "content": OPENER}));
    }
    told.extend(spoken.iter().map(|message| match message.role {
        Role::System => {
            json!({"role": "user", "content": format!("<instruction>\n{}\n</instruction>", message.content)})
        }
        role => json!({"role": role.as_str(), "content": message.content}),
    }));
    (system, told)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ask, read};
    use super::*;
    use crate::foundation::chat::Sampling;

    #[test]
    fn instructions_stand_above_and_the_user_begins() {
        let sampling = Sampling { temperature: 0.5, top_p: 1.0, max_tokens: 9, ..Sampling::default() };
        let messages =
            [Message::system("be Anna"), Message::assistant("hello"), Message::system("be sad"), Message::user("hi")];
        let body = Anthropic.body(&ask(&messages, &sampling)).unwrap();
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
        assert!(Anthropic.body(&ask(&messages, &hot)).unwrap_err().contains("end at 1"));
    }

    #[test]
    fn a_reply_comes_in_pieces_with_its_counts() {
        let draft = read(&Anthropic, &[
            r#"{"type": "message_start", "message": {"model": "claude-x-1", "usage": {"input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": 1}}}"#,
            r#"{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}"#,
            r#"{"type": "ping"}"#,
            r#"{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}}"#,
            r#"{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " there"}}"#,
            r#"{"type": "content_block_stop", "index": 0}"#,
            r#"{"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}}"#,
            r#"{"type": "message_stop"}"#,
        ]).unwrap();
        assert!(draft.over);
        assert_eq!((draft.finish, draft.served.as_deref()), (Some(Finish::Stop), Some("claude-x-1")));
        assert_eq!(draft.usage, Some(Usage { tokens_in: 8, tokens_out: 4, tokens_cached: 3 }));
        let texts: Vec<_> = draft.tokens.iter().map(|token| (token.text.as_str(), token.logprob)).collect();
        assert_eq!(texts, [("Hello", None), (" there", None)]);
    }

    #[test]
    fn refusals_and_faults_are_told_apart() {
        let refused =
            r#"{"type": "message_delta", "delta": {"stop_reason": "refusal"}, "usage": {"output_tokens": 0}}"#;
        assert_eq!(read(&Anthropic, &[refused]).unwrap().finish, Some(Finish::Refusal));
        for (data, kind) in [
            (r#"{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}"#, Kind::Overloaded),
            (r#"{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}"#, Kind::Garbled),
            ("rubbish", Kind::Garbled),
        ] {
            assert_eq!(read(&Anthropic, &[data]).unwrap_err().kind, kind, "{data}");
        }
    }
}
