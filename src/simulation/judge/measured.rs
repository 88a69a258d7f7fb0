//! Scores taken without a judge, from a transcript's words alone. `docs/SCORES.md` defines each by its id; an id changes
//! when its definition does, so that numbers of two versions are never compared by mistake.
//!
//! Only what was really said counts: the stand-in text of a failed reply is left out.

mod dynamics;
mod lexical;
mod lines;

use serde::{Deserialize, Serialize};

pub use dynamics::{Stretch, TurnMeasures};

use self::lines::Lines;
use crate::simulation::rollout::Transcript;

/// One score of one rollout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Its definition in `docs/SCORES.md`.
    pub id: String,
    /// Its value, in the definition's range.
    pub value: Option<f64>,
    /// Why there is no value.
    pub missing: Option<String>,
}

impl Score {
    fn new(id: &str, value: Option<f64>, missing: impl FnOnce() -> String) -> Self {
        let missing = value.is_none().then(missing);
        Self { id: id.to_owned(), value, missing }
    }
}

/// Everything that is measured on one rollout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The scores, in the order of `docs/SCORES.md`.
    pub scores: Vec<Score>,
    /// Turn by turn, for the turns in which the persona spoke.
    pub turns: Vec<TurnMeasures>,
    /// Where the conversation stood still.
    pub stretches: Vec<Stretch>,
}

/// Measures a rollout, finished or not.
pub fn measure(transcript: &Transcript) -> Measured {
    let lines = Lines::of(transcript);
    let turns = dynamics::turns(&lines);
    let stretches = dynamics::stretches(&lines);
    let mut scores = lexical::scores(&lines);
    scores.extend(dynamics::scores(&lines, &turns, &stretches));
    Measured { scores, turns, stretches }
}

#[cfg(test)]
pub(crate) mod tests;
