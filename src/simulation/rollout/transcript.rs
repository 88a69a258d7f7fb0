//! The transcript of a rollout: `rollout_000.json` and its side file `rollout_000.tokens.jsonl`.
//!
//! `docs/FORMATS.md` explains the fields. Two rules hold throughout. Everything measured by a clock, and everything that
//! depends on caching or on resuming, is in an object called `timing`; without those and `created_at`, the same seed gives
//! the same bytes. Unknown values are `null`, never a default.

mod imported;
mod scores;
mod tokens;
mod turn;

use serde::{Deserialize, Serialize};

pub use scores::{Reliability, Score, ScoreJudge, ScoreMethod, ScorePoint};
pub use tokens::{ThoughtLine, TokenLine, TokenSummary};
pub use turn::{
    AdversaryMove, Attempt, HostedRecord, Intensity, Intervention, InterventionKind, MeasuredQuality, ModelFallback,
    MonitorAction, MonitorEvent, Probe, PromptRecord, Quote, RegulatorRecord, ReplyFailure, Resampled,
    ResampledMessage, ThoughtRecord, TokenCount, Turn, TurnTiming, Utterance, UtteranceTiming, WindowTrim,
};

use crate::foundation::base::Digest;
use crate::foundation::chat::{Finish, ModelInfo, Sampling};
use crate::simulation::persona::{AdversaryKind, Speaker, TurnPlan};

/// The value of [`Transcript::format`].
pub const TRANSCRIPT_FORMAT: &str = "loom-transcript";
/// The version that this program writes, and the newest that it reads.
pub const TRANSCRIPT_VERSION: u32 = 1;

/// One rollout, complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transcript {
    /// [`TRANSCRIPT_FORMAT`].
    pub format: String,
    /// [`TRANSCRIPT_VERSION`].
    pub version: u32,
    /// The version of the program that wrote it.
    pub loom: String,
    /// When the rollout started, RFC 3339, UTC.
    pub created_at: String,
    /// Notes on the origin of an imported transcript: omissions and changes. Empty for one that Loom produced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The persona's configuration.
    pub config: ConfigRef,
    /// Which rollout of which run.
    pub run: RunRef,
    /// The models.
    pub models: Models,
    /// The settings before the first message.
    pub opening: Opening,
    /// The monitors that ran; absent where none did, or where it was not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monitors: Option<Vec<String>>,
    /// The conversation.
    pub turns: Vec<Turn>,
    /// How it ended.
    pub outcome: Outcome,
    /// Sums over the turns.
    pub totals: Totals,
    /// Scores taken afterwards by `loom score`; empty until then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<Score>,
}

/// The persona configuration that a run used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigRef {
    /// The file, as the user named it.
    pub source: String,
    /// The digest of its text.
    pub digest: Digest,
    /// The persona's name.
    pub name: String,
}

/// Which rollout of which run, and its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRef {
    /// The run's seed; absent if the source of an imported transcript does not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The rollout's number in the run, from 0.
    pub rollout: usize,
    /// How many turns were planned.
    pub turns_planned: usize,
    /// Who the interlocutor was.
    pub adversary: AdversaryKind,
}

/// The models of a rollout, by role.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Models {
    /// The persona's.
    pub persona: ModelRef,
    /// The other side's: the target's or the adversary's.
    pub interlocutor: ModelRef,
}

/// A model as it was opened and used. The model that actually replied is recorded in each [`Utterance`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRef {
    /// The spec string, fallbacks included.
    pub spec: String,
    /// The requested number type; absent if the model's files decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// What is known of it.
    pub info: ModelInfo,
    /// How its replies were sampled; `max_tokens` is the upper bound over the run. Absent if the source of an imported
    /// transcript does not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
}

/// The settings before the first message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// Who speaks first in every turn.
    pub first_speaker: Speaker,
    /// The interlocutor's first message from the configuration, before turn 0.
    pub words: Option<String>,
    /// The interlocutor's system prompt.
    pub interlocutor_prompt: String,
    /// How instructions reach the persona's model after turn 0.
    pub placement: PlacementUsed,
}

/// How instructions reached the persona's model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacementUsed {
    /// A system message before the reply, in place of the previous one.
    Replace,
    /// Appended to the history as system messages.
    Append,
    /// The system prompt was rewritten, as configured.
    System,
    /// The system prompt was rewritten because the model has a prompt budget: its window is too short to append to.
    SystemForBudget,
    /// The system prompt was rewritten because the model's template takes a system message only at the top.
    SystemForTemplate,
}

impl PlacementUsed {
    /// The instructions of `plan` above the history and directly before the reply; the latter is empty where everything
    /// stands above the history.
    pub fn instructions(self, plan: &TurnPlan) -> (&str, &str) {
        match self {
            Self::Replace | Self::Append => (plan.opening.trim(), plan.state.trim()),
            Self::System | Self::SystemForBudget | Self::SystemForTemplate => (plan.prompt.trim(), ""),
        }
    }
}

/// How a rollout ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// It has not ended.
    Unfinished,
    /// Every planned turn was completed.
    Complete,
    /// It ended early.
    Stopped {
        /// Why.
        reason: String,
        /// Whether the regulator's circuit break ended it; otherwise models failed to reply.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        circuit_break: bool,
    },
}

/// Sums over a rollout.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Completed turns.
    pub turns: usize,
    /// The persona's model's tokens.
    pub persona: TokenCount,
    /// The other side's.
    pub interlocutor: TokenCount,
    /// Attempts beyond the first, both sides.
    pub retries: usize,
    /// Findings of monitors.
    pub monitor_events: usize,
    /// Messages without a reply.
    pub failures: usize,
    /// Replies that a provider calls refusals.
    pub refusals: usize,
    /// Messages answered by another model than the first choice.
    pub fallbacks: usize,
    /// The list price of all hosted models' tokens, US dollars; absent if none was called or a price is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Wall clock.
    pub timing: TotalsTiming,
}

impl Totals {
    /// The sums over `turns`.
    pub fn of(turns: &[Turn]) -> Self {
        let mut totals = Self { turns: turns.len(), ..Self::default() };
        for turn in turns {
            totals.persona += turn.persona.usage;
            totals.interlocutor += turn.interlocutor.usage;
            totals.monitor_events += turn.monitor_events.len();
            totals.timing.seconds += turn.timing.seconds;
            for utterance in [&turn.persona, &turn.interlocutor] {
                // The last failed attempt is the failure itself; imported conversations record no attempts.
                totals.retries += utterance.attempts.len().saturating_sub(usize::from(utterance.failure.is_some()));
                totals.failures += usize::from(utterance.failure.is_some());
                totals.refusals += usize::from(utterance.finish == Some(Finish::Refusal));
                totals.fallbacks += usize::from(!utterance.fallbacks.is_empty());
            }
        }
        let said = turns.iter().flat_map(|turn| [&turn.persona, &turn.interlocutor]);
        let mut costs = said.filter_map(|utterance| utterance.hosted.as_ref()).map(|hosted| hosted.cost_usd).peekable();
        totals.cost_usd = costs.peek().is_some().then(|| costs.sum()).flatten();
        let written = (totals.persona.tokens_out + totals.interlocutor.tokens_out) as f64;
        totals.timing.tokens_per_second = (totals.timing.seconds > 0.0).then(|| written / totals.timing.seconds);
        totals
    }
}

/// A rollout's wall clock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TotalsTiming {
    /// Seconds over the turns, without the time between interruption and resumption.
    pub seconds: f64,
    /// Tokens written per second by this rollout alone; absent when no time passed.
    pub tokens_per_second: Option<f64>,
}
