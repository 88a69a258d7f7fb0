//! What the regulator answers: decisions, each with the figures that led to it, in order of urgency.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// A decision with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ruling {
    /// What to do.
    #[serde(flatten)]
    pub decision: Decision,
    /// The figures it rests on; empty for [`Decision::Continue`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
}

/// One figure behind a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// What was measured, the unit last.
    pub name: Cow<'static, str>,
    /// What was found.
    pub value: f64,
    /// Where the line is, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
}

impl Evidence {
    /// `value` of `name`, against `limit`.
    pub(super) fn new(name: &'static str, value: f64, limit: impl Into<Option<f64>>) -> Self {
        Self { name: Cow::Borrowed(name), value, limit: limit.into() }
    }
}

/// What to do (spec §3.3), from the most urgent kind to none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Decision {
    /// Further calls are unlikely to help, or may not be paid for.
    CircuitBreak {
        /// Why.
        reason: CircuitBreakReason,
        /// How hard to brake.
        action: BreakAction,
        /// What to do next, for a person.
        suggestion: String,
    },
    /// The agent goes in circles with its tools.
    ToolLoop {
        /// How.
        pattern: ToolLoopPattern,
        /// The tools in the circle, in order.
        tools: Vec<String>,
        /// How often it went round, or how many calls failed in a row.
        repeats: usize,
        /// What to do next, for a person.
        suggestion: String,
    },
    /// The rest of this reply is not worth generating.
    StopEarly {
        /// Mean log-probability of the last tokens, nats.
        group_logprob: f64,
        /// How many tokens the mean is taken over.
        window_tokens: usize,
        /// The token after which it was said, from 0.
        at_token: u64,
    },
    /// The reply goes beyond its task.
    ScopeDriftWarn {
        /// How far, in [0, 1].
        drift_score: f64,
        /// Words of the reply that have no part in the task, the most telling first.
        drift_tokens: Vec<String>,
        /// The task's keywords.
        task_tokens: Vec<String>,
        /// The parts of the reply that drift.
        spans: Vec<DriftSpan>,
    },
    /// Users corrected this before: say so in the prompt, before the reply is generated.
    ProceduralWarning {
        /// What was learned, the best established first.
        patterns: Vec<CorrectionPattern>,
    },
    /// Parts of the reply that the model itself found unlikely.
    LowConfidenceSpans {
        /// In order of appearance, disjoint.
        spans: Vec<ConfidenceSpan>,
    },
    /// Nothing stands against going on.
    Continue,
}

impl Decision {
    /// Rank by urgency, the most urgent first: spec §11.5 with the later kinds in their places.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::CircuitBreak { action: BreakAction::Throttle, .. } => 6,
            Self::CircuitBreak { reason, .. } => match reason {
                CircuitBreakReason::CostCapReached { .. } => 0,
                CircuitBreakReason::QualityDeclineNoRecovery { .. } => 1,
                CircuitBreakReason::QualityPersistentlyLow { .. } => 2,
                CircuitBreakReason::RepeatedFailurePattern { .. } => 3,
            },
            Self::ToolLoop { .. } => 4,
            Self::StopEarly { .. } => 5,
            Self::ScopeDriftWarn { .. } => 7,
            Self::ProceduralWarning { .. } => 8,
            Self::LowConfidenceSpans { .. } => 9,
            Self::Continue => 10,
        }
    }
}

/// How hard to brake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakAction {
    /// End the work.
    Stop,
    /// Hold the work until a person says how to go on.
    PauseAndAsk,
    /// Go on, more slowly or on a cheaper model.
    Throttle,
}

/// Why further calls are held to be of no use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum CircuitBreakReason {
    /// A cap was reached: a hard one, a soft one (then the action is milder), or the compound rule's, which also says
    /// how poor the replies were.
    CostCapReached {
        /// Which budget.
        resource: Resource,
        /// What is spent of it, with what is reserved.
        spent: u64,
        /// How much there was.
        cap: u64,
        /// Mean quality of the last turns that were judged; `None` when none was.
        mean_quality_last_n: Option<f64>,
    },
    /// Quality falls turn by turn and does not come back.
    QualityDeclineNoRecovery {
        /// Over how many turns.
        turns: usize,
        /// Mean change per turn (negative).
        mean_delta: f64,
    },
    /// Quality is flat and bad.
    QualityPersistentlyLow {
        /// Over how many turns.
        turns: usize,
        /// Their mean quality.
        mean_quality: f64,
    },
    /// The same topic failed again and again.
    RepeatedFailurePattern {
        /// The topic, named by its keywords.
        cluster: String,
        /// How often in a row.
        failure_count: usize,
    },
}

/// Something that can run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Tokens read and written together.
    Tokens,
    /// Tokens read.
    TokensIn,
    /// Tokens written.
    TokensOut,
    /// Tokens read from a cache.
    TokensCached,
    /// Millionths of the account's currency.
    MoneyMicros,
    /// Wall-clock time, ms.
    WallclockMs,
}

/// How an agent goes in circles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolLoopPattern {
    /// The same calls with the same arguments and the same results, over and over.
    Cycle,
    /// One call failed after another.
    FailureStreak,
    /// The same call again and again, between others, and its answer does not move.
    Polling,
}

/// A part of a reply: half-open ranges, in bytes of its UTF-8 and in characters (Unicode scalar values).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextSpan {
    /// First byte.
    pub start_byte: usize,
    /// One past the last byte.
    pub end_byte: usize,
    /// First character.
    pub start_char: usize,
    /// One past the last character.
    pub end_char: usize,
}

/// A part of a reply that the model itself found unlikely, widened to whole words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConfidenceSpan {
    /// Where.
    #[serde(flatten)]
    pub span: TextSpan,
    /// The text there.
    pub text: String,
    /// Geometric mean of its tokens' probabilities, in (0, 1]; not calibrated.
    pub confidence: f64,
    /// Mean log-probability of its tokens, nats.
    pub mean_token_logprob: f64,
}

/// A part of a reply that has no part in the task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DriftSpan {
    /// Where.
    #[serde(flatten)]
    pub span: TextSpan,
    /// How far it drifts, in [0, 1].
    pub drift_score: f64,
    /// What the task forbade and this part does; `None` when it is merely off topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forbidden: Option<String>,
}

/// What a user taught by correcting the same thing again and again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CorrectionPattern {
    /// Whose rule it is.
    pub user_id: String,
    /// The topic, named by its keywords.
    pub topic_cluster: String,
    /// A name for the rule.
    pub pattern_name: String,
    /// From how many corrections it was learned.
    pub learned_from_turns: usize,
    /// How well it is established, in [0, 1).
    pub confidence: f64,
    /// The corrections themselves, the latest last; what they mean is for the reader to say.
    pub example_corrections: Vec<String>,
}
