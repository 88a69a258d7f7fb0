//! How clear a specification is: five dimensions, ten points.

use serde::{Deserialize, Serialize};

/// How clear one dimension is, 0 to 2 points.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clarity {
    /// Nothing is said: 0.
    #[default]
    Absent,
    /// Something is said: 1.
    Partial,
    /// All is said: 2.
    Clear,
}

/// The clarity of a specification.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SpecScores {
    /// What is wanted.
    pub outcome: Clarity,
    /// What belongs to it and what does not.
    pub scope: Clarity,
    /// What must be kept to.
    pub constraints: Clarity,
    /// How success is told.
    pub success: Clarity,
    /// When it is done.
    pub done: Clarity,
}

/// Where a specification goes from its score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// At least 8 points: to the brief.
    Ready,
    /// 5 to 7 points: echoed to the user first.
    Echo,
    /// Fewer than 5 points: back to clarifying.
    Low,
}

impl SpecScores {
    /// The points, 0 to 10.
    pub fn points(&self) -> u8 {
        [self.outcome, self.scope, self.constraints, self.success, self.done].map(|clarity| clarity as u8).iter().sum()
    }

    /// Where it goes from here.
    pub fn route(&self) -> Route {
        match self.points() {
            8.. => Route::Ready,
            5..8 => Route::Echo,
            _ => Route::Low,
        }
    }
}
