//! A run's moods from its receipts: every step again, compared with what was recorded.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::event::Event;
use super::facts::{Fact, Facts};
use super::name::Mood;
use super::state::{MoodState, Step, step};
use crate::foundation::gate::Entry;

/// The entry of a receipt for a step: one for each event, with every row that it took. `None` as the event is the beginning.
pub fn step_entry(event: Option<&Event>, begun: Facts, after: &Step) -> Entry {
    let mood = after.state.mood().name();
    let facts = after.state.facts().to_string();
    if let Some(event) = event {
        return Entry::new("mood.step", json!({"event": event, "taken": after.taken, "mood": mood, "facts": facts}));
    }
    let begun: Vec<Fact> = begun.iter().collect();
    Entry::new("mood.begun", json!({"begun": begun, "taken": after.taken, "mood": mood, "facts": facts}))
}

#[derive(Debug, Serialize, Deserialize)]
struct Recorded {
    #[serde(default)]
    event: Option<Event>,
    #[serde(default)]
    begun: Vec<Fact>,
    taken: Vec<String>,
    mood: Mood,
    facts: String,
}

/// One step that was replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// The line of the log, from 1.
    pub line: u64,
    /// The rows that it took.
    pub taken: Vec<&'static str>,
    /// The state after it.
    pub state: MoodState,
}

/// A log that does not replay.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// Not a step.
    #[error("line {line}: this is no step of a mood: {why}")]
    Unreadable {
        /// Where.
        line: u64,
        /// Why not.
        why: String,
    },
    /// A step before the beginning.
    #[error("line {line}: a step before `mood.begun`")]
    NotBegun {
        /// Where.
        line: u64,
    },
    /// The guards say otherwise today.
    #[error(
        "line {line}: recorded {recorded}, replayed {replayed}: another version of loom wrote this, or it is made up"
    )]
    Differs {
        /// Where.
        line: u64,
        /// What stands there.
        recorded: String,
        /// What the guards say.
        replayed: String,
    },
}

/// Replays the steps among the entries of a log, each with its line.
///
/// # Errors
/// At the first step that cannot be read or that comes out otherwise.
pub fn replay<'e>(entries: impl IntoIterator<Item = (u64, &'e Entry)>) -> Result<Vec<Replayed>, ReplayError> {
    let mut steps: Vec<Replayed> = Vec::new();
    for (line, entry) in entries.into_iter().filter(|(_, entry)| ["mood.begun", "mood.step"].contains(&&*entry.kind)) {
        let recorded: Recorded = serde_json::from_value(entry.body.clone())
            .map_err(|error| ReplayError::Unreadable { line, why: error.to_string() })?;
        let after = match &recorded.event {
            Some(event) => step(&steps.last().ok_or(ReplayError::NotBegun { line })?.state, event),
            None => MoodState::enter(Facts::of(&recorded.begun)),
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
