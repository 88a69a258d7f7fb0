//! How far a piece of work can be delegated: up to 75 points that limit the allowed shapes.

use serde::{Deserialize, Serialize};

use super::shape::Shape;
use super::spec::SpecScores;

/// Familiarity with this kind of work, 0 to 10.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Familiarity(u8);

/// A familiarity above 10.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("familiarity goes from 0 to 10, not {0}")]
pub struct FamiliarityError(u8);

impl TryFrom<u8> for Familiarity {
    type Error = FamiliarityError;

    fn try_from(points: u8) -> Result<Self, FamiliarityError> {
        if points <= 10 { Ok(Self(points)) } else { Err(FamiliarityError(points)) }
    }
}

impl From<Familiarity> for u8 {
    fn from(familiarity: Familiarity) -> Self {
        familiarity.0
    }
}

/// The components of the fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FitScore {
    /// The specification's clarity, 5 points per point.
    pub spec: SpecScores,
    /// Constraints are stated: 5 points.
    pub constraints: bool,
    /// Success criteria are stated: 5 points.
    pub success: bool,
    /// A definition of done is stated: 5 points.
    pub done: bool,
    /// 0 to 10 points.
    pub familiarity: Familiarity,
}

impl FitScore {
    /// The points, 0 to 75.
    pub fn points(&self) -> u8 {
        let written = [self.constraints, self.success, self.done].map(|written| 5 * u8::from(written));
        5 * self.spec.points() + written.iter().sum::<u8>() + self.familiarity.0
    }

    /// The shape that the points allow; `None` if too few.
    pub fn shape(&self) -> Option<Shape> {
        match self.points() {
            40.. => Some(Shape::Tool),
            30..40 => Some(Shape::ToolReview),
            25..30 => Some(Shape::Colleague),
            _ => None,
        }
    }
}
