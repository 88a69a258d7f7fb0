//! Converts OpenTelemetry spans of model calls to events: one OTLP/JSON export per line, as the collector's file exporter
//! writes. Three conventions are read, and may be mixed within an export.
//!
//! | | OpenTelemetry GenAI | `OpenInference` | Traceloop (`OpenLLMetry`) |
//! |---|---|---|---|
//! | a model call | `gen_ai.operation.name` | `openinference.span.kind` = `LLM` | `llm.request.type` |
//! | its messages | `gen_ai.input.messages`, span events | `llm.input_messages.N.message.*` | `gen_ai.prompt.N.*` |
//! | its usage | `gen_ai.usage.*` | `llm.token_count.*` | `gen_ai.usage.*`, `llm.usage.*` |
//! | a tool | `execute_tool` | `openinference.span.kind` = `TOOL` | `traceloop.span.kind` = `tool` |
//!
//! A model call gives `turn_start` when its last input message is a user's, `turn_complete` when its output has text, and
//! `cost` from usage and duration; a tool gives `tool_call` and `tool_result`, which failed if the span has an error. A
//! `gen_ai.evaluation.result` event gives `quality_feedback` if its score lies in [0, 1]. Other spans give nothing: an
//! agent's span repeats the sums of its children.
//!
//! Spans are processed in the order of their end times. Without recorded content (the default of many instrumentations)
//! only costs and tools remain. Spans contain no log-probabilities.

use serde_json::{Map, Value};

use super::event::{Event, OwnedEvent};
use super::openai::finish_of;
use crate::foundation::chat::Finish;

/// The field that identifies an export.
pub(super) const EXPORT: &str = "resourceSpans";

type Attributes = Map<String, Value>;

/// The events of one export.
pub(super) fn events(export: &Map<String, Value>) -> Vec<OwnedEvent> {
    let mut spans: Vec<&Value> = list(export.get(EXPORT))
        .flat_map(|resource| list(resource.get("scopeSpans")))
        .flat_map(|scope| list(scope.get("spans")))
        .collect();
    spans.sort_by_key(|span| nanos(span.get("endTimeUnixNano")));
    let mut found = Vec::new();
    for span in spans {
        let attributes = attributes(span.get("attributes"));
        match role_of(&attributes) {
            Some(SpanRole::ModelCall) => call(span, &attributes, &mut found),
            Some(SpanRole::Tool) => tool(span, &attributes, &mut found),
            None => {}
        }
        for (name, attributes) in span_events(span) {
            if name == "gen_ai.evaluation.result"
                && let Some(quality) = attributes.get("gen_ai.evaluation.score.value").and_then(Value::as_f64)
                && (0.0..=1.0).contains(&quality)
            {
                found.push(Event::QualityFeedback { quality });
            }
        }
    }
    found
}

enum SpanRole {
    ModelCall,
    Tool,
}

fn role_of(attributes: &Attributes) -> Option<SpanRole> {
    let value = |name: &str| attributes.get(name).and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
    let operation = value("gen_ai.operation.name");
    let kind = value("openinference.span.kind");
    match operation.as_str() {
        "chat" | "text_completion" | "generate_content" => return Some(SpanRole::ModelCall),
        "execute_tool" => return Some(SpanRole::Tool),
        "" => {}
        _ => return None,
    }
    if kind == "llm" || matches!(value("llm.request.type").as_str(), "chat" | "completion") {
        return Some(SpanRole::ModelCall);
    }
    (kind == "tool" || value("traceloop.span.kind") == "tool").then_some(SpanRole::Tool)
}

fn call(span: &Value, attributes: &Attributes, found: &mut Vec<OwnedEvent>) {
    let structured = |field: &str| {
        // Content is in an attribute of the span or of one of its events.
        let in_event = || span_events(span).find_map(|(_, attributes)| attributes.get(field).cloned());
        attributes.get(field).cloned().or_else(in_event).map(parsed).unwrap_or_default()
    };
    let input = structured("gen_ai.input.messages");
    let inputs: Vec<(String, Option<String>)> = list(Some(&input))
        .map(|message| (role(message).to_owned(), text(message)))
        .chain(indexed(attributes, "llm.input_messages.", ".message"))
        .chain(indexed(attributes, "gen_ai.prompt.", ""))
        .collect();
    let output = structured("gen_ai.output.messages");
    let outputs = list(Some(&output))
        .filter_map(text)
        .chain(indexed(attributes, "llm.output_messages.", ".message").into_iter().filter_map(|(_, text)| text))
        .chain(indexed(attributes, "gen_ai.completion.", "").into_iter().filter_map(|(_, text)| text));
    let mut user_message = inputs.last().filter(|(role, _)| role == "user").and_then(|(_, text)| text.clone());
    let mut reply = outputs.reduce(|a, b| a + "\n" + &b);
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
    if kind_is_llm(attributes) && inputs.is_empty() {
        // `OpenInference` without messages: the whole input and output as text.
        user_message = user_message.or_else(|| plain_io(attributes, "input"));
        reply = reply.or_else(|| plain_io(attributes, "output"));
    }
    found.extend(user_message.map(|user_message| Event::TurnStart { user_message }));
    let reasons = ["gen_ai.response.finish_reasons", "gen_ai.completion.0.finish_reason", "llm.response.finish_reason"];
    let reasons = reasons.iter().find_map(|name| attributes.get(*name));
    let finish = list(reasons).next().or(reasons).and_then(Value::as_str).and_then(finish_of);
    if reply.is_some() || finish == Some(Finish::Refusal) {
        found.push(Event::TurnComplete { full_response: reply.unwrap_or_default(), finish });
    }
    let count = |fields: &[&str]| fields.iter().find_map(|field| number(attributes.get(*field)?)).unwrap_or(0.0) as u64;
    let name = |fields: &[&str]| fields.iter().find_map(|field| attributes.get(*field)?.as_str()).map(str::to_owned);
    let money = attributes.get("llm.cost.total").and_then(number).unwrap_or(0.0);
    found.push(Event::Cost {
        call_id: name(&["gen_ai.response.id"]),
        model: name(&["gen_ai.response.model", "gen_ai.request.model", "llm.model_name"]),
        tokens_in: count(&["gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"]),
        tokens_out: count(&[
            "gen_ai.usage.output_tokens",
            "gen_ai.usage.completion_tokens",
            "llm.token_count.completion",
        ]),
        tokens_cached: count(&[
            "gen_ai.usage.cache_read.input_tokens",
            "gen_ai.usage.cache_read_input_tokens",
            "llm.token_count.prompt_details.cache_read",
        ]),
        money_micros: (money.max(0.0) * 1e6).round() as u64,
        wallclock_ms: duration_ms(span),
        provider: name(&["gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system"]),
    });
}

fn kind_is_llm(attributes: &Attributes) -> bool {
    attributes
        .get("openinference.span.kind")
        .and_then(Value::as_str)
        .is_some_and(|kind| kind.eq_ignore_ascii_case("llm"))
}

/// `input.value` or `output.value`, unless it is JSON, whose meaning depends on the framework.
fn plain_io(attributes: &Attributes, which: &str) -> Option<String> {
    let json = attributes.get(&format!("{which}.mime_type")).and_then(Value::as_str) == Some("application/json");
    attributes.get(&format!("{which}.value"))?.as_str().filter(|_| !json).map(str::to_owned)
}

/// Messages that are flattened into attributes: `PREFIX0INFIX.role`, `PREFIX0INFIX.content`, and so on.
fn indexed(attributes: &Attributes, prefix: &str, infix: &str) -> Vec<(String, Option<String>)> {
    let field =
        |index: usize, name: &str| attributes.get(&format!("{prefix}{index}{infix}.{name}")).and_then(Value::as_str);
    let content = |index: usize| {
        let parts = (0..).map_while(|part| field(index, &format!("contents.{part}.message_content.text")));
        field(index, "content").map(str::to_owned).or_else(|| parts.map(str::to_owned).reduce(|a, b| a + &b))
    };
    (0..)
        .map_while(|index| {
            let (role, content) = (field(index, "role"), content(index));
            (role.is_some() || content.is_some()).then(|| (role.unwrap_or_default().to_owned(), content))
        })
        .collect()
}

fn tool(span: &Value, attributes: &Attributes, found: &mut Vec<OwnedEvent>) {
    let attribute_text = |fields: &[&str]| {
        let value = fields.iter().find_map(|field| attributes.get(*field));
        value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    let span_name = || span.get("name").and_then(Value::as_str).map(str::to_owned);
    let name = attribute_text(&["gen_ai.tool.name", "tool.name", "traceloop.entity.name"]).or_else(span_name);
    let tool_name = name.unwrap_or_default();
    let call_id = attribute_text(&["gen_ai.tool.call.id", "tool_call.id"]);
    let code = span.get("status").and_then(|status| status.get("code"));
    let failed = attributes.contains_key("error.type")
        || code.is_some_and(|code| code.as_u64() == Some(2) || code.as_str() == Some("STATUS_CODE_ERROR"));
    let arguments = [
        "gen_ai.tool.call.arguments",
        "tool_call.function.arguments",
        "tool.parameters",
        "input.value",
        "traceloop.entity.input",
    ];
    found.push(Event::ToolCall {
        call_id: call_id.clone(),
        tool_name: tool_name.clone(),
        args_json: attribute_text(&arguments).unwrap_or_default(),
    });
    found.push(Event::ToolResult {
        call_id,
        tool_name,
        success: !failed,
        duration_ms: duration_ms(span),
        result: attribute_text(&["gen_ai.tool.call.result", "output.value", "traceloop.entity.output"]),
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

fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok()).filter(|number| number.is_finite())
}

fn list(value: Option<&Value>) -> std::slice::Iter<'_, Value> {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default().iter()
}

fn span_events(span: &Value) -> impl Iterator<Item = (&str, Attributes)> {
    list(span.get("events"))
        .filter_map(|event| Some((event.get("name")?.as_str()?, attributes(event.get("attributes")))))
}

/// `[{key, value: {stringValue: …}}, …]` as a map of plain JSON.
fn attributes(pairs: Option<&Value>) -> Attributes {
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
    use crate::governance::regulator::{EventLine, LlmEvent, Regulator};

    /// An export in the form of the collector's file exporter: a chat call, a tool it called, and their results.
    const EXPORT: &str = include_str!("../../../tests/data/otlp.jsonl");
    /// The same kinds of spans as other instrumentations write them.
    const OTHERS: &str = include_str!("../../../tests/data/otlp_others.jsonl");

    fn events(text: &str) -> Vec<EventLine> {
        text.lines().flat_map(|line| EventLine::parse_line(line).unwrap()).collect()
    }

    #[test]
    fn spans_become_events_in_the_order_in_which_they_ended() {
        let lines = events(EXPORT);
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
        let LlmEvent::Cost { tokens_in, tokens_out, tokens_cached, money_micros, wallclock_ms, provider, .. } =
            events[1]
        else {
            panic!()
        };
        assert_eq!((tokens_in, tokens_out, tokens_cached, money_micros), (97, 52, 12, 0));
        assert_eq!((wallclock_ms, provider), (1500, Some("openai")));
        let LlmEvent::ToolCall { tool_name, args_json, .. } = events[2] else { panic!() };
        assert_eq!((tool_name, args_json), ("get_weather", r#"{"location":"Paris"}"#));
        let LlmEvent::ToolResult { tool_name, success, duration_ms, result, .. } = events[3] else { panic!() };
        assert_eq!((tool_name, success, duration_ms, result), ("get_weather", false, 20, None));
        let refused = LlmEvent::TurnComplete { full_response: "I cannot.", finish: Some(Finish::Refusal) };
        assert_eq!(events[8], refused);
        let mut regulator = Regulator::default();
        for event in events {
            regulator.on_event(event);
        }
        assert_eq!((regulator.turn(), regulator.turn_stats().cost_session.tokens_in), (2, 97 + 120 + 40));
    }

    #[test]
    fn openinference_and_traceloop_give_the_same_events() {
        for line in OTHERS.lines() {
            let lines = events(line);
            let kinds: Vec<_> = lines.iter().map(EventLine::kind).collect();
            assert_eq!(kinds, ["turn_start", "cost", "tool_call", "tool_result", "turn_complete", "cost"], "{line}");
            let events: Vec<_> = lines.iter().map(EventLine::event).collect();
            assert_eq!(events[0], LlmEvent::TurnStart { user_message: "What is in stock?" });
            let LlmEvent::Cost { tokens_in, tokens_out, tokens_cached, model, .. } = events[5] else { panic!() };
            assert_eq!((tokens_in, tokens_out, tokens_cached, model), (210, 18, 64, Some("gpt-4o-mini")));
            let LlmEvent::ToolCall { tool_name, args_json, .. } = events[2] else { panic!() };
            assert_eq!((tool_name, args_json.contains("lamp")), ("stock", true));
            let LlmEvent::ToolResult { success, result, duration_ms, .. } = events[3] else { panic!() };
            assert_eq!((success, result.is_some_and(|result| result.contains('7')), duration_ms), (true, true, 40));
            let LlmEvent::TurnComplete { full_response, finish } = events[4] else { panic!() };
            assert_eq!((full_response, finish.is_none_or(|finish| finish == Finish::Stop)), ("Seven lamps.", true));
        }
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
