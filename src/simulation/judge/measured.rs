//! Scores computed from a transcript's text, without a model. `docs/SCORES.md` defines each by its id; the id changes
//! with the definition, so that values of two versions are not compared by mistake.
//!
//! The placeholder text of a failed reply is left out.

use serde::{Deserialize, Serialize};

use super::conversation::Conversation;
pub use super::conversation::{Standstill, TurnMeasures};
use super::scorers::TEXT;
use crate::simulation::rollout::Transcript;

/// A measured score of one rollout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasuredScore {
    /// Its definition in `docs/SCORES.md`.
    pub id: String,
    /// The value, in the definition's range.
    pub value: Option<f64>,
    /// Why there is no value.
    pub missing: Option<String>,
}

impl MeasuredScore {
    fn new(id: &str, value: Result<f64, String>) -> Self {
        let (value, missing) = match value {
            Ok(value) => (Some(value), None),
            Err(why) => (None, Some(why)),
        };
        Self { id: id.to_owned(), value, missing }
    }
}

/// All measurements of one rollout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The scores, in the order of `docs/SCORES.md`.
    pub scores: Vec<MeasuredScore>,
    /// Per turn with a reply of the persona.
    pub turns: Vec<TurnMeasures>,
    /// Spans of turns without anything new.
    #[serde(rename = "stretches")]
    pub standstills: Vec<Standstill>,
}

/// Measures a rollout, finished or not.
pub fn measure(transcript: &Transcript) -> Measured {
    let conversation = Conversation::of(transcript);
    let scores = TEXT.iter().map(|scorer| MeasuredScore::new(scorer.info().id, scorer.score(&conversation))).collect();
    let Conversation { turns, standstills, .. } = conversation;
    Measured { scores, turns, standstills }
}

#[cfg(test)]
pub(crate) mod tests;
