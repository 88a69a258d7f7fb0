//! Clarity of a specification: five dimensions, ten points.

use serde::{Deserialize, Serialize};

/// Clarity of one dimension, 0 to 2 points.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clarity {
    /// Not stated: 0.
    #[default]
    Absent,
    /// Partly stated: 1.
    Partial,
    /// Fully stated: 2.
    Clear,
}

/// The clarity of a specification.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SpecScores {
    /// What is wanted.
    pub outcome: Clarity,
    /// What is in and out of scope.
    pub scope: Clarity,
    /// Constraints.
    pub constraints: Clarity,
    /// Success criteria.
    pub success: Clarity,
    /// Definition of done.
    pub done: Clarity,
}

/// The next step for a specification, by its score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecRoute {
    /// At least 8 points: write the brief.
    Ready,
    /// 5 to 7 points: echo it to the user first.
    Echo,
    /// Fewer than 5 points: clarify again.
    Low,
}

impl SpecScores {
    /// The points, 0 to 10.
    pub fn points(&self) -> u8 {
        [self.outcome, self.scope, self.constraints, self.success, self.done].map(|clarity| clarity as u8).iter().sum()
    }

    /// The next step.
    pub fn route(&self) -> SpecRoute {
        match self.points() {
            8.. => SpecRoute::Ready,
            5..8 => SpecRoute::Echo,
            _ => SpecRoute::Low,
        }
    }
}
