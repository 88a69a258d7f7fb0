//! One turn of a transcript: both messages, and everything that led to them.

use serde::{Deserialize, Serialize};

use super::TokenSummary;
use crate::foundation::base::Digest;
use crate::foundation::chat::{DeltaGains, Finish, Hosted, Reading, TokenId, Usage};
use crate::governance::regulator::{Ruling, TurnReading};
use crate::simulation::persona::{AdversaryKind, Dropped, InjectionKind, Speaker};
use crate::simulation::rollout::monitors::Finding;

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
    /// Questions that were put to the persona after this turn, in a fork that nobody remembers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<Probe>,
    /// What the monitors found in drafts of this turn, in order.
    pub monitor_events: Vec<MonitorEvent>,
    /// Wall clock.
    pub timing: TurnTiming,
}

/// A question to the persona that is no part of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// What was asked.
    pub question: String,
    /// What the persona's model answered; absent when it failed.
    pub answer: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// Why there is no answer.
    pub why: Option<String>,
    /// Tokens read and written for it; they are not among the rollout's totals.
    pub usage: TokenCount,
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
    /// What was left out for lack of room; empty where the whole prompt is not given to the model in this turn.
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
    /// About the provider; absent where no hosted model was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosted: Option<HostedRecord>,
    /// The reply's tokens in figures; the tokens themselves are in the side file.
    pub tokens: TokenSummary,
    /// How good the message is as far as its words tell: what its regulator was fed back. Absent where nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quality: Option<MeasuredQuality>,
    /// What the regulator made of it. It is told neither wall-clock time nor cached tokens, so both are 0 here.
    pub regulator: Regulated,
    /// What was done on the regulator's word, in order; nothing under `policy: observe`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interventions: Vec<Intervention>,
    /// Wall clock.
    pub timing: UtteranceTiming,
}

/// How good a message is, as far as its words alone tell while a rollout runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MeasuredQuality {
    /// In [0, 1]: one less the worst of the three below, as far as it is beyond what is usual between people.
    pub value: f64,
    /// The share of its runs of three words that the persona's last six messages hold.
    pub repeated: f64,
    /// The share of them that the message which it answers holds.
    pub echoed: f64,
    /// The share of the persona's last six messages, this one included, that hold a phrase of agreement.
    pub agreeing: f64,
}

/// Something that was done on the regulator's word.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Intervention {
    /// In which attempt.
    pub attempt: usize,
    /// What.
    #[serde(flatten)]
    pub act: Act,
}

/// What can be done on the regulator's word within a message. What ends a rollout stands in its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Act {
    /// The model was told, before it spoke, what it had been corrected for again and again.
    Prelude {
        /// What it was told.
        told: String,
    },
    /// The reply was ended in mid-stream.
    StopEarly {
        /// Why, as the regulator names it.
        decision: String,
    },
    /// The model was asked again because it found parts of this draft unlikely itself.
    Regenerate {
        /// The parts.
        spans: Vec<String>,
        /// What it was told.
        told: String,
    },
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
    /// What of the persona's it was to quote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<Quote>,
}

/// Something that the persona said, as an adversary holds it up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quote {
    /// In which turn it was said.
    pub turn: usize,
    /// What was said, word for word.
    pub said: String,
    /// What is quoted: the same, or deliberately something else.
    pub quoted: String,
    /// Whether `quoted` is `said`.
    pub exact: bool,
}

/// What is known of the hosted model behind a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostedRecord {
    /// The model, as the provider names it in its last answer.
    pub served: Option<String>,
    /// The list price of all attempts' tokens, US dollars, replayed ones included; absent where any of it is unknown.
    pub cost_usd: Option<f64>,
    /// What was asked for and not given, each with why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

impl HostedRecord {
    /// One more attempt was answered.
    pub(in super::super) fn add(record: &mut Option<Self>, hosted: &Hosted) {
        let before = record.take().map_or(Some(0.0), |record| record.cost_usd);
        *record = Some(Self {
            served: hosted.served.clone(),
            cost_usd: before.zip(hosted.cost_usd).map(|(before, cost)| before + cost),
            left_out: hosted.left_out.clone(),
        });
    }
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
    /// Attempts that were read from the response cache: nobody was asked.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replayed: u32,
    /// How often requests were sent again, over all attempts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resent: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// How long a turn took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnTiming {
    /// Wall clock, seconds.
    pub seconds: f64,
}
