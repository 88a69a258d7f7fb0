//! Replays the moods of a run from its receipts and compares every step with the recorded one.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::event::MoodEvent;
use super::facts::{MoodFact, MoodFacts};
use super::name::Mood;
use super::state::{MoodState, MoodStep, step};
use crate::foundation::gate::LedgerEntry;

/// The receipt entry of a step, with every row taken. An `event` of `None` marks the beginning.
pub fn step_entry(event: Option<&MoodEvent>, begun: MoodFacts, after: &MoodStep) -> LedgerEntry {
    let mood = after.state.mood().name();
    let facts = after.state.facts().to_string();
    if let Some(event) = event {
        return LedgerEntry::new(
            "mood.step",
            json!({"event": event, "taken": after.taken, "mood": mood, "facts": facts}),
        );
    }
    let begun: Vec<MoodFact> = begun.iter().collect();
    LedgerEntry::new("mood.begun", json!({"begun": begun, "taken": after.taken, "mood": mood, "facts": facts}))
}

/// The receipt entry of a command that begins in a fixed mood.
pub fn begin_entry(begun: &MoodStep) -> LedgerEntry {
    let mood = begun.state.mood().name();
    let facts = begun.state.facts().to_string();
    LedgerEntry::new("mood.begun", json!({"within": mood, "taken": begun.taken, "mood": mood, "facts": facts}))
}

#[derive(Debug, Serialize, Deserialize)]
struct Recorded {
    #[serde(default)]
    event: Option<MoodEvent>,
    #[serde(default)]
    begun: Vec<MoodFact>,
    /// The fixed mood in which a command begins.
    #[serde(default)]
    within: Option<Mood>,
    taken: Vec<String>,
    mood: Mood,
    facts: String,
}

/// A replayed step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// The line of the log, from 1.
    pub line: u64,
    /// The rows taken.
    pub taken: Vec<&'static str>,
    /// The state after it.
    pub state: MoodState,
}

/// An error of a replay.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The entry is not a valid step.
    #[error("line {line}: not a valid step of a mood: {why}")]
    Unreadable {
        /// The line.
        line: u64,
        /// The reason.
        why: String,
    },
    /// A step before the beginning.
    #[error("line {line}: a step before `mood.begun`")]
    NotBegun {
        /// The line.
        line: u64,
    },
    /// The guards give another result.
    #[error("line {line}: recorded {recorded}, replayed {replayed}: written by another version of loom, or forged")]
    Differs {
        /// The line.
        line: u64,
        /// The recorded result.
        recorded: String,
        /// The replayed result.
        replayed: String,
    },
}

/// Replays the steps among the entries of a log, each given with its line.
///
/// # Errors
/// At the first step that cannot be read or has another result.
pub fn replay<'e>(entries: impl IntoIterator<Item = (u64, &'e LedgerEntry)>) -> Result<Vec<Replayed>, ReplayError> {
    let mut steps: Vec<Replayed> = Vec::new();
    for (line, entry) in entries.into_iter().filter(|(_, entry)| ["mood.begun", "mood.step"].contains(&&*entry.kind)) {
        let recorded: Recorded = serde_json::from_value(entry.body.clone())
            .map_err(|error| ReplayError::Unreadable { line, why: error.to_string() })?;
        let after = match &recorded.event {
            Some(event) => step(&steps.last().ok_or(ReplayError::NotBegun { line })?.state, event),
            None => match recorded.within {
                Some(mood) => MoodState::within(mood, MoodFacts::NONE),
                None => MoodState::enter(MoodFacts::of(&recorded.begun)),
            },
        };
        let replayed = (after.state.mood(), after.state.facts().to_string());
        if replayed != (recorded.mood, recorded.facts.clone()) || after.taken != recorded.taken {
            let tell = |mood: Mood, facts: &str, taken: String| format!("{mood} by [{taken}] with [{facts}]");
            return Err(ReplayError::Differs {
                line,
                recorded: tell(recorded.mood, &recorded.facts, recorded.taken.join(", ")),
                replayed: tell(replayed.0, &replayed.1, after.taken.join(", ")),
            });
        }
        steps.push(Replayed { line, taken: after.taken, state: after.state });
    }
    Ok(steps)
}
