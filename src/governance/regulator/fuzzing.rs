//! Entry points for the targets in `fuzz/`: untrusted events may give errors, never panics. Not public API.

use super::{EventLine, LlmEvent, Regulator};

/// Parses lines as `loom regulate` does and passes the events to a regulator.
pub fn jsonl_events(text: &str) {
    let mut regulator = Regulator::default();
    for line in text.lines() {
        for event in EventLine::parse_line(line).into_iter().flatten() {
            regulator.on_event(event.event());
        }
        drop(EventLine::parse(line).map_err(|error| error.to_string()));
    }
    drop((regulator.decide().len(), regulator.turn_stats(), regulator.export().to_json()));
}

/// Wraps `spans` in an OTLP/JSON export and passes its events to a regulator with an open turn.
pub fn otlp_spans(spans: &str) {
    let mut regulator = Regulator::default();
    regulator.on_event(LlmEvent::TurnStart { user_message: "Refactor the parser. Do not add logging." });
    let export = format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":{spans}}}]}}]}}"#);
    for event in EventLine::parse_line(&export).into_iter().flatten() {
        regulator.on_event(event.event());
    }
    drop((regulator.decide().len(), regulator.turn_stats()));
}
