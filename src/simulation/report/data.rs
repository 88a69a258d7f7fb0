//! The report's data, as in `report.json`. `docs/FORMATS.md` describes it.

use serde::{Deserialize, Serialize};

use super::summary::{Mean, RolloutInterval};
use super::verdict::{DecidingTurn, Verdict};
use crate::foundation::base::Digest;
use crate::simulation::judge::measured::{Standstill, TurnMeasures};
use crate::simulation::persona::{AdversaryKind, PromptSection, Speaker};
use crate::simulation::rollout::{Intensity, MonitorEvent, Outcome, ScoreJudge, ScoreMethod, TokenCount};

/// The value of [`Report::format`].
pub(super) const FORMAT: &str = "loom-report";
/// The version that this program writes.
pub(super) const VERSION: u32 = 1;

/// A report on the rollouts of one configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `loom-report`.
    pub format: String,
    /// 1.
    pub version: u32,
    /// The version of the program that wrote the first transcript.
    pub loom: String,
    /// The persona's name.
    pub persona: String,
    /// The configuration's file, as the user gave it.
    pub config: String,
    /// The digest of its text.
    pub config_digest: Digest,
    /// The run's seed; several if the folder contains transcripts of several runs.
    pub seeds: Vec<u64>,
    /// The kinds of adversaries.
    pub adversaries: Vec<AdversaryKind>,
    /// Turns planned per rollout; the maximum if they differ.
    pub turns_planned: usize,
    /// Rollouts planned, if the run's manifest exists.
    pub rollouts_planned: Option<usize>,
    /// The persona's models and messages.
    pub persona_side: ParticipantRow,
    /// The other side's models and messages.
    pub interlocutor_side: ParticipantRow,
    /// The prompts of the persona's model.
    #[serde(default)]
    pub prompts: PromptRow,
    /// Did the persona hold?
    #[serde(default)]
    pub verdict: Verdict,
    /// The monitors that ran, each with how many rollouts it checked.
    #[serde(default)]
    pub monitors: Vec<(String, usize)>,
    /// Turns at which the newest instruction before the persona's model named another phase or level than prescribed.
    #[serde(default)]
    pub told_differs: Vec<DecidingTurn>,
    /// The regulator's decisions on the persona's messages other than to continue.
    #[serde(default)]
    pub regulator: Vec<RegulatorRow>,
    /// The rollouts, in order.
    pub rollouts: Vec<RolloutRow>,
    /// The scores over all rollouts, in the order of `docs/SCORES.md`.
    pub scores: Vec<ScoreRow>,
    /// Scores stored in the transcripts, over all rollouts.
    #[serde(default)]
    pub stored: Vec<StoredScore>,
    /// How far several judges agree, per score that at least two took.
    #[serde(default)]
    pub judges: Vec<JudgeAgreement>,
    /// The names of the prescribed dimensions, in the configuration's order.
    pub dimensions: Vec<String>,
    /// Per phase, in order of appearance.
    pub phases: Vec<PhaseRow>,
    /// Per turn, over the rollouts.
    pub turns: Vec<TurnRow>,
    /// Findings of monitors.
    pub events: Vec<EventRow>,
    /// Spans of turns without anything new.
    #[serde(rename = "stretches")]
    pub standstills: Vec<StandstillRow>,
    /// Turns worth reading.
    pub flags: Vec<Flag>,
    /// Messages without a reply.
    pub failures: Vec<FailureRow>,
    /// What could not be measured, with reasons.
    pub missing: Vec<String>,
    /// Notes on the origin of the transcripts.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Times. The only part that differs between two runs with the same seed.
    pub timing: ReportTiming,
}

/// One side of the conversations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParticipantRow {
    /// The model specs of the run.
    pub specs: Vec<String>,
    /// The models that answered, most messages first.
    pub answered: Vec<ModelMessageCount>,
    /// Messages, including failed ones.
    pub messages: usize,
    /// Messages answered by a fallback model.
    pub fallbacks: usize,
    /// Replies that the provider marked as refusals.
    pub refusals: usize,
    /// Replies cut off at the token limit.
    pub cut_off: usize,
    /// Prompt tokens and generated tokens.
    pub tokens: TokenCount,
}

/// The full prompts of all rollouts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptRow {
    /// Turns with a full prompt.
    pub given: usize,
    /// Sentences left out for lack of prompt budget, most frequent first.
    pub left_out: Vec<OmittedSentence>,
}

/// A sentence of the prompt that was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OmittedSentence {
    /// Its section of the prompt.
    pub section: PromptSection,
    /// The sentence.
    pub item: String,
    /// How many prompts lack it.
    pub prompts: usize,
}

/// A model and how many messages it wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelMessageCount {
    /// Its name.
    pub model: String,
    /// How many.
    pub messages: usize,
}

/// One rollout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RolloutRow {
    /// Its number.
    pub rollout: usize,
    /// Its file's name.
    pub file: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Completed turns.
    pub turns: usize,
    /// Measurements per turn with a reply of the persona.
    pub measures: Vec<TurnMeasures>,
    /// Scores: id and value, absent if it could not be computed.
    pub scores: Vec<(String, Option<f64>)>,
}

/// One score over the rollouts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoreRow {
    /// Its definition in `docs/SCORES.md`.
    pub id: String,
    /// Over the rollouts on which it could be taken.
    pub value: Option<Mean>,
    /// The 95 % interval over rollouts; absent where there are too few.
    pub interval: Option<RolloutInterval>,
}

/// One score stored in the transcripts, over the rollouts for which one judge computed it with one method.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredScore {
    /// Its definition in `docs/SCORES.md`.
    pub id: String,
    /// The dimension that it speaks of.
    pub dimension: Option<String>,
    /// How it was computed.
    pub method: ScoreMethod,
    /// By whom; absent for scores without a judge.
    pub judge: Option<ScoreJudge>,
    /// The digest of the judge's question.
    pub prompt_digest: Option<Digest>,
    /// Over the rollouts on which it could be taken.
    pub value: Option<Mean>,
    /// The 95 % interval over rollouts; absent where there are too few.
    pub interval: Option<RolloutInterval>,
    /// The total probability of the judge's answers on the scale.
    pub mass: Option<Mean>,
    /// The smallest number of alternatives, if the provider returned only some: `mass` is then a lower bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<usize>,
    /// Values over the rollouts, each at the last turn of its window.
    pub points: Vec<StoredPoint>,
    /// Reasons of missing values, and how often.
    pub missing: Vec<(String, usize)>,
}

/// The agreement of several judges on one score.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JudgeAgreement {
    /// The score.
    pub id: String,
    /// Its dimension, if any.
    pub dimension: Option<String>,
    /// The judges.
    pub judges: Vec<String>,
    /// How many windows at least two of them rated.
    pub windows: usize,
    /// Krippendorff's α for interval data; absent if the ratings do not vary. From .8 on, judges count as agreeing.
    pub alpha: Option<f64>,
}

/// The value of a stored score at one turn, over the rollouts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredPoint {
    /// The last turn of the window.
    pub turn: usize,
    /// Its value.
    pub value: Mean,
}

/// One phase over all rollouts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseRow {
    /// Its name; absent for trajectories without phases.
    pub phase: Option<String>,
    /// Turns in it, over all rollouts.
    pub turns: usize,
    /// Mean prescribed intensities.
    pub intensities: Vec<Intensity>,
    /// The persona's confidence.
    pub confidence: Option<Mean>,
    /// The mean entropy of the persona's tokens, nats.
    pub entropy: Option<Mean>,
    /// The length of the persona's messages, words.
    pub words: Option<Mean>,
    /// Findings of monitors.
    pub events: usize,
}

/// One turn over all rollouts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnRow {
    /// From 0.
    pub turn: usize,
    /// Rollouts that reached it.
    pub rollouts: usize,
    /// The phase, if all rollouts were in the same one.
    pub phase: Option<String>,
    /// Mean prescribed intensities.
    pub intensities: Vec<Intensity>,
    /// The persona's confidence.
    pub confidence: Option<Mean>,
    /// The mean entropy of the persona's tokens, nats.
    pub entropy: Option<Mean>,
    /// The length of the persona's message, words.
    pub words: Option<Mean>,
    /// The share of new content words in it.
    pub novelty: Option<Mean>,
    /// Findings of monitors.
    pub events: usize,
}

/// A finding of a monitor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventRow {
    /// In which rollout.
    pub rollout: usize,
    /// In which turn.
    pub turn: usize,
    /// The finding and the action taken.
    #[serde(flatten)]
    pub event: MonitorEvent,
}

/// A decision of the regulator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegulatorRow {
    /// In which rollout.
    pub rollout: usize,
    /// In which turn.
    pub turn: usize,
    /// Its kind, such as `scope_drift_warn`.
    pub decision: String,
    /// What it rests on.
    pub detail: String,
}

/// A standstill in a rollout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StandstillRow {
    /// In which rollout.
    pub rollout: usize,
    /// The span of turns.
    #[serde(flatten)]
    pub standstill: Standstill,
}

/// A turn worth reading, with its messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flag {
    /// In which rollout.
    pub rollout: usize,
    /// Which turn.
    pub turn: usize,
    /// The phase.
    pub phase: Option<String>,
    /// The reasons.
    pub why: Vec<String>,
    /// The message that the persona answered, if any.
    pub before: Option<String>,
    /// The persona's message.
    pub persona: String,
}

/// A message without a reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureRow {
    /// In which rollout.
    pub rollout: usize,
    /// In which turn.
    pub turn: usize,
    /// Whose message.
    pub speaker: Speaker,
    /// Why.
    pub why: String,
}

/// Times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReportTiming {
    /// Start of the first rollout, RFC 3339, UTC.
    pub began: String,
    /// Seconds over all turns of all rollouts; parallel rollouts each count in full.
    pub seconds: f64,
    /// Generated tokens per second of a rollout, the mean over rollouts; absent if no time passed.
    pub tokens_per_second: Option<f64>,
    /// Prompt tokens that were cached.
    pub tokens_cached: u64,
}
