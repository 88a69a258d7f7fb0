//! The events of a session's log, from which it is replayed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(super) use super::judgement::ModelJudgement;
use super::model_reading::ModelReading;
use super::need::Plan;
use crate::foundation::base::Digest;
use crate::governance::statechart::hope::{
    Action, Aspects, Engagement, Event, ExpertProfile, FitScore, Footer, Shape, ShapeSelection, SpecScores,
};

/// An event of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum SessionEvent {
    /// An action of the chart was performed.
    #[serde(rename = "did")]
    ActionDone {
        /// The action.
        action: Action,
        /// Its outcome.
        outcome: ActionOutcome,
        /// The events to send to the chart next.
        #[serde(rename = "tells")]
        next_events: Vec<Event>,
        /// Whether the session waits for the user now.
        waits: bool,
    },
    /// An event was sent to the chart.
    #[serde(rename = "told")]
    EventSent {
        /// The event.
        event: Event,
        /// The chart's active leaves after it.
        leaves: Vec<String>,
        /// Why the chart rejected it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        denied: Option<String>,
    },
    /// The user answered.
    Answered {
        /// The parsed answer.
        answer: Answer,
        /// The event for the chart.
        event: Event,
    },
}

impl SessionEvent {
    /// The kind of its receipt.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::ActionDone { .. } => "session.did",
            Self::EventSent { .. } => "session.told",
            Self::Answered { .. } => "session.answered",
        }
    }
}

/// The content of a user's answer, in addition to the event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// No content.
    Plain,
    /// The choice of each question; `None` is the recommended one.
    Choices(Vec<Option<usize>>),
    /// Text, by digest; the text is stored in the log's contents.
    Words(Digest),
    /// How many questions to ask.
    Engagement(Engagement),
    /// A need that replaces the current one, by digest.
    Need(Digest),
    /// A question to experts.
    Consult(Consult),
    /// The user is satisfied and approves the assertion of the finding.
    Promote,
}

impl Answer {
    /// The digest of the user's text, if there is one.
    pub(super) const fn words(&self) -> Option<Digest> {
        match self {
            Self::Words(digest) | Self::Need(digest) | Self::Consult(Consult { words: Some(digest), .. }) => {
                Some(*digest)
            }
            _ => None,
        }
    }
}

/// The kind of a consultation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConsultMode {
    /// One expert.
    Single,
    /// A panel of three.
    Panel,
    /// A panel that diagnoses why the work is stuck.
    Unblock,
}

/// A question to experts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consult {
    /// The kind of consultation.
    pub mode: ConsultMode,
    /// The name of the expert, if given.
    pub expert: Option<String>,
    /// The digest of the question; about the work itself if absent.
    pub words: Option<Digest>,
}

/// How a piece of work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// Accepted by the user.
    Done,
    /// Not reviewed by the user.
    Unreviewed,
    /// Cancelled by the user.
    Cancelled,
    /// The verification did not pass at the end.
    Unverified,
    /// A "must not" criterion was violated.
    Stopped,
    /// The work is stuck.
    Stuck,
}

/// The outcome of an action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionOutcome {
    /// Nothing to remember.
    Nothing,
    /// A message to the user, by digest.
    Spoke(Digest),
    /// Entries of the memory about the need.
    Known(Vec<String>),
    /// The need as the model reads it.
    Read(ModelReading),
    /// Accepted defaults.
    Assumed(Vec<String>),
    /// Scores of the specification.
    Spec(SpecScores, Vec<ModelJudgement>),
    /// Scores of the aspects.
    Aspects(Aspects, Vec<ModelJudgement>),
    /// Opinions of experts.
    Heard(Vec<ExpertOpinion>),
    /// The selected shape.
    Selected(ShapeSelection),
    /// The fit score.
    Fit(FitScore),
    /// The profile of the expert asked, if one may answer.
    Expert(Option<ExpertProfile>),
    /// A written file: name and digest.
    Wrote(String, Digest),
    /// The work items, and the digest of the brief if it was rewritten.
    Items(Vec<WorkItem>, Option<Digest>),
    /// The results of a wave.
    Wave(Vec<WorkItemResult>),
    /// The checks of the verification.
    Verified(Vec<VerifyCheck>),
    /// The digest of a brief changed by someone else, which interrupts the work.
    Audit(Option<Digest>),
    /// The footer.
    Footer(Footer),
    /// The conclusion, the asserted finding, and the checks at that time.
    Concluded(Conclusion, Option<String>, Vec<VerifyCheck>),
}

/// An expert's opinion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExpertOpinion {
    /// The expert's name.
    pub expert: String,
    /// The confidence in the expert, 1 to 9.
    pub confidence: u8,
    /// The recommended shape, if that was the question.
    pub shape: Option<Shape>,
    /// Whether it is a blocking objection.
    pub blocker: bool,
    /// The model's answer.
    pub judged: ModelJudgement,
}

/// The kind of a work item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkItemKind {
    /// A short rollout that tests whether the models reply.
    Pilot,
    /// The planned rollouts.
    Rollouts,
    /// The planned rollouts of the second arm of a comparison.
    Baseline,
    /// Scores measured from words.
    Measure,
    /// Scores taken by models.
    Score,
    /// The comparison of the two arms.
    Compare,
    /// The report of the run.
    Report,
}

impl WorkItemKind {
    /// The name of its run's folder, after the number of the round.
    pub(super) const fn folder(self) -> &'static str {
        match self {
            Self::Pilot => "pilot",
            Self::Baseline => "baseline",
            _ => "rollouts",
        }
    }
}

/// A work item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkItem {
    /// The event.
    pub kind: WorkItemKind,
    /// Indices of the items it depends on.
    pub after: Vec<usize>,
    /// Whether it is done.
    pub done: bool,
}

/// The result of a work item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkItemResult {
    /// The index of the item.
    pub item: usize,
    /// The error, if it failed.
    pub error: Option<String>,
    /// The found values by name. No times: equal work gives equal values.
    pub found: BTreeMap<String, FoundValue>,
}

/// A found value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FoundValue {
    /// A count.
    Count(u64),
    /// A score.
    Number(f64),
    /// A digest or a text.
    Text(String),
}

/// The depth of a check. A tier runs only if the previous ones passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerifyTier {
    /// Results are counted.
    Quick,
    /// Results are compared with the records.
    Standard,
    /// Results are computed again.
    Thorough,
}

/// A check of the verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyCheck {
    /// The tier.
    pub tier: VerifyTier,
    /// The criterion.
    pub criterion: String,
    /// Whether it passed.
    pub passed: bool,
    /// The evidence.
    pub evidence: String,
}

/// The file of a run's report.
pub(super) const REPORT: &str = "report.json";
/// The prefix of criteria whose violation ends the work.
const MUST_NOT: &str = "must not: ";

/// The acceptance criteria.
pub(super) const CRITERIA: [(VerifyTier, &str); 11] = [
    (VerifyTier::Quick, "every planned rollout is complete"),
    (VerifyTier::Quick, "every planned turn was played"),
    (VerifyTier::Quick, "the pilot of one turn was completed"),
    (VerifyTier::Quick, "must not: a message that got no reply"),
    (VerifyTier::Quick, "must not: a reply from a fallback model"),
    (VerifyTier::Standard, "the transcripts are unchanged since they were recorded"),
    (
        VerifyTier::Standard,
        "the recorded scores of the models match the transcripts, and missing scores have a recorded reason",
    ),
    (VerifyTier::Standard, "must not: a gap or a change in the chain of receipts"),
    (VerifyTier::Standard, "the registered plan is unchanged and older than the rollouts"),
    (VerifyTier::Thorough, "measuring the scores again gives the same values"),
    (VerifyTier::Thorough, "the report on the run exists and is unchanged"),
];

impl VerifyCheck {
    /// Whether it is a violated "must not" criterion, which ends the work.
    pub(super) fn is_broken_must_not(&self) -> bool {
        !self.passed && self.criterion.starts_with(MUST_NOT)
    }
}

/// A count with its noun.
pub(super) fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Whether all criteria were checked and hold.
pub(super) fn all_hold(checks: &[VerifyCheck]) -> bool {
    checks.len() == CRITERIA.len() && checks.iter().all(|check| check.passed)
}

/// The criteria that do not hold, with their evidence.
pub(super) fn failed(checks: &[VerifyCheck]) -> String {
    let failed = checks.iter().filter(|check| !check.passed);
    failed.map(|check| format!("{} ({})", check.criterion, check.evidence)).collect::<Vec<_>>().join("; ")
}

/// The values found by an item, by name.
pub(super) type Found = BTreeMap<String, FoundValue>;
/// The name of the value that reports a suspicious reply (one that gives instructions to its reader).
pub(super) const SUSPECT: &str = "suspect";
/// The name of the value that says why there are no ratings.
pub(super) const UNJUDGED: &str = "judged: not taken";

/// The state of a piece of work.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Work {
    /// The number of this piece of work in the session, from 1.
    pub(super) piece: u32,
    pub(super) need: String,
    pub(super) plan: Plan,
    /// Entries of the memory about the need.
    pub(super) known: Vec<String>,
    pub(super) words: Vec<String>,
    pub(super) assumptions: Vec<String>,
    pub(super) judged: Vec<ModelJudgement>,
    pub(super) aspects: Option<Aspects>,
    pub(super) selection: Option<ShapeSelection>,
    pub(super) panel: Vec<ExpertOpinion>,
    pub(super) items: Vec<WorkItem>,
    /// Number of rounds of work items; each has its own run folders.
    pub(super) rounds: u32,
    pub(super) found: BTreeMap<WorkItemKind, Found>,
    pub(super) last_error: Option<String>,
    /// The shape was already found too free once.
    pub(super) reshaped: bool,
    /// Objections of experts; each is recorded and answered in the report once.
    pub(super) objections: Vec<ExpertOpinion>,
    pub(super) review: Vec<ExpertOpinion>,
    pub(super) checks: Vec<VerifyCheck>,
    pub(super) files: BTreeMap<String, Digest>,
    pub(super) footer: Option<Footer>,
    pub(super) conclusion: Option<Conclusion>,
    /// The requested consultation and its question.
    pub(super) consult: Option<(Consult, String)>,
    /// The user's approval to assert the finding.
    pub(super) promote: bool,
    /// The asserted finding.
    pub(super) asserted: Option<String>,
}

impl Work {
    /// A new piece of work.
    pub(super) const fn new(piece: u32, need: String, plan: Plan) -> Self {
        Self {
            piece,
            need,
            plan,
            known: Vec::new(),
            words: Vec::new(),
            assumptions: Vec::new(),
            judged: Vec::new(),
            aspects: None,
            selection: None,
            panel: Vec::new(),
            items: Vec::new(),
            rounds: 0,
            found: BTreeMap::new(),
            last_error: None,
            reshaped: false,
            objections: Vec::new(),
            review: Vec::new(),
            checks: Vec::new(),
            files: BTreeMap::new(),
            footer: None,
            conclusion: None,
            consult: None,
            promote: false,
            asserted: None,
        }
    }

    /// The file name for this piece of work: `brief.md`, then `brief-2.md`.
    pub(super) fn file(&self, name: &str) -> String {
        if self.piece == 1 { format!("{name}.md") } else { format!("{name}-{}.md", self.piece) }
    }

    /// Whether the transcripts hold a suspicious reply.
    pub(super) fn is_suspect(&self) -> bool {
        let suspect = |kind| self.found.get(kind).is_some_and(|found| found.contains_key(SUSPECT));
        [WorkItemKind::Pilot, WorkItemKind::Rollouts, WorkItemKind::Baseline].iter().any(suspect)
    }

    /// The digest of the brief, once it is written.
    pub(super) fn brief(&self) -> Option<Digest> {
        self.files.get(&self.file("brief")).copied()
    }
}

/// The values of the second arm of a comparison are named so.
pub(super) fn named_by_arm(run: WorkItemKind, found: Found) -> Found {
    if run != WorkItemKind::Baseline {
        return found;
    }
    found.into_iter().map(|(name, value)| (format!("B: {name}"), value)).collect()
}

/// The name of a file of this round, such as `registration-01.json`.
pub(super) fn numbered(name: &str, round: u32, ending: &str) -> String {
    format!("{name}-{round:02}.{ending}")
}
