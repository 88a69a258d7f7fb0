//! Which shape a piece of work takes, and how far an expert is trusted.

use serde::{Deserialize, Serialize};

/// How the program works with the user, the freest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// It works alone and is checked by its verifiers.
    Tool,
    /// It works alone and a person reviews.
    ToolReview,
    /// It works step by step with a person.
    Colleague,
}

/// The column of each of the eight aspects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Aspects {
    /// How well it can be cut into items.
    pub decomposition: Shape,
    /// How much the items depend on each other.
    pub interdependency: Shape,
    /// How new it is.
    pub novelty: Shape,
    /// What a failure costs.
    pub risk: Shape,
    /// How many readings it has.
    pub ambiguity: Shape,
    /// How much knowledge of the field it takes.
    pub domain_knowledge: Shape,
    /// How well the result can be verified.
    pub verification: Shape,
    /// How well it can be undone.
    pub reversibility: Shape,
}

/// Why a shape was selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// More than half of the aspects stand in its column.
    Majority,
    /// No column has more than half: Tool-Review is the default.
    Mixed,
    /// The majority said Tool, but risk or interdependency said Colleague.
    Override,
}

/// A selected shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Selection {
    /// The shape.
    pub shape: Shape,
    /// Why.
    pub reason: Reason,
}

impl Aspects {
    /// The shape that these columns ask for.
    pub fn select(&self) -> Selection {
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
            None => Selection { shape: Shape::ToolReview, reason: Reason::Mixed },
            Some(Shape::Tool) if is_risky => Selection { shape: Shape::ToolReview, reason: Reason::Override },
            Some(shape) => Selection { shape, reason: Reason::Majority },
        }
    }
}

/// What is known of an expert for the question at hand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "five independent observations, each worth points of its own")]
pub struct Profile {
    /// The profile is curated, not made up on the spot: 6 points in place of 4.
    pub curated: bool,
    /// The expert has worked on this extensively: 2 points.
    pub extensive_work: bool,
    /// It is the expert's core topic: 1 point.
    pub core_topic: bool,
    /// It lies outside the expert's field: 2 points less.
    pub outside: bool,
    /// The expert's work on it is recent: 1 point.
    pub recent: bool,
}

/// How far an expert is trusted, 0 to 9; 0 before anything is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ExpertConfidence(u8);

impl ExpertConfidence {
    /// From what is known.
    pub fn of(profile: &Profile) -> Self {
        let base = if profile.curated { 6 } else { 4 };
        let more = 2 * u8::from(profile.extensive_work) + u8::from(profile.core_topic) + u8::from(profile.recent);
        Self((base + more - 2 * u8::from(profile.outside)).min(9))
    }

    /// The points.
    pub const fn points(self) -> u8 {
        self.0
    }

    /// Too little to let the expert speak.
    pub const fn refuses(self) -> bool {
        self.0 < 3
    }

    /// Little enough that the answer carries a warning.
    pub const fn warns(self) -> bool {
        matches!(self.0, 3..=5)
    }
}
