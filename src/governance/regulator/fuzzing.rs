//! What a stranger's events reach, for the targets in `fuzz/`: an error or not, never a panic. No part of the interface.

use super::{EventLine, LlmEvent, Regulator};

/// Lines as `loom regulate` reads them, and a regulator that hears what they say.
pub fn jsonl_events(text: &str) {
    let mut regulator = Regulator::default();
    for line in text.lines() {
        for event in EventLine::parse_line(line).into_iter().flatten() {
            regulator.on_event(event.event());
        }
        drop(EventLine::parse(line).map_err(|error| error.to_string()));
    }
    drop((regulator.decide().len(), regulator.turn_reading(), regulator.export().to_json()));
}

/// The spans of an OTLP/JSON export, written without what lies around them, after a turn of their own.
pub fn otlp_spans(spans: &str) {
    let mut regulator = Regulator::default();
    regulator.on_event(LlmEvent::TurnStart { user_message: "Refactor the parser. Do not add logging." });
    let export = format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":{spans}}}]}}]}}"#);
    for event in EventLine::parse_line(&export).into_iter().flatten() {
        regulator.on_event(event.event());
    }
    drop((regulator.decide().len(), regulator.turn_reading()));
}
