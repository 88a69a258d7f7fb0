//! `OpenAI`'s chat completions as events: requests, responses and streaming chunks, one JSON object per line.
//!
//! | Object | Events |
//! |---|---|
//! | a request (`messages`) | `turn_start` when the last message is a user's, `tool_result` for each tool message at the end |
//! | `chat.completion.chunk` | `token` for each entry of `logprobs.content`, else `text`; `turn_complete` with the finish reason; `cost` from `usage` |
//! | `chat.completion` | the same at once, and `tool_call` for each of `message.tool_calls` |
//!
//! The pieces of a tool call that a stream is cut into are ignored. Only the first choice is read.

use serde_json::{Map, Value};

use super::event::{Event, OwnedEvent};
use crate::foundation::chat::Finish;

/// The JSON of a line of server-sent events, or the line itself; `None` for lines without data.
pub(super) fn without_framing(line: &str) -> Option<&str> {
    match line.strip_prefix("data:") {
        Some(data) => Some(data.trim()).filter(|data| *data != "[DONE]"),
        None => {
            Some(line).filter(|line| !["event:", "id:", "retry:", ": "].iter().any(|field| line.starts_with(field)))
        }
    }
}

/// The events of an object; `None` if it is not one of `OpenAI`'s.
pub(super) fn events(fields: &Map<String, Value>) -> Option<Vec<OwnedEvent>> {
    match fields.get("object").and_then(Value::as_str) {
        Some("chat.completion.chunk") => Some(response(fields, "delta")),
        Some("chat.completion") => Some(response(fields, "message")),
        None if !fields.contains_key("type") => Some(request(fields.get("messages")?.as_array()?)),
        _ => None,
    }
}

fn request(messages: &[Value]) -> Vec<OwnedEvent> {
    let role = |message: &Value| message.get("role").and_then(Value::as_str).unwrap_or_default().to_owned();
    let from = messages.iter().rposition(|message| role(message) != "tool").map_or(0, |at| at + 1);
    let tools = messages.iter().skip(from).map(|message| Event::ToolResult {
        call_id: text(message.get("tool_call_id")),
        tool_name: text(message.get("name")).unwrap_or_default(),
        success: true,
        duration_ms: 0,
        result: text(message.get("content")),
    });
    let user =
        messages.last().filter(|message| role(message) == "user").and_then(|message| text(message.get("content")));
    tools.chain(user.map(|user_message| Event::TurnStart { user_message })).collect()
}

fn response(fields: &Map<String, Value>, part: &str) -> Vec<OwnedEvent> {
    let mut found = Vec::new();
    let call_id = || text(fields.get("id"));
    if let Some(choice) = fields.get("choices").and_then(|choices| choices.get(0)) {
        let message = choice.get(part);
        let content = message.and_then(|message| text(message.get("content"))).unwrap_or_default();
        let mut entries: Vec<&Value> =
            list(choice.get("logprobs").and_then(|logprobs| logprobs.get("content"))).collect();
        let thinks =
            |name: &str| message.and_then(|message| text(message.get(name))).is_some_and(|text| !text.is_empty());
        if thinks("reasoning_content") || thinks("reasoning") {
            // Tokens of a thought come with those of the answer, which are the last ones.
            let texts = |from: usize| entries.iter().skip(from).filter_map(|entry| text(entry.get("token")));
            let from = (0..=entries.len()).find(|from| texts(*from).collect::<String>() == content);
            entries = entries.split_off(from.unwrap_or(entries.len()));
        }
        let tokens: Vec<OwnedEvent> = entries.into_iter().map(token).collect();
        if !tokens.is_empty() {
            found.extend(tokens);
        } else if !content.is_empty() {
            found.push(Event::Text { text: content.clone() });
        }
        let calls = message.filter(|_| part == "message").and_then(|message| message.get("tool_calls"));
        found.extend(list(calls).filter_map(tool_call));
        let finish = choice.get("finish_reason").and_then(Value::as_str);
        if let Some(finish) = finish.filter(|finish| !matches!(*finish, "tool_calls" | "function_call")) {
            let full_response = if part == "message" { content } else { String::new() };
            found.push(Event::TurnComplete { full_response, finish: finish_of(finish) });
        }
    }
    if let Some(usage) = fields.get("usage").filter(|usage| usage.is_object()) {
        let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
        let details = usage.get("prompt_tokens_details");
        found.push(Event::Cost {
            call_id: call_id(),
            model: text(fields.get("model")),
            tokens_in: count("prompt_tokens"),
            tokens_out: count("completion_tokens"),
            tokens_cached: details
                .and_then(|details| details.get("cached_tokens"))
                .and_then(Value::as_u64)
                .unwrap_or(0),
            money_micros: 0,
            wallclock_ms: 0,
            provider: None,
        });
    }
    found
}

/// What a provider's finish reason means; `None` if it is not known.
pub(super) fn finish_of(reason: &str) -> Option<Finish> {
    match reason {
        "stop" | "end_turn" | "stop_sequence" | "eos" => Some(Finish::Stop),
        "length" | "max_tokens" => Some(Finish::Length),
        "content_filter" | "refusal" => Some(Finish::Refusal),
        _ => None,
    }
}

fn token(entry: &Value) -> OwnedEvent {
    let logprob = |entry: &Value| entry.get("logprob").and_then(Value::as_f64).map(|logprob| logprob as f32);
    let mut top: Vec<f32> = list(entry.get("top_logprobs")).filter_map(logprob).collect();
    top.sort_by(|a, b| b.total_cmp(a));
    Event::Token {
        token: text(entry.get("token")).unwrap_or_default(),
        logprob: logprob(entry),
        index: 0,
        entropy: None,
        top,
    }
}

fn tool_call(call: &Value) -> Option<OwnedEvent> {
    let function = call.get("function")?;
    Some(Event::ToolCall {
        call_id: text(call.get("id")),
        tool_name: text(function.get("name"))?,
        args_json: text(function.get("arguments")).unwrap_or_default(),
    })
}

fn list(value: Option<&Value>) -> std::slice::Iter<'_, Value> {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default().iter()
}

/// A text, or the texts of a list of content parts.
fn text(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part.get("text").and_then(Value::as_str))
            .map(str::to_owned)
            .reduce(|a, b| a + &b),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::governance::regulator::{EventLine, LlmEvent};

    fn kinds(line: &str) -> Vec<&'static str> {
        EventLine::parse_line(line).unwrap().iter().map(EventLine::kind).collect()
    }

    #[test]
    fn a_stream_becomes_tokens_and_a_cost() {
        let chunk = r#"data: {"id":"c1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"Hi"},
            "logprobs":{"content":[{"token":"Hi","logprob":-0.25,"top_logprobs":[{"token":"Hi","logprob":-0.25},{"token":"Yo","logprob":-1.5}]}]},
            "finish_reason":null}]}"#.replace('\n', " ");
        let lines = EventLine::parse_line(&chunk).unwrap();
        let token = LlmEvent::Token { token: "Hi", logprob: Some(-0.25), index: 0, entropy: None, top: &[-0.25, -1.5] };
        assert_eq!(lines.iter().map(EventLine::event).collect::<Vec<_>>(), [token]);
        assert_eq!(
            kinds(r#"{"object":"chat.completion.chunk","choices":[{"delta":{"content":"Hi"},"finish_reason":null}]}"#),
            ["text"]
        );
        assert_eq!(
            kinds(r#"data: {"object":"chat.completion.chunk","choices":[{"delta":{},"finish_reason":"stop"}]}"#),
            ["turn_complete"]
        );
        assert_eq!(
            kinds(
                r#"{"object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}"#
            ),
            ["cost"]
        );
        // What the model thinks is not its answer.
        let thought = |delta: &str| {
            let tokens =
                r#"[{"token":"Hm","logprob":-0.5},{"token":"</think>","logprob":-0.1},{"token":"Hi","logprob":-1}]"#;
            let chunk =
                r#"{"object":"chat.completion.chunk","choices":[{"delta":DELTA,"logprobs":{"content":TOKENS}}]}"#;
            let lines = EventLine::parse_line(&chunk.replace("DELTA", delta).replace("TOKENS", tokens)).unwrap();
            lines.iter().map(|line| format!("{:?}", line.event())).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(thought(r#"{"reasoning_content":"Hm"}"#), "");
        let both = thought(r#"{"reasoning":"Hm","content":"Hi"}"#);
        assert!(both.contains("\"Hi\"") && !both.contains("Hm"), "{both}");
        for silent in ["data: [DONE]", "event: done", ": keep-alive"] {
            assert_eq!(kinds(silent), [] as [&str; 0]);
        }
    }

    #[test]
    fn requests_and_whole_responses_are_read_with_their_tools() {
        assert_eq!(
            kinds(
                r#"{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"u"}]}]}"#
            ),
            ["turn_start"]
        );
        let after = r#"{"messages":[{"role":"user","content":"u"},{"role":"assistant","tool_calls":[]},{"role":"tool","tool_call_id":"t1","content":"42"}]}"#;
        let lines = EventLine::parse_line(after).unwrap();
        let result = LlmEvent::ToolResult {
            call_id: Some("t1"),
            tool_name: "",
            success: true,
            duration_ms: 0,
            result: Some("42"),
        };
        assert_eq!(lines[0].event(), result);
        let calls = r#"{"object":"chat.completion","choices":[{"message":{"content":null,"tool_calls":[{"id":"t1","function":{"name":"add","arguments":"{}"}}]},
            "finish_reason":"tool_calls"}],"usage":{"prompt_tokens":5,"completion_tokens":7}}"#.replace('\n', " ");
        assert_eq!(kinds(&calls), ["tool_call", "cost"]);
        assert_eq!(
            kinds(
                r#"{"object":"chat.completion","choices":[{"message":{"content":"It is 42."},"finish_reason":"stop"}]}"#
            ),
            ["text", "turn_complete"]
        );
    }
}
