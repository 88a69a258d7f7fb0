//! Labelled session logs and what a regulator makes of them: false stops, false warnings, and planted faults found.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::core::Regulator;
use super::decision::{BreakAction, Decision};
use super::event_line::{EventLine, EventLineError, LABELS};
use super::settings::Settings;

/// A fault is found by a decision at most this many turns after it is first present.
const FOUND_WITHIN_TURNS: u64 = 2;

/// A session's events, with the turns at which something was wrong. All other turns are healthy.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionLog {
    /// Its labels.
    pub labels: SessionLabels,
    /// Its events.
    pub events: Vec<EventLine>,
}

/// The first line of a labelled log, with `"type": "labels"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionLabels {
    /// The session's name.
    pub session: String,
    /// The kind of agent.
    #[serde(default)]
    pub agent: String,
    /// The set that it belongs to, such as `development` or `held_back`.
    #[serde(default)]
    pub half: String,
    /// The planted faults.
    pub faults: Vec<FaultLabel>,
}

/// One fault of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultLabel {
    /// What is wrong.
    pub kind: String,
    /// The decisions that find it.
    pub expect: Vec<String>,
    /// The first turn at which it is present.
    pub from: u64,
    /// The last one.
    pub to: u64,
}

/// A log that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionLogError {
    /// The first line has no labels.
    #[error("the first line must hold the labels ({0}): {{\"type\": \"labels\", \"session\": \"…\", \"faults\": []}}")]
    Labels(String),
    /// A later line is not an event.
    #[error("line {line}: {error}")]
    Event {
        /// From 1.
        line: usize,
        /// What is wrong.
        error: EventLineError,
    },
}

impl SessionLog {
    /// Parses a log: a line of labels, then events.
    ///
    /// # Errors
    /// See [`SessionLogError`].
    pub fn parse(text: &str) -> Result<Self, SessionLogError> {
        let mut lines = text.lines().zip(1..);
        let first = lines.next().map_or("", |(line, _)| line);
        let wrong = |why: String| SessionLogError::Labels(why);
        let value: serde_json::Value = serde_json::from_str(first).map_err(|error| wrong(error.to_string()))?;
        if value.get("type").and_then(serde_json::Value::as_str) != Some(LABELS) {
            return Err(wrong("its type is another".to_owned()));
        }
        let labels = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
        let mut events = Vec::new();
        for (text, line) in lines.filter(|(line, _)| !line.trim().is_empty()) {
            events.extend(EventLine::parse_line(text).map_err(|error| SessionLogError::Event { line, error })?);
        }
        Ok(Self { labels, events })
    }
}

/// What was found in some labelled logs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct BenchReport {
    /// How many logs.
    pub sessions: usize,
    /// Turns in which nothing is wrong.
    pub healthy_turns: usize,
    /// Healthy turns at which the regulator would have ended or paused the work, or cut the reply.
    pub false_stops: usize,
    /// Healthy turns with any decision but `continue`.
    pub false_warnings: usize,
    /// The decisions behind them, with the number of turns.
    pub false_decisions: Vec<(String, usize)>,
    /// Planted faults of each kind, and how many of them were found.
    pub faults: Vec<FaultCount>,
    /// What was wrong: `session`, turn, and the decision or the fault that was missed.
    pub mistakes: Vec<(String, u64, String)>,
}

/// The faults of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FaultCount {
    /// What is wrong.
    pub kind: String,
    /// How many were planted.
    pub planted: usize,
    /// How many were found within two turns.
    pub found: usize,
}

/// What was decided in a turn.
#[derive(Debug, Default)]
struct Decided {
    kinds: Vec<&'static str>,
    stops: bool,
}

/// Replays every log on a new regulator and compares its decisions with the labels.
pub fn bench<'a>(settings: &Settings, logs: impl IntoIterator<Item = &'a SessionLog>) -> BenchReport {
    let mut report = BenchReport::default();
    for SessionLog { labels, events } in logs {
        report.sessions += 1;
        let turns = turns(settings, events);
        let mistake = |turn: u64, what: &str| (labels.session.clone(), turn, what.to_owned());
        for (decided, turn) in turns.iter().zip(0..).skip(1) {
            if labels.faults.iter().any(|fault| (fault.from..=fault.to).contains(&turn)) {
                continue;
            }
            report.healthy_turns += 1;
            report.false_stops += usize::from(decided.stops);
            report.false_warnings += usize::from(!decided.kinds.is_empty());
            for kind in &decided.kinds {
                report.mistakes.push(mistake(turn, kind));
                match report.false_decisions.iter_mut().find(|(known, _)| known == kind) {
                    Some((_, count)) => *count += 1,
                    None => report.false_decisions.push(((*kind).to_owned(), 1)),
                }
            }
        }
        for fault in &labels.faults {
            let within = fault.from as usize..=(fault.from + FOUND_WITHIN_TURNS) as usize;
            let finds =
                |decided: &Decided| decided.kinds.iter().any(|kind| fault.expect.iter().any(|wanted| wanted == kind));
            let found = within.filter_map(|turn| turns.get(turn)).any(finds);
            if !found {
                report.mistakes.push(mistake(fault.from, &format!("missed: {}", fault.kind)));
            }
            let at = report.faults.iter().position(|count| count.kind == fault.kind).unwrap_or_else(|| {
                report.faults.push(FaultCount { kind: fault.kind.clone(), planted: 0, found: 0 });
                report.faults.len() - 1
            });
            if let Some(count) = report.faults.get_mut(at) {
                count.planted += 1;
                count.found += usize::from(found);
            }
        }
    }
    report.faults.sort_by(|a, b| a.kind.cmp(&b.kind));
    report
}

/// The decisions that applied at some point of each turn; the first entry is before the first turn.
fn turns(settings: &Settings, events: &[EventLine]) -> Vec<Decided> {
    let mut regulator = Regulator::new(settings.clone());
    let mut turns = vec![Decided::default()];
    for event in events {
        regulator.on_event(event.event());
        while turns.len() as u64 <= regulator.turn() {
            turns.push(Decided::default());
        }
        let Some(turn) = turns.last_mut() else { continue };
        for ranked in regulator.decide() {
            let kind = ranked.decision.kind();
            if ranked.decision != Decision::Continue && !turn.kinds.contains(&kind) {
                turn.kinds.push(kind);
            }
            turn.stops |= match &ranked.decision {
                Decision::CircuitBreak { action, .. } => *action != BreakAction::Throttle,
                Decision::StopEarly { .. } => true,
                _ => false,
            };
        }
    }
    turns
}

impl BenchReport {
    /// Planted faults, and how many of them were found.
    pub fn found(&self) -> (usize, usize) {
        let sum = |of: fn(&FaultCount) -> usize| self.faults.iter().map(of).sum();
        (sum(|fault| fault.planted), sum(|fault| fault.found))
    }
}

impl fmt::Display for BenchReport {
    /// Markdown tables.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |part: usize, of: usize| 100.0 * part as f64 / of.max(1) as f64;
        let Self { sessions, healthy_turns, false_stops, false_warnings, .. } = self;
        let (planted, found) = self.found();
        writeln!(
            f,
            "| Sessions | Healthy turns | False stops | False warnings | Planted faults | Found within two turns |"
        )?;
        writeln!(f, "|---:|---:|---:|---:|---:|---:|")?;
        writeln!(
            f,
            "| {sessions} | {healthy_turns} | {false_stops} | {false_warnings} ({:.2} %) | {planted} | {found} ({:.1} %) |",
            share(*false_warnings, *healthy_turns),
            share(found, planted)
        )?;
        writeln!(f, "\n| Fault | Planted | Found |\n|---|---:|---:|")?;
        for FaultCount { kind, planted, found } in &self.faults {
            writeln!(f, "| {kind} | {planted} | {found} |")?;
        }
        if !self.false_decisions.is_empty() {
            writeln!(f, "\n| False decision | Healthy turns |\n|---|---:|")?;
            for (kind, turns) in &self.false_decisions {
                writeln!(f, "| {kind} | {turns} |")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(faults: &str, events: &str) -> SessionLog {
        SessionLog::parse(&format!("{{\"type\":\"labels\",\"session\":\"s\",\"faults\":[{faults}]}}\n{events}"))
            .unwrap()
    }

    const LOOP: &str = r#"{"type":"turn_start","user_message":"Read it."}
{"type":"tool_call","tool_name":"read","args_json":{}}
{"type":"tool_result","tool_name":"read","success":true,"result":"x"}
{"type":"tool_call","tool_name":"read","args_json":{}}
{"type":"tool_result","tool_name":"read","success":true,"result":"x"}
{"type":"tool_call","tool_name":"read","args_json":{}}
{"type":"tool_result","tool_name":"read","success":true,"result":"x"}
{"type":"turn_start","user_message":"Write the letter."}
"#;

    #[test]
    fn decisions_are_compared_with_the_labels() {
        let fault = r#"{"kind":"cycle","expect":["tool_loop"],"from":1,"to":1}"#;
        let report = bench(&Settings::default(), &[log(fault, LOOP)]);
        assert_eq!((report.healthy_turns, report.false_warnings, report.found()), (1, 0, (1, 1)));
        let report = bench(&Settings::default(), &[log("", LOOP)]);
        assert_eq!((report.healthy_turns, report.false_warnings, report.false_stops), (2, 1, 0));
        assert_eq!(report.mistakes, [("s".to_owned(), 1, "tool_loop".to_owned())]);
        let missed = fault.replace("\"from\":1,\"to\":1", "\"from\":2,\"to\":2");
        let report = bench(&Settings::default(), &[log(&missed, LOOP)]);
        assert_eq!((report.found(), report.false_warnings), ((1, 0), 1));
        assert!(report.to_string().contains("| cycle | 1 | 0 |"));
    }

    #[test]
    fn a_log_without_labels_is_refused() {
        assert!(matches!(SessionLog::parse(LOOP), Err(SessionLogError::Labels(_))));
        let wrong = "{\"type\":\"labels\",\"session\":\"s\",\"faults\":[]}\n\nx";
        assert!(matches!(SessionLog::parse(wrong), Err(SessionLogError::Event { line: 3, .. })));
    }
}
