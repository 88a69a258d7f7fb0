//! Selection of a shape for a piece of work, and confidence in an expert.

use serde::{Deserialize, Serialize};

/// How the program works with the user, the most autonomous first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// It works alone; verifiers check the result.
    Tool,
    /// It works alone; a person reviews.
    ToolReview,
    /// It works step by step with a person.
    Colleague,
}

/// The shape that each of the eight aspects suggests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Aspects {
    /// How well it can be decomposed.
    pub decomposition: Shape,
    /// How much the items depend on each other.
    pub interdependency: Shape,
    /// Novelty.
    pub novelty: Shape,
    /// Cost of a failure.
    pub risk: Shape,
    /// Ambiguity of the request.
    pub ambiguity: Shape,
    /// Domain knowledge needed.
    pub domain_knowledge: Shape,
    /// How well the result can be verified.
    pub verification: Shape,
    /// How well it can be undone.
    pub reversibility: Shape,
}

/// Why a shape was selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectionReason {
    /// More than half of the aspects suggest it.
    Majority,
    /// No shape has more than half: Tool-Review is the default.
    Mixed,
    /// The majority suggests Tool, but risk or interdependency suggests Colleague.
    Override,
}

/// A selected shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ShapeSelection {
    /// The shape.
    pub shape: Shape,
    /// Why.
    pub reason: SelectionReason,
}

impl Aspects {
    /// Selects the shape.
    pub fn select(&self) -> ShapeSelection {
        let columns = [
            self.decomposition,
            self.interdependency,
            self.novelty,
            self.risk,
            self.ambiguity,
            self.domain_knowledge,
            self.verification,
            self.reversibility,
        ];
        let has_majority = |shape: &Shape| 2 * columns.iter().filter(|column| *column == shape).count() > columns.len();
        let majority = [Shape::Tool, Shape::ToolReview, Shape::Colleague].into_iter().find(has_majority);
        let is_risky = self.risk == Shape::Colleague || self.interdependency == Shape::Colleague;
        match majority {
            None => ShapeSelection { shape: Shape::ToolReview, reason: SelectionReason::Mixed },
            Some(Shape::Tool) if is_risky => {
                ShapeSelection { shape: Shape::ToolReview, reason: SelectionReason::Override }
            }
            Some(shape) => ShapeSelection { shape, reason: SelectionReason::Majority },
        }
    }
}

/// What is known of an expert for the question at hand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "five independent observations, each worth points of its own")]
pub struct ExpertProfile {
    /// The profile is curated, not generated: 6 points instead of 4.
    pub curated: bool,
    /// The expert has worked on this extensively: 2 points.
    pub extensive_work: bool,
    /// It is the expert's core topic: 1 point.
    pub core_topic: bool,
    /// It is outside the expert's field: minus 2 points.
    pub outside: bool,
    /// The expert's work on it is recent: 1 point.
    pub recent: bool,
}

/// Confidence in an expert, 0 to 9; 0 if nothing is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ExpertConfidence(u8);

impl ExpertConfidence {
    /// Computes it from a profile.
    pub fn of(profile: &ExpertProfile) -> Self {
        let base = if profile.curated { 6 } else { 4 };
        let more = 2 * u8::from(profile.extensive_work) + u8::from(profile.core_topic) + u8::from(profile.recent);
        Self((base + more - 2 * u8::from(profile.outside)).min(9))
    }

    /// The points.
    pub const fn points(self) -> u8 {
        self.0
    }

    /// Too low to use the expert.
    pub const fn refuses(self) -> bool {
        self.0 < 3
    }

    /// Low enough that the answer carries a warning.
    pub const fn warns(self) -> bool {
        matches!(self.0, 3..=5)
    }
}
