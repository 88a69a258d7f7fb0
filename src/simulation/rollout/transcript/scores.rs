//! Scores kept with a transcript. `docs/SCORES.md` defines every score; `simulation::judge` takes them.

use serde::{Deserialize, Serialize};

use crate::foundation::base::Digest;
use crate::foundation::stats::Interval;

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
    /// The digest of what the judge was told of the persona; absent where it was told nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<Digest>,
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
    /// The same over the likeliest alternatives that a judge told at the score token it wrote, where it tells no others.
    TopLogprobRating,
    /// A rating that a judge wrote as structured output.
    WrittenRating,
    /// From the log-probabilities of what was said.
    Likelihood,
}

/// The model that took a score.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoreJudge {
    /// Its name, as it answered.
    pub model: String,
    /// The digest of its weights, tokenizer and template, where it is known.
    pub digest: Option<Digest>,
    /// Where it ran, for a model of this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// How well it judges what this score asks; absent where that was not tested, or where nothing is judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reliability: Option<Reliability>,
}

/// How well a judge told better from worse on windows whose order is known (`loom judge check`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reliability {
    /// The area under the ROC curve of its ratings, in `[0, 1]`; a coin has .5.
    pub agreement: f64,
    /// Its 95 % bootstrap interval over the pairs.
    pub interval: Option<Interval>,
    /// How many pairs of windows.
    pub pairs: usize,
}

impl Reliability {
    /// A judge below this agreement is not to be relied on.
    pub const AGREEMENT_MIN: f64 = 0.7;

    /// Whether the judge's scores may be read at all.
    pub fn is_reliable(&self) -> bool {
        self.agreement >= Self::AGREEMENT_MIN
    }
}

/// One reading of a score.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScorePoint {
    /// The first and the last turn that were read.
    pub turns: (usize, usize),
    /// In the units of the score; `None` when it could not be taken.
    pub value: Option<f64>,
    /// Where the score has one: between which values it lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// How much probability a rating had on its scale, in `[0, 1]`; absent for other methods.
    pub mass: Option<f64>,
    /// How many alternatives `mass` was summed over, where the judge told not all of them: `mass` is then a lower bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<usize>,
    /// Why there is no value.
    pub why: Option<String>,
}
