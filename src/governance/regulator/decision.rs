//! The regulator's decisions, each with its evidence, in order of urgency.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// A decision with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankedDecision {
    /// The decision.
    #[serde(flatten)]
    pub decision: Decision,
    /// The measurements behind it; empty for [`Decision::Continue`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
}

/// One measurement behind a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// What was measured; the unit comes last.
    pub name: Cow<'static, str>,
    /// The measured value.
    pub value: f64,
    /// The threshold, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
}

impl Evidence {
    /// `value` of `name`, against `limit`.
    pub(super) fn new(name: &'static str, value: f64, limit: impl Into<Option<f64>>) -> Self {
        Self { name: Cow::Borrowed(name), value, limit: limit.into() }
    }
}

/// A decision (spec §3.3), the most urgent kinds first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Decision {
    /// Further calls are unlikely to help, or a cap is reached.
    CircuitBreak {
        /// Why.
        reason: CircuitBreakReason,
        /// The requested action.
        action: BreakAction,
        /// What to do next, for a person.
        suggestion: String,
    },
    /// The agent repeats tool calls without progress.
    ToolLoop {
        /// The kind of loop.
        pattern: ToolLoopPattern,
        /// The tools in the loop, in order.
        tools: Vec<String>,
        /// Rounds of the cycle, or failures in a row.
        repeats: usize,
        /// What to do next, for a person.
        suggestion: String,
    },
    /// The reply's tokens are so unlikely that generation should end.
    StopEarly {
        /// Mean log-probability of the last tokens, nats; absent if their confidence was too low.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group_logprob: Option<f64>,
        /// Their group confidence, nats, if it was too low.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group_confidence: Option<f64>,
        /// Tokens in the mean.
        window_tokens: usize,
        /// Index of the token after which it was decided, from 0.
        at_token: u64,
    },
    /// The reply drifts from its task.
    ScopeDriftWarn {
        /// Drift, in [0, 1].
        drift_score: f64,
        /// Words of the reply that the task does not contain, the highest-weighted first.
        drift_tokens: Vec<String>,
        /// The task's keywords.
        task_tokens: Vec<String>,
        /// The drifting parts of the reply.
        spans: Vec<DriftSpan>,
        /// What the warning rests on.
        #[serde(default)]
        basis: DriftBasis,
    },
    /// The user corrected this before: add the rule to the prompt before the reply is generated.
    ProceduralWarning {
        /// The learned rules, the most frequent first.
        patterns: Vec<CorrectionPattern>,
    },
    /// Parts of the reply with low token probabilities.
    LowConfidenceSpans {
        /// In order of appearance, disjoint.
        spans: Vec<ConfidenceSpan>,
    },
    /// No other decision applies.
    Continue,
}

impl Decision {
    /// Its name, as in JSON.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::CircuitBreak { .. } => "circuit_break",
            Self::ToolLoop { .. } => "tool_loop",
            Self::StopEarly { .. } => "stop_early",
            Self::ScopeDriftWarn { .. } => "scope_drift_warn",
            Self::ProceduralWarning { .. } => "procedural_warning",
            Self::LowConfidenceSpans { .. } => "low_confidence_spans",
            Self::Continue => "continue",
        }
    }

    /// Rank by urgency, 0 the most urgent: the order of spec §11.5, extended.
    pub fn rank(&self) -> u8 {
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

/// The action a circuit break requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakAction {
    /// End the work.
    Stop,
    /// Pause until a person decides how to continue.
    PauseAndAsk,
    /// Continue, more slowly or with a cheaper model.
    Throttle,
}

/// The reason of a circuit break.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum CircuitBreakReason {
    /// A cap was reached: a hard cap, a soft cap, or the compound rule's, which also reports the mean quality.
    CostCapReached {
        /// The capped resource.
        resource: Resource,
        /// Spent and reserved.
        spent: u64,
        /// The cap.
        cap: u64,
        /// Mean quality of the last judged turns; `None` if there are none.
        mean_quality_last_n: Option<f64>,
    },
    /// Quality falls from turn to turn without recovery.
    QualityDeclineNoRecovery {
        /// Over how many turns.
        turns: usize,
        /// Mean change per turn (negative).
        mean_delta: f64,
    },
    /// Quality stays low.
    QualityPersistentlyLow {
        /// Over how many turns.
        turns: usize,
        /// Their mean quality.
        mean_quality: f64,
    },
    /// Replies on one topic failed repeatedly.
    RepeatedFailurePattern {
        /// The topic, named by its keywords.
        cluster: String,
        /// Failures in a row.
        failure_count: usize,
    },
}

/// A limited resource.
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

/// The kind of tool loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolLoopPattern {
    /// The same calls with the same arguments and results repeat.
    Cycle,
    /// One call failed after another.
    FailureStreak,
    /// The same call repeats, between others, and its result does not change.
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

/// A part of a reply with low token probabilities, widened to whole words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConfidenceSpan {
    /// The range.
    #[serde(flatten)]
    pub span: TextSpan,
    /// Its text.
    pub text: String,
    /// Geometric mean of its tokens' probabilities, in (0, 1]; not calibrated.
    pub confidence: f64,
    /// Mean log-probability of its tokens, nats.
    pub mean_token_logprob: f64,
}

/// What a drift warning rests on, the most reliable first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriftBasis {
    /// The reply does what the task forbids.
    Prohibition,
    /// The reply is no more likely with the task than without it, to a local model.
    Likelihood,
    /// Sentence embeddings of the reply and the task.
    Embedding,
    /// The words of the reply and the task alone.
    #[default]
    Words,
}

/// A part of a reply that drifts from the task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DriftSpan {
    /// The range.
    #[serde(flatten)]
    pub span: TextSpan,
    /// Its drift, in [0, 1].
    pub drift_score: f64,
    /// The thing that the task forbids and this part does; `None` if it is only off topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forbidden: Option<String>,
}

/// A rule learned from a user's repeated corrections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CorrectionPattern {
    /// The user's id.
    pub user_id: String,
    /// The topic, named by its keywords.
    pub topic_cluster: String,
    /// A name for the rule.
    pub pattern_name: String,
    /// How many corrections it was learned from.
    pub learned_from_turns: usize,
    /// Confidence that it is a rule, in [0, 1).
    pub confidence: f64,
    /// The corrections verbatim, the latest last.
    pub example_corrections: Vec<String>,
}
