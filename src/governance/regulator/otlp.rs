//! Converts OpenTelemetry GenAI spans to events: one OTLP/JSON export per line, as the collector's file exporter writes.
//!
//! | Span (`gen_ai.operation.name`) | Events |
//! |---|---|
//! | `chat`, `text_completion`, `generate_content` | `turn_start` when its last input message is a user's, `turn_complete` when its output has text, `cost` from its usage and duration |
//! | `execute_tool` | `tool_call`, `tool_result`; it failed when the span has an error |
//! | any, with a `gen_ai.evaluation.result` event | `quality_feedback`, when the score lies in [0, 1] |
//! | others | none: an `invoke_agent` span repeats the sums of its children |
//!
//! Spans are processed in the order of their end times. Without recorded content (the default of many instrumentations)
//! only costs and tools remain. Spans contain no log-probabilities.

use serde_json::{Map, Value};

use super::wire::{EventLine, Kind};
use crate::foundation::chat::Finish;

/// The field that identifies an export.
pub(super) const EXPORT: &str = "resourceSpans";

/// The events of one export.
pub(super) fn events(export: &Map<String, Value>) -> Vec<EventLine> {
    let mut spans: Vec<&Value> = list(export.get(EXPORT))
        .flat_map(|resource| list(resource.get("scopeSpans")))
        .flat_map(|scope| list(scope.get("spans")))
        .collect();
    spans.sort_by_key(|span| nanos(span.get("endTimeUnixNano")));
    let mut found = Vec::new();
    for span in spans {
        let attributes = attributes(span.get("attributes"));
        match attributes.get("gen_ai.operation.name").and_then(Value::as_str) {
            Some("chat" | "text_completion" | "generate_content") => call(span, &attributes, &mut found),
            Some("execute_tool") => tool(span, &attributes, &mut found),
            _ => {}
        }
        for (name, attributes) in span_events(span) {
            if name == "gen_ai.evaluation.result"
                && let Some(quality) = attributes.get("gen_ai.evaluation.score.value").and_then(Value::as_f64)
                && (0.0..=1.0).contains(&quality)
            {
                found.push(Kind::QualityFeedback(quality));
            }
        }
    }
    found.into_iter().map(EventLine::of).collect()
}

fn call(span: &Value, attributes: &Map<String, Value>, found: &mut Vec<Kind>) {
    let messages = |field: &str| {
        // Content is in an attribute of the span or of one of its events.
        let in_event = || span_events(span).find_map(|(_, attributes)| attributes.get(field).cloned());
        attributes.get(field).cloned().or_else(in_event).map(parsed).unwrap_or_default()
    };
    let input = messages("gen_ai.input.messages");
    let mut user_message = list(Some(&input)).last().filter(|message| role(message) == "user").and_then(text);
    let output = messages("gen_ai.output.messages");
    let mut reply = list(Some(&output)).filter_map(text).reduce(|a, b| a + "\n" + &b);
    // Older instrumentations record each message as an event.
    for (name, attributes) in span_events(span) {
        let content = || attributes.get("content").or(attributes.get("message")).and_then(text);
        match name {
            "gen_ai.user.message" => user_message = content().or(user_message),
            "gen_ai.tool.message" => user_message = None,
            "gen_ai.choice" => reply = reply.or_else(content),
            _ => {}
        }
    }
    found.extend(user_message.map(Kind::TurnStart));
    let reasons = attributes.get("gen_ai.response.finish_reasons");
    let reason = list(reasons).next().or(reasons).and_then(Value::as_str);
    let finish = match reason {
        Some("stop" | "end_turn" | "stop_sequence") => Some(Finish::Stop),
        Some("length" | "max_tokens") => Some(Finish::Length),
        Some("content_filter" | "refusal") => Some(Finish::Refusal),
        _ => None,
    };
    let refused = finish == Some(Finish::Refusal);
    if reply.is_some() || refused {
        found.push(Kind::TurnComplete { full_response: reply.unwrap_or_default(), finish });
    }
    let count = |fields: &[&str]| fields.iter().find_map(|field| attributes.get(*field)?.as_u64()).unwrap_or(0);
    let provider = ["gen_ai.provider.name", "gen_ai.system"].iter().find_map(|field| attributes.get(*field)?.as_str());
    found.push(Kind::Cost {
        tokens_in: count(&["gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"]),
        tokens_out: count(&["gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"]),
        tokens_cached: count(&["gen_ai.usage.cache_read.input_tokens"]),
        money_micros: 0,
        wallclock_ms: duration_ms(span),
        provider: provider.map(str::to_owned),
    });
}

fn tool(span: &Value, attributes: &Map<String, Value>, found: &mut Vec<Kind>) {
    let attribute_text = |field: &str| {
        attributes.get(field).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    let name = attribute_text("gen_ai.tool.name").unwrap_or_default();
    let code = span.get("status").and_then(|status| status.get("code"));
    let failed = attributes.contains_key("error.type")
        || code.is_some_and(|code| code.as_u64() == Some(2) || code.as_str() == Some("STATUS_CODE_ERROR"));
    found.push(Kind::ToolCall {
        tool_name: name.clone(),
        args_json: attribute_text("gen_ai.tool.call.arguments").unwrap_or_default(),
    });
    found.push(Kind::ToolResult {
        tool_name: name,
        success: !failed,
        duration_ms: duration_ms(span),
        result: attribute_text("gen_ai.tool.call.result"),
    });
}

fn duration_ms(span: &Value) -> u64 {
    let (start, end) = (nanos(span.get("startTimeUnixNano")), nanos(span.get("endTimeUnixNano")));
    end.saturating_sub(start) / 1_000_000
}

/// OTLP/JSON writes 64-bit numbers as strings; some writers use numbers.
fn nanos(value: Option<&Value>) -> u64 {
    value.and_then(|value| value.as_u64().or_else(|| value.as_str()?.parse().ok())).unwrap_or(0)
}

fn list(value: Option<&Value>) -> std::slice::Iter<'_, Value> {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default().iter()
}

fn span_events(span: &Value) -> impl Iterator<Item = (&str, Map<String, Value>)> {
    list(span.get("events"))
        .filter_map(|event| Some((event.get("name")?.as_str()?, attributes(event.get("attributes")))))
}

/// `[{key, value: {stringValue: …}}, …]` as a map of plain JSON.
fn attributes(pairs: Option<&Value>) -> Map<String, Value> {
    let pair = |pair: &Value| Some((pair.get("key")?.as_str()?.to_owned(), plain(pair.get("value")?)));
    list(pairs).filter_map(pair).collect()
}

/// OTLP's tagged value as plain JSON.
fn plain(value: &Value) -> Value {
    let Some((tag, inner)) = value.as_object().and_then(|fields| fields.iter().next()) else { return Value::Null };
    match tag.as_str() {
        "intValue" => {
            inner.as_str().and_then(|text| text.parse::<i64>().ok()).map_or_else(|| inner.clone(), Value::from)
        }
        "arrayValue" => list(inner.get("values")).map(plain).collect(),
        "kvlistValue" => Value::Object(attributes(inner.get("values"))),
        "stringValue" | "doubleValue" | "boolValue" => inner.clone(),
        _ => Value::Null,
    }
}

/// Messages are structured values, or JSON in a string.
fn parsed(value: Value) -> Value {
    match &value {
        Value::String(text) => serde_json::from_str(text).unwrap_or(value),
        _ => value,
    }
}

fn role(message: &Value) -> &str {
    message.get("role").and_then(Value::as_str).unwrap_or_default()
}

/// The text of a message: itself, its `content`, or those of its `parts` that are text.
fn text(message: &Value) -> Option<String> {
    if let Some(text) = message.as_str().or_else(|| message.get("content")?.as_str()) {
        return Some(text.to_owned());
    }
    let parts = list(message.get("parts").or(message.get("content")));
    let texts = parts.filter(|part| part.get("type").and_then(Value::as_str).is_none_or(|kind| kind == "text"));
    let content = |part: &Value| part.get("content").or(part.get("text")).and_then(Value::as_str).map(str::to_owned);
    texts.filter_map(content).reduce(|a, b| a + &b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::governance::regulator::{LlmEvent, Regulator};

    /// An export in the form of the collector's file exporter: a chat call, a tool it called, and their results.
    const EXPORT: &str = include_str!("../../../tests/data/otlp.jsonl");

    #[test]
    fn spans_become_events_in_the_order_in_which_they_ended() {
        let lines: Vec<_> = EXPORT.lines().flat_map(|line| EventLine::parse_line(line).unwrap()).collect();
        let kinds: Vec<_> = lines.iter().map(EventLine::kind).collect();
        assert_eq!(
            kinds,
            [
                "turn_start",
                "cost",
                "tool_call",
                "tool_result",
                "turn_complete",
                "cost",
                "quality_feedback",
                "turn_start",
                "turn_complete",
                "cost"
            ]
        );
        let events: Vec<_> = lines.iter().map(EventLine::event).collect();
        assert_eq!(events[0], LlmEvent::TurnStart { user_message: "Weather in Paris?" });
        let cost = LlmEvent::Cost {
            tokens_in: 97,
            tokens_out: 52,
            tokens_cached: 12,
            money_micros: 0,
            wallclock_ms: 1500,
            provider: Some("openai"),
        };
        assert_eq!(events[1], cost);
        assert_eq!(events[2], LlmEvent::ToolCall { tool_name: "get_weather", args_json: r#"{"location":"Paris"}"# });
        let result = LlmEvent::ToolResult { tool_name: "get_weather", success: false, duration_ms: 20, result: None };
        assert_eq!(events[3], result);
        let refused = LlmEvent::TurnComplete { full_response: "I cannot.", finish: Some(Finish::Refusal) };
        assert_eq!(events[8], refused);
        let mut regulator = Regulator::default();
        for event in events {
            regulator.on_event(event);
        }
        assert_eq!((regulator.turn(), regulator.turn_stats().cost_session.tokens_in), (2, 97 + 120 + 40));
    }

    #[test]
    fn an_export_without_content_still_reports_cost() {
        let line = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[
            {"key":"gen_ai.operation.name","value":{"stringValue":"chat"}},
            {"key":"gen_ai.usage.input_tokens","value":{"intValue":"7"}}]}, 3, {"attributes":{}}]}, null]}]}"#;
        let kinds: Vec<_> = EventLine::parse_line(line).unwrap().iter().map(EventLine::kind).collect();
        assert_eq!(kinds, ["cost"]);
        assert_eq!(EventLine::parse_line(r#"{"resourceSpans":{}}"#).unwrap(), []);
    }
}
