//! How a persona's state moves: dimensions along curves, through phases.

use std::collections::BTreeMap;

use regex::Regex;
use schemars::JsonSchema;

/// How the persona's state moves.
#[derive(Debug, Clone)]
pub struct Trajectory {
    /// How long it lasts and what its progress means.
    pub mode: TrajectoryMode,
    /// The dimensions of the state, in the file's order.
    pub dimensions: Vec<Dimension>,
    /// The phases, in order; may be empty.
    pub phases: Vec<Phase>,
}

/// What progress means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrajectoryMode {
    /// Progress runs from 0 to 1 over the turns: t / (N − 1), and 0 when there is one turn.
    FixedLength {
        /// `expected_turns`, unless `--turns` says otherwise.
        turns: usize,
    },
    /// Phases end by turns or triggers. Progress as in a fixed length.
    PhaseGated {
        /// `expected_turns`, if given.
        turns: Option<usize>,
    },
    /// No prescribed length: it comes from `--turns`. Progress as in a fixed length.
    OpenEnded,
}

/// One dimension of the persona's state, in `[min, max]`.
#[derive(Debug, Clone)]
pub struct Dimension {
    /// Its key in the file, for example `belief_intensity`.
    pub name: String,
    /// What it measures.
    pub description: String,
    /// How each level shows in behaviour; a level may be missing.
    pub levels: BTreeMap<Level, String>,
    /// How the value moves with progress.
    pub curve: Curve,
    /// Lower bound.
    pub min: f64,
    /// Upper bound; never above the safety ceiling.
    pub max: f64,
    /// Whether the curve starts anew in each phase; otherwise it follows the whole conversation.
    pub restarts: bool,
}

/// The three named levels, split at .3 and .7.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Below .3.
    Low,
    /// From .3 to below .7.
    Medium,
    /// From .7.
    High,
}

/// How a value moves with progress in `[0, 1]`.
#[derive(Debug, Clone, PartialEq)]
pub enum Curve {
    /// Straight from start to end.
    Linear {
        /// Value at progress 0.
        start: f64,
        /// Value at progress 1.
        end: f64,
    },
    /// Logistic with slope 12, normalised to be exactly `start` at 0 and `end` at 1.
    Sigmoid {
        /// Value at progress 0.
        start: f64,
        /// Value at progress 1.
        end: f64,
        /// Where it is steepest, in `(0, 1)`.
        midpoint: f64,
    },
    /// `start` until `delay`, then straight to `end`.
    DelayedRamp {
        /// Value until `delay`.
        start: f64,
        /// Value at progress 1.
        end: f64,
        /// Where it begins to rise, in `[0, 1)`.
        delay: f64,
    },
    /// `start`, then the value of the last threshold passed.
    Step {
        /// Value before the first threshold.
        start: f64,
        /// `(at, value)`, rising in `at`.
        thresholds: Vec<(f64, f64)>,
    },
    /// Straight lines between `(at, value)` points, rising in `at`; flat before the first and after the last.
    Points(Vec<(f64, f64)>),
}

/// One phase.
#[derive(Debug, Clone)]
pub struct Phase {
    /// Its name, unique.
    pub name: String,
    /// When it ends.
    pub end: EndCondition,
    /// What must happen in it.
    pub requirements: Vec<String>,
    /// What must not happen yet.
    pub forbidden: Vec<String>,
    /// What may be revealed from here on.
    pub revelations: Vec<Revelation>,
}

/// When a phase ends.
#[derive(Debug, Clone)]
pub enum EndCondition {
    /// At this share of the conversation, in `(0, 1]`.
    Pct(f64),
    /// At this turn, counted from 0: the phase's last turn is the one before it.
    Turn(usize),
    /// When the last messages match, or at `max_turns` after the phase began.
    Trigger {
        /// Looked for in the last `window` messages.
        pattern: Pattern,
        /// Whose messages.
        speaker: TriggerSpeaker,
        /// How many of the last messages are looked at.
        window: usize,
        /// The phase ends after this many turns even without a match.
        max_turns: Option<usize>,
    },
    /// When a dimension's prescribed value reaches a bound, or at `max_turns` after the phase began.
    Intensity {
        /// The dimension's name.
        dimension: String,
        /// The bound.
        bound: IntensityBound,
        /// The phase ends after this many turns even without it.
        max_turns: Option<usize>,
    },
    /// When the named monitor has a finding in the phase, or at `max_turns` after the phase began.
    Monitor {
        /// The monitor's name.
        monitor: String,
        /// The phase ends after this many turns even without one.
        max_turns: Option<usize>,
    },
}

/// Whose messages a trigger looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub enum TriggerSpeaker {
    /// The persona's.
    Persona,
    /// The other side's.
    Interlocutor,
    /// Both sides'.
    Either,
}

/// What a value must reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum IntensityBound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl IntensityBound {
    /// Whether `value` reaches it.
    pub fn is_reached(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }
}

/// Something to look for in a text: a phrase (case and typographic quotes folded) or a regular expression.
#[derive(Debug, Clone)]
pub enum Pattern {
    /// A phrase.
    Phrase(String),
    /// A regular expression, compiled case-insensitive.
    Regex(Regex),
}

/// A topic that the persona may bring up, in up to three strengths.
#[derive(Debug, Clone)]
pub struct Revelation {
    /// Its name, unique over all phases.
    pub topic: String,
    /// The dimension that decides the strength; the mean of all dimensions if none.
    pub dimension: Option<String>,
    /// At least one.
    pub variants: BTreeMap<Strength, String>,
}

/// The strength of a revelation, split at .3 and .7 like [`Level`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strength {
    /// Below .3.
    Subtle,
    /// From .3 to below .7.
    Moderate,
    /// From .7.
    Direct,
}
