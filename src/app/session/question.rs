//! What a session may find out.

use serde::{Deserialize, Serialize};

/// The measure of a comparison with a judge.
const JUDGED_MEASURE: &str = "persona_adherence/1";
/// The measure of a comparison without one.
const LIKELIHOOD_MEASURE: &str = "persona_llr/1";

/// What a session finds out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StudyQuestion {
    /// Whether the persona holds.
    #[default]
    Holds,
    /// Whether it is kept better than by the same model without the persona's description.
    Ablation,
    /// Whether it is kept better with the target than with another one.
    Targets,
    /// Whether it is kept better under its config than under another one.
    Prompts,
}

impl StudyQuestion {
    /// Whether it has two arms.
    pub(super) const fn compares(self) -> bool {
        !matches!(self, Self::Holds)
    }

    /// Which arm is the second, in words.
    pub(super) const fn baseline(self) -> &'static str {
        match self {
            Self::Holds => "none",
            Self::Ablation => "its ablation (the same model with the persona's name alone)",
            Self::Targets => "the same with the other target",
            Self::Prompts => "the same with the other config",
        }
    }
}

/// The default measure of a comparison.
pub(super) const fn default_measure(judged: bool) -> &'static str {
    if judged { JUDGED_MEASURE } else { LIKELIHOOD_MEASURE }
}
