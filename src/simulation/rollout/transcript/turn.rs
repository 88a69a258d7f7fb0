//! One turn of a transcript: both messages, and how they were produced.

use serde::{Deserialize, Serialize};

use super::TokenSummary;
use crate::foundation::base::Digest;
use crate::foundation::chat::{DeltaGains, Finish, HostedInfo, PrefixReuse, ThoughtEnd, TokenId, Usage};
use crate::governance::regulator::{ConfidenceBasis, RankedDecision, TurnStats};
use crate::simulation::persona::{AdversaryKind, DroppedItem, InjectionKind, Speaker, ToldState};
use crate::simulation::rollout::monitors::MonitorFinding;

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
    /// The assembled prompt.
    pub prompt: PromptRecord,
    /// The instructions added to the persona's history in this turn, in order. Those of rejected drafts are in
    /// [`Utterance::attempts`] instead.
    pub injected: Vec<String>,
    /// Gains on Δ for the persona's model; absent is no modulation.
    pub gains: Option<DeltaGains>,
    /// Where old messages were dropped from a model's window.
    pub slides: Vec<WindowTrim>,
    /// The persona's message.
    pub persona: Utterance,
    /// The interlocutor's message.
    pub interlocutor: Utterance,
    /// Questions put to a fork of the persona after this turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<Probe>,
    /// The monitors' findings in drafts of this turn, in order.
    pub monitor_events: Vec<MonitorEvent>,
    /// Wall clock.
    pub timing: TurnTiming,
}

/// A question to the persona outside the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The question.
    pub question: String,
    /// The answer of the persona's model; absent if it failed.
    pub answer: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// Why there is no answer.
    pub why: Option<String>,
    /// Its input and output tokens; not included in the rollout's totals.
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

/// The prompt of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptRecord {
    /// `full`, `reminder`, `change` or `none`.
    pub injection: InjectionKind,
    /// What the newest instruction before the persona's model names: the phase and the levels. Absent in transcripts of
    /// other programs and of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<ToldState>,
    /// The digest of the full assembled prompt, whether or not it was given.
    pub digest: Digest,
    /// The version of the templates.
    pub template_version: u32,
    /// Items omitted because of the prompt budget or because they speak about the simulation; empty if no instruction was
    /// given in this turn.
    pub dropped: Vec<DroppedItem>,
}

/// The oldest messages were dropped from a model's window. The system prompt stays; everything else was processed again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowTrim {
    /// The side whose model it is.
    pub speaker: Speaker,
    /// How many messages were dropped.
    pub messages: usize,
    /// The prompt's length before, tokens.
    pub tokens_before: usize,
    /// And after.
    pub tokens_after: usize,
}

/// One side's message in one turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Utterance {
    /// The speaker.
    pub speaker: Speaker,
    /// The adversary's move; absent for the persona and a plain target.
    pub adversary: Option<AdversaryMove>,
    /// The text exactly as generated; after a failure or an empty refusal the placeholder of `docs/FORMATS.md`.
    pub content: String,
    /// What its model thought before it; the other side does not see it. Absent if it did not think.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thought: Option<ThoughtRecord>,
    /// Its token ids, if known.
    pub ids: Option<Vec<TokenId>>,
    /// The model that replied; absent after a failure.
    pub model: Option<String>,
    /// The models tried before it, each with the reason it did not reply.
    pub fallbacks: Vec<ModelFallback>,
    /// Why the reply ended; absent after a failure.
    pub finish: Option<Finish>,
    /// Why there is no reply.
    pub failure: Option<ReplyFailure>,
    /// Which attempt this is, from 0.
    pub attempt: usize,
    /// The instruction for this attempt, which stays in the history.
    pub instruction: Option<String>,
    /// The rejected attempts, in order of [`Attempt::index`].
    pub attempts: Vec<Attempt>,
    /// Input and output tokens over all attempts.
    pub usage: TokenCount,
    /// Information from the provider; absent if no hosted model was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosted: Option<HostedRecord>,
    /// Statistics of the reply's tokens; the tokens themselves are in the side file.
    pub tokens: TokenSummary,
    /// The measured quality given to the regulator; absent if not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quality: Option<MeasuredQuality>,
    /// The regulator's state after it. Wall-clock time and cached tokens are not given to it, so both are 0 here.
    pub regulator: RegulatorRecord,
    /// The interventions of the regulator, in order; empty under `policy: observe`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interventions: Vec<Intervention>,
    /// What samples of the same message say of it; absent if it was not flagged, or none were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resampled: Option<Resampled>,
    /// Wall clock.
    pub timing: UtteranceTiming,
}

/// What a model thought before a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThoughtRecord {
    /// The text between the markers.
    pub content: String,
    /// The token ids that were generated before the message, markers included; absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<TokenId>>,
    /// How it ended.
    pub end: ThoughtEnd,
    /// Statistics of its tokens; the tokens themselves are in the side file.
    pub tokens: TokenSummary,
    /// The regulator's confidence in the thought alone, in [0, 1]; that in the message does not include it.
    pub confidence: Option<f64>,
    /// Where `confidence` comes from.
    pub confidence_basis: Option<ConfidenceBasis>,
}

/// What samples of a flagged message say of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resampled {
    /// Why the message was flagged: the regulator's decisions and the monitors.
    pub flagged_by: Vec<String>,
    /// What was said instead, with the number of its meaning; 0 is that of the message.
    pub samples: Vec<ResampledMessage>,
    /// Entropy of the samples' meanings, nats; 0 if all mean the same.
    pub semantic_entropy: Option<f64>,
    /// Share of the samples with the very words of the message.
    pub answer_frequency: Option<f64>,
    /// Share of the samples with the most frequent meaning.
    pub self_consistency: Option<f64>,
    /// `CoCoA`: the message's mean negative log-probability times how unlike it the samples are.
    pub cocoa_ppl: Option<f64>,
    /// Why there are no samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Tokens read and written for this, which count against the regulator's caps and are not in [`Utterance::usage`].
    pub tokens: u64,
}

/// One sample of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResampledMessage {
    /// What it says.
    pub content: String,
    /// The number of its meaning.
    pub meaning: usize,
}

/// The quality of a message, measured from its words while a rollout runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MeasuredQuality {
    /// In [0, 1]: 1 minus the largest excess of the three values below over what is usual between people.
    pub value: f64,
    /// The share of its trigrams that occur in the persona's last six messages.
    pub repeated: f64,
    /// The share of its trigrams that occur in the message it answers.
    pub echoed: f64,
    /// The share of the persona's last six messages, including this one, that contain a phrase of agreement.
    pub agreeing: f64,
}

/// An intervention of the regulator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Intervention {
    /// The attempt it applies to.
    pub attempt: usize,
    /// What was done.
    #[serde(flatten)]
    pub act: InterventionKind,
}

/// The kinds of intervention within a message. A circuit break is recorded in the rollout's outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
#[non_exhaustive]
pub enum InterventionKind {
    /// The model was given its recurring corrections before its reply.
    Prelude {
        /// The instruction.
        told: String,
    },
    /// The reply was stopped while it was generated.
    StopEarly {
        /// The kind of decision that stopped it.
        decision: String,
    },
    /// Another draft was requested because of low-confidence spans.
    Regenerate {
        /// The spans.
        spans: Vec<String>,
        /// The instruction.
        told: String,
    },
}

/// The regulator's state after a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RegulatorRecord {
    /// Its measurements.
    pub reading: TurnStats,
    /// Its decisions, the most urgent first; only `continue` if there is no reason to intervene.
    pub decisions: Vec<RankedDecision>,
}

/// An adversary's move in one message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdversaryMove {
    /// Which adversary.
    pub kind: AdversaryKind,
    /// The strategy's name.
    pub strategy: String,
    /// The instruction for this message.
    pub instruction: String,
    /// The quotation it was to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<Quote>,
}

/// A quotation of the persona by an adversary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quote {
    /// The turn of the quoted message.
    pub turn: usize,
    /// The original sentence.
    pub said: String,
    /// The quotation: the same, or deliberately altered.
    pub quoted: String,
    /// Whether `quoted` is `said`.
    pub exact: bool,
}

/// Information about the hosted model that produced a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostedRecord {
    /// The model name in the provider's last response.
    pub served: Option<String>,
    /// The list price of all attempts' tokens, US dollars, including replayed ones; absent if any price is unknown.
    pub cost_usd: Option<f64>,
    /// Requested features that were not provided, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

impl Turn {
    /// What is prescribed at this turn.
    pub fn prescribed(&self) -> ToldState {
        let levels = self.intensities.iter().map(|intensity| (intensity.dimension.as_str(), intensity.value));
        ToldState::new(self.phase.as_deref(), levels)
    }

    /// Whether the newest instruction names another phase or level than prescribed; `None` where it is not recorded.
    pub fn told_differs(&self) -> Option<bool> {
        self.prompt.told.as_ref().map(|told| *told != self.prescribed())
    }

    /// What the newest instruction names beside what is prescribed, in words; `None` where it is not recorded or names
    /// nothing.
    pub fn told_beside_prescribed(&self) -> Option<String> {
        let told = self.prompt.told.as_ref().map(ToString::to_string).filter(|told| !told.is_empty())?;
        let prescribed = self.prescribed().to_string();
        if told == prescribed {
            Some(format!("told as prescribed: {told}"))
        } else {
            Some(format!("told: {told}; prescribed: {prescribed}"))
        }
    }
}

impl HostedRecord {
    /// Adds one attempt's response.
    pub(in super::super) fn add(record: &mut Option<Self>, hosted: &HostedInfo) {
        let before = record.take().map_or(Some(0.0), |record| record.cost_usd);
        *record = Some(Self {
            served: hosted.served.clone(),
            cost_usd: before.zip(hosted.cost_usd).map(|(before, cost)| before + cost),
            left_out: hosted.left_out.clone(),
        });
    }
}

/// A model that did not reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFallback {
    /// Its spec string.
    pub model: String,
    /// The reason.
    pub why: String,
}

/// Why there is no reply after all attempts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyFailure {
    /// The last attempt's reason.
    pub why: String,
}

/// A rejected attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// From 0.
    pub index: usize,
    /// The generated text; empty if the model failed.
    pub content: String,
    /// The instruction for this attempt.
    pub instruction: Option<String>,
    /// Why the reply ended.
    pub finish: Option<Finish>,
    /// Why there is no reply.
    pub error: Option<String>,
}

/// A monitor's finding and its consequence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MonitorEvent {
    /// The attempt of the persona's message.
    pub attempt: usize,
    /// The consequence.
    pub action: MonitorAction,
    /// The finding.
    #[serde(flatten)]
    pub finding: MonitorFinding,
}

/// The consequence of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MonitorAction {
    /// Another draft was requested.
    Redraft,
    /// The draft was accepted despite the finding: no retry was left, or no other draft was better.
    Accepted,
    /// The finding was made afterwards, in a conversation that was finished.
    Observed,
}

impl MonitorAction {
    /// Whether the message with the finding is part of the conversation.
    pub fn is_final(self) -> bool {
        self != Self::Redraft
    }
}

/// Input and output tokens. Cached tokens depend on scheduling and are in `timing`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenCount {
    /// The prompts' tokens, cached or not.
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

/// The time a message took, and how much of its prompt was cached.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UtteranceTiming {
    /// Wall clock over all attempts, seconds.
    pub seconds: f64,
    /// How much of the accepted attempt's prompt was reused.
    pub reading: Option<PrefixReuse>,
    /// Cached prompt tokens over all attempts.
    pub tokens_cached: u64,
    /// Attempts served from the response cache without a request.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replayed: u32,
    /// Resent requests over all attempts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resent: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// The time a turn took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnTiming {
    /// Wall clock, seconds.
    pub seconds: f64,
}
