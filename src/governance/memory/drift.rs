//! Drift: differences between what was decided and what is being done.

use std::collections::{HashMap, HashSet};

use jiff::civil::Date;
use serde::Serialize;

use super::id::BlockKind;
use super::scan_input::{ScanInput, ids_of_kind};
use super::signature::Signature;
use super::state::{MemoryConfig, days_between};

/// The kind of drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DriftKind {
    /// An active decision with a priority of 7 or more that no open task follows (M7).
    DeadDecision,
    /// A task in progress or blocked without a recent history entry.
    StalledTask,
    /// An incident with the same root cause as an earlier one.
    RepeatedIncident,
    /// An open task with neither `AlignsWith` nor `Justification` (S7).
    UnalignedTask,
}

impl DriftKind {
    /// The name used in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DeadDecision => "dead_decision",
            Self::StalledTask => "stalled_task",
            Self::RepeatedIncident => "repeated_incident",
            Self::UnalignedTask => "unaligned_task",
        }
    }
}

/// One drift.
#[derive(Debug, Clone, Serialize)]
pub struct Drift {
    /// Its record's id; empty when the day's ids are used up.
    pub id: String,
    /// The kind.
    #[serde(rename = "type")]
    pub kind: DriftKind,
    /// The block it is about.
    pub source: String,
    /// A one-sentence description.
    pub description: String,
}

/// All drift as of `today`.
pub(super) fn drift(
    known: &ScanInput<'_>,
    active_signatures: &[(&str, Vec<Signature<'_>>)],
    today: Date,
    config: &MemoryConfig,
) -> Vec<Drift> {
    let mut found = Vec::new();
    let mut add = |kind, source: &str, description| {
        found.push(Drift { id: String::new(), kind, source: source.to_owned(), description });
    };
    let mut followed = HashSet::new();
    let mut tasks = Vec::new();
    for task in known.blocks(BlockKind::Task) {
        let status = task.head("Status");
        if !matches!(status, "todo" | "doing" | "blocked") {
            continue;
        }
        for key in ["AlignsWith", "Dependencies", "Context", "Next"] {
            if let Some(field) = task.field(key) {
                followed.extend(ids_of_kind(field.head, BlockKind::Decision));
                followed.extend(ids_of_kind(field.body, BlockKind::Decision));
            }
        }
        tasks.push(task);
    }
    for (decision, signatures) in active_signatures {
        let high_priority =
            signatures.iter().filter(|signature| signature.priority().is_some_and(|priority| priority >= 7));
        let exempt = |signature: &Signature<'_>| matches!(signature.text("enforcement"), "invariant" | "structural");
        let mut high_priority = high_priority.peekable();
        if high_priority.peek().is_some() && !signatures.iter().any(exempt) && !followed.contains(decision) {
            add(
                DriftKind::DeadDecision,
                decision,
                "active with priority 7 or higher, but no open task follows it".to_owned(),
            );
        }
    }
    for task in tasks {
        let id = task.id().as_str();
        if matches!(task.head("Status"), "doing" | "blocked") {
            let history = task.field("History").map(|field| field.body).unwrap_or_default();
            let last = dates_in(history).max().or_else(|| dates_in(task.head("Date")).next());
            let quiet = last.map(|last| days_between(last, today));
            if quiet.is_none_or(|days| days >= config.stalled_after_days) {
                let since = last.map_or("ever".to_owned(), |last| last.to_string());
                add(
                    DriftKind::StalledTask,
                    id,
                    format!("{} without a history entry since {since}", task.head("Status")),
                );
            }
        }
        let is_set = |key| task.field(key).is_some_and(|field| !field.is_empty() && field.head != "none");
        if !is_set("AlignsWith") && !is_set("Justification") {
            add(DriftKind::UnalignedTask, id, "open, without AlignsWith or Justification".to_owned());
        }
    }
    let mut causes: HashMap<String, &str> = HashMap::new();
    for incident in known.blocks(BlockKind::Incident) {
        let cause = incident.value("RootCause").unwrap_or_default().trim().to_lowercase();
        if cause.is_empty() || cause == "none" || cause == "unknown" {
            continue;
        }
        let id = incident.id().as_str();
        if let Some(first) = causes.get(&cause) {
            add(
                DriftKind::RepeatedIncident,
                id,
                format!("the same root cause as {first}: {}", cause.replace('\n', " ")),
            );
        } else {
            causes.insert(cause, id);
        }
    }
    found
}

/// Every `YYYY-MM-DD` in a text.
fn dates_in(text: &str) -> impl Iterator<Item = Date> {
    let at = memchr::memchr_iter(b'-', text.as_bytes());
    at.filter_map(move |at| text.get(at.checked_sub(4)?..at + 6)?.parse().ok())
}
