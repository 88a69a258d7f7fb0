//! Scores kept with a transcript. `docs/SCORES.md` defines every score; `simulation::judge` takes them.

use serde::{Deserialize, Serialize};

use crate::foundation::base::Digest;

/// One score of one transcript.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Its id and version, `persona_adherence/1`.
    pub id: String,
    /// The dimension that it speaks of, for scores that are taken per dimension.
    pub dimension: Option<String>,
    /// How it was taken.
    pub method: ScoreMethod,
    /// The model that took it; absent for measured scores.
    pub judge: Option<ScoreJudge>,
    /// The digest of the prompt's template, or of whatever else defines what the model was asked.
    pub prompt_digest: Option<Digest>,
    /// The value over the whole transcript; `None` when no point has one.
    pub value: Option<f64>,
    /// Why there is no value.
    pub why: Option<String>,
    /// The readings behind `value`, in the order of their turns; empty where a score is of the whole.
    pub points: Vec<ScorePoint>,
}

/// How a score was taken. What ran is what is written here: one method never stands in for another unseen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ScoreMethod {
    /// From the words alone.
    Measured,
    /// The mean rating under a judge's log-probabilities at the score token (G-Eval, Liu et al. 2023).
    LogprobRating,
    /// A rating that a judge wrote as structured output.
    WrittenRating,
    /// From the log-probabilities of what was said.
    Likelihood,
}

/// The model that took a score.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScoreJudge {
    /// Its name, as it answered.
    pub model: String,
    /// The digest of its weights, tokenizer and template, where it is known.
    pub digest: Option<Digest>,
}

/// One reading of a score.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScorePoint {
    /// The first and the last turn that were read.
    pub turns: (usize, usize),
    /// In the units of the score; `None` when it could not be taken.
    pub value: Option<f64>,
    /// How much probability a rating had on its scale, in `[0, 1]`; absent for other methods.
    pub mass: Option<f64>,
    /// Why there is no value.
    pub why: Option<String>,
}
