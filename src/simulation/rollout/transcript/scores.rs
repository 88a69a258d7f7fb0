//! Scores stored with a transcript. `docs/SCORES.md` defines every score; `simulation::judge` computes them.

use serde::{Deserialize, Serialize};

use crate::foundation::base::Digest;
use crate::foundation::stats::Interval;

/// One score of one transcript.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Its id and version, `persona_adherence/1`.
    pub id: String,
    /// The dimension, for scores per dimension.
    pub dimension: Option<String>,
    /// The method.
    pub method: ScoreMethod,
    /// The judge; absent for measured scores.
    pub judge: Option<ScoreJudge>,
    /// The digest of the prompt's template, or of whatever else defines the question.
    pub prompt_digest: Option<Digest>,
    /// The digest of the persona description given to the judge; absent if none was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<Digest>,
    /// The value over the whole transcript; `None` if no point has one.
    pub value: Option<f64>,
    /// Why there is no value.
    pub why: Option<String>,
    /// The values that `value` was computed from, in order of turns; empty if the score is over the whole transcript.
    pub points: Vec<ScorePoint>,
}

/// How a score was computed. It is the method actually used, never a substitute for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ScoreMethod {
    /// Computed from the text.
    Measured,
    /// The mean rating under a judge's log-probabilities at the score token (G-Eval, Liu et al. 2023).
    LogprobRating,
    /// The same over the top alternatives at the score token, for judges that return no others.
    TopLogprobRating,
    /// A rating that a judge gave as structured output.
    WrittenRating,
    /// Computed from the log-probabilities of the messages.
    Likelihood,
}

/// The model that computed a score.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoreJudge {
    /// Its name in its response.
    pub model: String,
    /// The digest of its weights, tokenizer and template, if known.
    pub digest: Option<Digest>,
    /// The device, for a local model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Its reliability for this question; absent if it was not tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reliability: Option<Reliability>,
}

/// How well a judge ranked windows whose order is known (`loom judge check`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reliability {
    /// The area under the ROC curve of its ratings, in `[0, 1]`; chance is .5.
    pub agreement: f64,
    /// Its 95 % bootstrap interval over the pairs.
    pub interval: Option<Interval>,
    /// The number of pairs of windows.
    pub pairs: usize,
}

impl Reliability {
    /// A judge below this agreement counts as unreliable.
    pub const AGREEMENT_MIN: f64 = 0.7;
    /// The agreement of a judge that guesses. An interval that reaches it does not show that the judge does better.
    const CHANCE: f64 = 0.5;

    /// Whether the judge counts as reliable.
    pub fn is_reliable(&self) -> bool {
        self.agreement >= Self::AGREEMENT_MIN && self.interval.is_none_or(|interval| interval.low > Self::CHANCE)
    }
}

/// The score over one window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScorePoint {
    /// The first and the last turn of the window.
    pub turns: (usize, usize),
    /// The value; `None` if it could not be computed.
    pub value: Option<f64>,
    /// The interval, if the score has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// The probability mass of the ratings on the scale, in `[0, 1]`; absent for other methods.
    pub mass: Option<f64>,
    /// How many alternatives `mass` was summed over if the judge did not return all of them: `mass` is then a lower bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<usize>,
    /// Why there is no value.
    pub why: Option<String>,
}
