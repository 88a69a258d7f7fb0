//! The report as data: what `report.json` holds. `docs/FORMATS.md` describes it.

use serde::{Deserialize, Serialize};

use crate::foundation::base::Digest;
use crate::foundation::stats::Interval;
use crate::simulation::judge::measured::{Stretch, TurnMeasures};
use crate::simulation::persona::{AdversaryKind, Part, Speaker};
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
    /// The configuration's file, as the user named it.
    pub config: String,
    /// The digest of its text.
    pub config_digest: Digest,
    /// The run's seed; several where transcripts of several runs lie together.
    pub seeds: Vec<u64>,
    /// Who the interlocutor was.
    pub adversaries: Vec<AdversaryKind>,
    /// Turns planned per rollout; the most, where they differ.
    pub turns_planned: usize,
    /// How many rollouts the run was to have, if its manifest is there.
    pub rollouts_planned: Option<usize>,
    /// Who spoke for the persona.
    pub persona_side: SideRow,
    /// Who spoke for the other side.
    pub interlocutor_side: SideRow,
    /// What the persona's model was told of the persona.
    #[serde(default)]
    pub prompts: PromptRow,
    /// The rollouts, in order.
    pub rollouts: Vec<RolloutRow>,
    /// The scores over all rollouts, in the order of `docs/SCORES.md`.
    pub scores: Vec<ScoreRow>,
    /// Scores that stand in the transcripts, over all rollouts.
    #[serde(default)]
    pub stored: Vec<StoredScore>,
    /// The names of the prescribed dimensions, in the configuration's order.
    pub dimensions: Vec<String>,
    /// Phase by phase, in order of appearance.
    pub phases: Vec<PhaseRow>,
    /// Turn by turn, over the rollouts.
    pub turns: Vec<TurnRow>,
    /// What the monitors found.
    pub events: Vec<EventRow>,
    /// Where conversations stood still.
    pub stretches: Vec<StretchRow>,
    /// Turns worth reading.
    pub flags: Vec<Flag>,
    /// Messages without a reply.
    pub failures: Vec<FailureRow>,
    /// What could not be measured, and why.
    pub missing: Vec<String>,
    /// What a reader must know of where the transcripts come from.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What a clock measured. The only part that differs between two runs of one seed.
    pub timing: ReportTiming,
}

/// One side of the conversations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SideRow {
    /// The spec strings under which its model was opened.
    pub specs: Vec<String>,
    /// Who really answered, most messages first.
    pub answered: Vec<Answered>,
    /// Its messages, failed ones included.
    pub messages: usize,
    /// Messages answered by another model than the first choice.
    pub fallbacks: usize,
    /// Replies that a provider calls refusals.
    pub refusals: usize,
    /// Replies cut off at their longest allowed length.
    pub cut_off: usize,
    /// Tokens read and written.
    pub tokens: TokenCount,
}

/// The whole prompts of all rollouts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptRow {
    /// How many turns gave the whole prompt.
    pub given: usize,
    /// What did not fit into the model's prompt budget, most often left out first.
    pub left_out: Vec<LeftOut>,
}

/// A sentence of the prompt that was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Where it would have stood.
    pub section: Part,
    /// The sentence.
    pub item: String,
    /// Of how many prompts it was left out.
    pub prompts: usize,
}

/// A model and how many messages it wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
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
    /// Turns held.
    pub turns: usize,
    /// Turns measured, where the persona spoke.
    pub measures: Vec<TurnMeasures>,
    /// Its scores: value by id; absent where it could not be taken.
    pub scores: Vec<(String, Option<f64>)>,
}

/// A mean and how many values it is of.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// The lowest value.
    pub low: f64,
    /// The highest.
    pub high: f64,
    /// How many values.
    pub n: usize,
}

/// One score over the rollouts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoreRow {
    /// Its definition in `docs/SCORES.md`.
    pub id: String,
    /// Over the rollouts on which it could be taken.
    pub value: Option<Mean>,
    /// 95 % bootstrap interval of the mean over rollouts; absent for fewer than three.
    pub interval: Option<Interval>,
}

/// One score that stands in the transcripts, over the rollouts on which one judge took it in one way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredScore {
    /// Its definition in `docs/SCORES.md`.
    pub id: String,
    /// The dimension that it speaks of.
    pub dimension: Option<String>,
    /// How it was taken.
    pub method: ScoreMethod,
    /// By whom; absent for scores without a judge.
    pub judge: Option<ScoreJudge>,
    /// The digest of what the judge was asked.
    pub prompt_digest: Option<Digest>,
    /// Over the rollouts on which it could be taken.
    pub value: Option<Mean>,
    /// 95 % bootstrap interval of the mean over rollouts; absent for fewer than three.
    pub interval: Option<Interval>,
    /// How much probability the judge's ratings had on their scale.
    pub mass: Option<Mean>,
    /// Over how many alternatives at least, where the judge told not all of them: `mass` is then a lower bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<usize>,
    /// Reading by reading over the rollouts, each at the last turn that it read.
    pub points: Vec<StoredPoint>,
    /// Why there is no value, and how often.
    pub missing: Vec<(String, usize)>,
}

/// One reading of a stored score, over the rollouts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredPoint {
    /// The last turn that was read.
    pub turn: usize,
    /// Its value.
    pub value: Mean,
}

/// One phase over all rollouts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseRow {
    /// Its name; absent for trajectories without phases.
    pub phase: Option<String>,
    /// Turns held in it, over all rollouts.
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
    /// How many rollouts held it.
    pub rollouts: usize,
    /// The phase, where all rollouts were in the same.
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
    /// What was found, and what came of it.
    #[serde(flatten)]
    pub event: MonitorEvent,
}

/// A stretch of a rollout that stood still.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StretchRow {
    /// In which rollout.
    pub rollout: usize,
    /// Where and how much.
    #[serde(flatten)]
    pub stretch: Stretch,
}

/// A turn worth reading, with what was said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flag {
    /// In which rollout.
    pub rollout: usize,
    /// Which turn.
    pub turn: usize,
    /// The phase.
    pub phase: Option<String>,
    /// Why it is worth reading.
    pub why: Vec<String>,
    /// What the persona answered to, if anything.
    pub before: Option<String>,
    /// What the persona said.
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

/// What a clock measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReportTiming {
    /// When the first rollout began, RFC 3339, UTC.
    pub began: String,
    /// Seconds over all turns of all rollouts; rollouts side by side each count in full.
    pub seconds: f64,
    /// Tokens written per second of a rollout, the mean over rollouts; absent when no time passed.
    pub tokens_per_second: Option<f64>,
    /// Tokens of prompts that needed no reading.
    pub tokens_cached: u64,
}
