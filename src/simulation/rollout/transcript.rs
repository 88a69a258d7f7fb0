//! What a rollout leaves behind: `rollout_000.json` and its side file `rollout_000.tokens.jsonl`.
//!
//! The fields are explained in `docs/FORMATS.md`. Two rules hold throughout. Whatever a clock measures, and whatever
//! depends on how the work was cut up (what was cached, what a resumed run read again), sits in an object called
//! `timing`; without those and `created_at`, the same seed gives the same bytes. And nothing is made up: what is not
//! known is `null`.

use serde::{Deserialize, Serialize};

use super::monitors::Finding;
use crate::foundation::base::Digest;
use crate::foundation::chat::{Basis, DeltaGains, Finish, ModelInfo, Reading, Sampling, TokenId, TokenLogprob, Usage};
use crate::governance::regulator::{Ruling, TurnReading};
use crate::simulation::persona::{AdversaryKind, Dropped, InjectionKind, Speaker};

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
    /// When the rollout began, RFC 3339, UTC.
    pub created_at: String,
    /// Whose conversation this is.
    pub config: ConfigRef,
    /// Which rollout of which run.
    pub run: RunRef,
    /// Who spoke.
    pub models: Models,
    /// What was set before the first word.
    pub opening: Opening,
    /// The conversation.
    pub turns: Vec<Turn>,
    /// How it ended.
    pub outcome: Outcome,
    /// Sums over the turns.
    pub totals: Totals,
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

/// Which rollout of which run, and how it was set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRef {
    /// The run's seed.
    pub seed: u64,
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

/// A model as it was opened and used. The model that really answered stands in each [`Utterance`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRef {
    /// The spec string, fallbacks included.
    pub spec: String,
    /// What is known of it.
    pub info: ModelInfo,
    /// How its replies were sampled; `max_tokens` is the upper bound over the run.
    pub sampling: Sampling,
}

/// What was set before the first word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// Who speaks first in every turn.
    pub first_speaker: Speaker,
    /// The interlocutor's first words from the configuration, said before turn 0.
    pub words: Option<String>,
    /// The interlocutor's system prompt.
    pub interlocutor_prompt: String,
    /// How scaffolding reaches the persona's model after turn 0.
    pub placement: PlacementUsed,
}

/// How scaffolding reached the persona's model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacementUsed {
    /// Appended to the history as system messages.
    Append,
    /// The opening was rewritten, as the configuration asks.
    System,
    /// The opening was rewritten because the model states a prompt budget: its window is too short to append to.
    SystemForBudget,
}

/// One turn: the persona's message and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// From 0.
    pub index: usize,
    /// The phase, if the trajectory has phases.
    pub phase: Option<String>,
    /// In `[0, 1]`.
    pub progress: f64,
    /// The prescribed intensities, in the configuration's order.
    pub intensities: Vec<Intensity>,
    /// What the assembler gave.
    pub prompt: PromptRecord,
    /// The instructions that the persona's model was given in this turn and keeps, in order. Instructions of rejected
    /// drafts are not among them: they stand in [`Utterance::attempts`].
    pub injected: Vec<String>,
    /// Gains on Δ for the persona's model; absent is no modulation.
    pub gains: Option<DeltaGains>,
    /// Where the oldest messages left a window.
    pub slides: Vec<Slide>,
    /// The persona's message.
    pub persona: Utterance,
    /// The other side's.
    pub interlocutor: Utterance,
    /// What the monitors found in drafts of this turn, in order.
    pub monitor_events: Vec<MonitorEvent>,
    /// Wall clock.
    pub timing: TurnTiming,
}

/// One dimension's prescribed value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Intensity {
    /// The dimension's name.
    pub dimension: String,
    /// In `[0, 1]`.
    pub value: f64,
}

/// What the assembler gave in a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptRecord {
    /// `full`, `reminder` or `none`.
    pub injection: InjectionKind,
    /// The digest of the whole assembled prompt, given or not.
    pub digest: Digest,
    /// The version of the templates.
    pub template_version: u32,
    /// What was left out for lack of room.
    pub dropped: Vec<Dropped>,
}

/// The oldest messages left a model's window. The opening stays; everything kept was read again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slide {
    /// Whose model.
    pub speaker: Speaker,
    /// How many messages left.
    pub messages: usize,
    /// The prompt's length before, tokens.
    pub tokens_before: usize,
    /// And after.
    pub tokens_after: usize,
}

/// What one side said in one turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Utterance {
    /// Which side.
    pub speaker: Speaker,
    /// What the adversary was up to; absent for the persona and a plain target.
    pub adversary: Option<AdversaryMove>,
    /// The text, exactly as it was generated; the stand-in of `docs/FORMATS.md` after a failure or an empty refusal.
    pub content: String,
    /// Its token ids, where they are known.
    pub ids: Option<Vec<TokenId>>,
    /// The model that really answered; absent after a failure.
    pub model: Option<String>,
    /// The models tried before it, each with why it did not answer.
    pub fallbacks: Vec<Fallback>,
    /// Why the reply ended; absent after a failure.
    pub finish: Option<Finish>,
    /// Why there is no reply.
    pub failure: Option<Failure>,
    /// Which attempt this is, from 0.
    pub attempt: usize,
    /// What the model was told for this attempt, and keeps.
    pub instruction: Option<String>,
    /// The attempts that were not taken, in order of [`Attempt::index`].
    pub attempts: Vec<Attempt>,
    /// Tokens read and written, over all attempts.
    pub usage: TokenCount,
    /// The reply's tokens in figures; the tokens themselves are in the side file.
    pub tokens: TokenSummary,
    /// What the regulator made of it. It is told neither wall-clock time nor cached tokens, so both are 0 here.
    pub regulator: Regulated,
    /// Wall clock.
    pub timing: UtteranceTiming,
}

/// A regulator after a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Regulated {
    /// What it read.
    pub reading: TurnReading,
    /// What it would do, the most urgent first; `continue` alone when nothing stands against going on.
    pub decisions: Vec<Ruling>,
}

/// What an adversary was up to in one message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdversaryMove {
    /// Which adversary.
    pub kind: AdversaryKind,
    /// The strategy's name.
    pub strategy: String,
    /// What it was told for this message.
    pub instruction: String,
}

/// A model that did not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallback {
    /// Its spec string.
    pub model: String,
    /// Why it did not.
    pub why: String,
}

/// Why there is no reply after all attempts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The last attempt's reason.
    pub why: String,
}

/// An attempt that was not taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// From 0.
    pub index: usize,
    /// What was generated; empty when the model failed.
    pub content: String,
    /// What the model was told for this attempt.
    pub instruction: Option<String>,
    /// Why the reply ended.
    pub finish: Option<Finish>,
    /// Why there is none.
    pub error: Option<String>,
}

/// One finding of a monitor and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MonitorEvent {
    /// In which attempt of the persona's message.
    pub attempt: usize,
    /// What came of it.
    pub action: MonitorAction,
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
}

/// What came of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MonitorAction {
    /// The persona was asked again.
    Redraft,
    /// No retry was left, or no other draft was better: this draft stands although it was found.
    Accepted,
}

/// Tokens of a reply in figures. Natural logarithms; `null` where no token had the value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenSummary {
    /// How many tokens.
    pub count: usize,
    /// Which distribution the figures were read from, if any.
    pub basis: Option<Basis>,
    /// Mean log-probability.
    pub logprob_mean: Option<f64>,
    /// The least likely token's.
    pub logprob_min: Option<f64>,
    /// Mean entropy, nats.
    pub entropy_mean: Option<f64>,
    /// The largest, nats.
    pub entropy_max: Option<f64>,
    /// The share of tokens that were the likeliest ones.
    pub greedy_share: Option<f64>,
}

impl TokenSummary {
    /// The figures of `tokens`.
    pub fn of(tokens: &[TokenLogprob]) -> Self {
        let logprobs: Vec<_> = tokens.iter().filter_map(|token| token.logprob.map(f64::from)).collect();
        let entropies: Vec<_> = tokens.iter().filter_map(|token| token.entropy.map(f64::from)).collect();
        let ranks: Vec<_> = tokens.iter().filter_map(|token| token.rank.map(|rank| f64::from(rank == 0))).collect();
        Self {
            count: tokens.len(),
            basis: tokens.iter().find(|token| token.logprob.is_some()).map(|token| token.basis),
            logprob_mean: mean(&logprobs),
            logprob_min: logprobs.iter().copied().reduce(f64::min),
            entropy_mean: mean(&entropies),
            entropy_max: entropies.iter().copied().reduce(f64::max),
            greedy_share: mean(&ranks),
        }
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Tokens read and written. What was cached depends on how the work was cut up and stands in `timing`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenCount {
    /// The prompts' tokens, whether read or cached.
    pub tokens_in: u64,
    /// The replies' tokens.
    pub tokens_out: u64,
}

impl std::ops::AddAssign<TokenCount> for TokenCount {
    fn add_assign(&mut self, other: Self) {
        self.tokens_in += other.tokens_in;
        self.tokens_out += other.tokens_out;
    }
}

impl From<Usage> for TokenCount {
    fn from(usage: Usage) -> Self {
        Self { tokens_in: usage.tokens_in, tokens_out: usage.tokens_out }
    }
}

/// How long a message took, and how much had to be read for it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UtteranceTiming {
    /// Wall clock over all attempts, seconds.
    pub seconds: f64,
    /// How the accepted attempt's prompt was read.
    pub reading: Option<Reading>,
    /// Tokens of prompts, over all attempts, that needed no reading.
    pub tokens_cached: u64,
}

/// How long a turn took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnTiming {
    /// Wall clock, seconds.
    pub seconds: f64,
}

/// How a rollout ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// It is under way.
    Unfinished,
    /// Every planned turn was held.
    Complete,
    /// It was given up.
    Stopped {
        /// Why.
        reason: String,
    },
}

/// Sums over a rollout.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Turns held.
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
                totals.retries += utterance.attempts.len() - usize::from(utterance.failure.is_some());
                totals.failures += usize::from(utterance.failure.is_some());
                totals.refusals += usize::from(utterance.finish == Some(Finish::Refusal));
                totals.fallbacks += usize::from(!utterance.fallbacks.is_empty());
            }
        }
        let written = (totals.persona.tokens_out + totals.interlocutor.tokens_out) as f64;
        totals.timing.tokens_per_second = (totals.timing.seconds > 0.0).then(|| written / totals.timing.seconds);
        totals
    }
}

/// A rollout's wall clock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TotalsTiming {
    /// Seconds over the turns; the time between being killed and resumed is not among them.
    pub seconds: f64,
    /// Tokens written per second by this rollout alone; absent when no time passed.
    pub tokens_per_second: Option<f64>,
}

/// One line of the side file: the tokens of one message, column by column, all of one length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenLine {
    /// The turn, from 0.
    pub turn: usize,
    /// Who spoke.
    pub speaker: Speaker,
    /// Which distribution the figures were read from.
    pub basis: Basis,
    /// Vocabulary indices.
    pub ids: Vec<Option<TokenId>>,
    /// The texts; joined they are the message.
    pub text: Vec<String>,
    /// ln p, nats.
    pub logprob: Vec<Option<f32>>,
    /// Entropy of the next-token distribution, nats.
    pub entropy: Vec<Option<f32>>,
    /// How many tokens were more likely.
    pub rank: Vec<Option<u32>>,
    /// The likeliest tokens with their log-probabilities, if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<Vec<Vec<(TokenId, f32)>>>,
}

impl TokenLine {
    /// The columns of `tokens`.
    pub fn new(turn: usize, speaker: Speaker, tokens: &[TokenLogprob]) -> Self {
        let top = tokens.iter().any(|token| !token.top.is_empty());
        Self {
            turn,
            speaker,
            basis: tokens.first().map_or(Basis::Raw, |token| token.basis),
            ids: tokens.iter().map(|token| token.id).collect(),
            text: tokens.iter().map(|token| token.text.clone()).collect(),
            logprob: tokens.iter().map(|token| token.logprob).collect(),
            entropy: tokens.iter().map(|token| token.entropy).collect(),
            rank: tokens.iter().map(|token| token.rank).collect(),
            top: top.then(|| tokens.iter().map(|token| token.top.clone()).collect()),
        }
    }

    /// The tokens of the columns.
    pub fn tokens(&self) -> Vec<TokenLogprob> {
        let mut top = self.top.iter().flatten();
        self.ids
            .iter()
            .zip(&self.text)
            .zip(&self.logprob)
            .zip(&self.entropy)
            .zip(&self.rank)
            .map(|((((id, text), logprob), entropy), rank)| {
                let mut token = TokenLogprob::unknown(*id, text.clone());
                token.basis = self.basis;
                token.logprob = *logprob;
                token.entropy = *entropy;
                token.rank = *rank;
                token.top = top.next().cloned().unwrap_or_default();
                token
            })
            .collect()
    }
}
