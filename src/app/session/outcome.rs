//! What can happen to a session: the words of its log, from which it is replayed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::need::Plan;
use crate::foundation::base::Digest;
use crate::governance::statechart::hope::{
    Action, Aspects, Engagement, Event, Fit, Footer, Profile, Selection, Shape, SpecScores,
};

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum Happened {
    /// An action of the chart was performed.
    Did {
        /// Which.
        action: Action,
        /// What came of it.
        outcome: Outcome,
        /// What is told to the chart next.
        tells: Vec<Event>,
        /// Whether the session waits for the user now.
        waits: bool,
    },
    /// The chart was told something.
    Told {
        /// What.
        event: Event,
        /// Where the chart stands after it.
        leaves: Vec<String>,
        /// Why it was not taken.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        denied: Option<String>,
    },
    /// The user answered.
    Answered {
        /// What was understood.
        answer: Answer,
        /// What it says to the chart.
        event: Event,
    },
}

impl Happened {
    /// The kind of its receipt.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Did { .. } => "session.did",
            Self::Told { .. } => "session.told",
            Self::Answered { .. } => "session.answered",
        }
    }
}

/// What a user's answer says, beyond the event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Nothing beyond it.
    Plain,
    /// Choices, question by question; where there is none, the recommended one.
    Choices(Vec<Option<usize>>),
    /// Words, by digest; the text lies among the log's contents.
    Words(Digest),
    /// How densely to be asked.
    Engagement(Engagement),
    /// Another need, by digest, in the place of the one before.
    Need(Digest),
    /// Experts are asked.
    Consult(Consult),
    /// Satisfied, and the finding may be asserted: a person's word for it.
    Promote,
}

impl Answer {
    /// The digest of the user's own words, where there are any.
    pub(super) const fn words(&self) -> Option<Digest> {
        match self {
            Self::Words(digest) | Self::Need(digest) | Self::Consult(Consult { words: Some(digest), .. }) => {
                Some(*digest)
            }
            _ => None,
        }
    }
}

/// Whom the user wants to hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// One expert.
    Single,
    /// Three who differ.
    Panel,
    /// Those who find out why it is stuck.
    Unblock,
}

/// Experts are asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consult {
    /// Whom.
    pub mode: Mode,
    /// By name, if one is named.
    pub expert: Option<String>,
    /// What, by digest; the work itself if nothing is said.
    pub words: Option<Digest>,
}

/// How a piece of work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// The user is satisfied.
    Done,
    /// Nobody reviewed it.
    Unreviewed,
    /// The user cancelled it.
    Cancelled,
    /// A mustNot was broken.
    Stopped,
    /// It is stuck.
    Stuck,
}

/// What came of an action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Nothing that has to be remembered.
    Nothing,
    /// Something was told to the user.
    Spoke(Digest),
    /// What the memory holds that bears on the need.
    Known(Vec<String>),
    /// Defaults were taken.
    Assumed(Vec<String>),
    /// The specification's scores.
    Spec(SpecScores, Vec<Judged>),
    /// The aspects' columns.
    Aspects(Aspects, Vec<Judged>),
    /// Experts were heard.
    Heard(Vec<Opinion>),
    /// The shape.
    Selected(Selection),
    /// The fit.
    Fit(Fit),
    /// What is known of the expert who is asked, if there is one who may speak.
    Expert(Option<Profile>),
    /// A file was written: its name and the digest of its text.
    Wrote(String, Digest),
    /// The work was cut into items, and the brief was written anew where the plan had changed.
    Items(Vec<Item>, Option<Digest>),
    /// A wave ended.
    Wave(Vec<ItemResult>),
    /// The verify gate's checks.
    Verified(Vec<Check>),
    /// The audit's items that did not hold, and the digest of a brief that somebody else wrote into the place of ours: that
    /// interrupts.
    Audit(Vec<String>, Option<Digest>),
    /// The footer.
    Footer(Footer),
    /// The end, and what is asserted from now on.
    Concluded(Conclusion, Option<String>),
}

/// A question to a model and what its answer was worth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// What was asked.
    pub question: String,
    /// The choice; `None` where the model was not sure, and the default holds.
    pub choice: Option<String>,
    /// By how much the choice is likelier than the next, nats; `None` where it was read from words.
    pub margin: Option<f32>,
    /// Why there is no choice.
    pub unsure: Option<String>,
    /// The stronger model was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub escalated: bool,
}

/// What an expert said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Opinion {
    /// Who.
    pub expert: String,
    /// The confidence in the expert, 1 to 9.
    pub confidence: u8,
    /// For which shape, where that was asked.
    pub shape: Option<Shape>,
    /// Whether it is a BLOCKER.
    pub blocker: bool,
    /// The answer behind it.
    pub judged: Judged,
}

/// What an item of work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    /// A short rollout, to see that the models answer.
    Pilot,
    /// The rollouts.
    Rollouts,
    /// Scores from words alone.
    Measure,
    /// Scores that models take.
    Score,
    /// The run's report.
    Report,
}

/// An item of work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// What.
    pub kind: ItemKind,
    /// Items that must be done before, by place.
    pub after: Vec<usize>,
    /// Whether it is done.
    pub done: bool,
}

/// What came of an item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ItemResult {
    /// Which, by place.
    pub item: usize,
    /// Why it failed, if it did.
    pub error: Option<String>,
    /// What was found, by name. No wall clock: the same work finds the same.
    pub found: BTreeMap<String, Value>,
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A count.
    Count(u64),
    /// A score.
    Number(f64),
    /// A digest or a word.
    Text(String),
}

/// How deep a check of the verify gate goes. A tier is looked at when those before it passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// What lies there is counted.
    Quick,
    /// It is compared with what was recorded.
    Standard,
    /// It is made again.
    Thorough,
}

/// A check of the verify gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// How deep it goes.
    pub tier: Tier,
    /// The criterion.
    pub criterion: String,
    /// Whether it holds.
    pub passed: bool,
    /// What was seen.
    pub evidence: String,
}

/// What a run's report was when it was written.
pub(super) const REPORT: &str = "report.json";
/// What a criterion that must not be broken begins with.
const MUST_NOT: &str = "must not: ";

/// What the work is accepted by.
pub(super) const CRITERIA: [(Tier, &str); 10] = [
    (Tier::Quick, "every planned rollout is complete"),
    (Tier::Quick, "every planned turn was held"),
    (Tier::Quick, "the pilot, one turn, went through: the smallest case"),
    (Tier::Quick, "must not: a message without a reply"),
    (Tier::Quick, "must not: a reply from a model that was not named"),
    (Tier::Standard, "the transcripts are those that were recorded"),
    (
        Tier::Standard,
        "the scores that models took are on record as they stand in the transcripts, or why none was taken",
    ),
    (Tier::Standard, "must not: a receipt that does not follow the one before it"),
    (Tier::Thorough, "the scores come out the same when they are measured again"),
    (Tier::Thorough, "the report on the run is there and was not changed"),
];

impl Check {
    /// Whether it is one that ends the work at once.
    pub(super) fn is_broken_must_not(&self) -> bool {
        !self.passed && self.criterion.starts_with(MUST_NOT)
    }
}

/// What an item found, by name.
pub(super) type Found = BTreeMap<String, Value>;
/// The finding that something in the transcripts wants to be obeyed.
pub(super) const SUSPECT: &str = "suspect";
/// The finding that says why nothing was judged.
pub(super) const UNJUDGED: &str = "judged: not taken";

/// What a piece of work has come to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Work {
    /// Which piece of work of the session, from 1.
    pub(super) piece: u32,
    pub(super) need: String,
    pub(super) plan: Plan,
    /// What the memory holds that bears on the need.
    pub(super) known: Vec<String>,
    pub(super) words: Vec<String>,
    pub(super) assumptions: Vec<String>,
    pub(super) judged: Vec<Judged>,
    pub(super) aspects: Option<Aspects>,
    pub(super) selection: Option<Selection>,
    pub(super) panel: Vec<Opinion>,
    pub(super) items: Vec<Item>,
    /// How often the work was cut into items: each round has run folders of its own.
    pub(super) rounds: u32,
    pub(super) found: BTreeMap<ItemKind, Found>,
    pub(super) last_error: Option<String>,
    /// The shape was found too free for the work once already.
    pub(super) reshaped: bool,
    /// Objections of experts; each is put on record and answered in the report once.
    pub(super) objections: Vec<Opinion>,
    pub(super) review: Vec<Opinion>,
    pub(super) checks: Vec<Check>,
    pub(super) files: BTreeMap<String, Digest>,
    pub(super) audit: Vec<String>,
    pub(super) footer: Option<Footer>,
    pub(super) conclusion: Option<Conclusion>,
    /// Whom the user wants to hear, and what about.
    pub(super) consult: Option<(Consult, String)>,
    /// The user's word that the finding may be asserted.
    pub(super) promote: bool,
    /// What is asserted.
    pub(super) asserted: Option<String>,
}

impl Work {
    /// A piece of work of which nothing is known but the need.
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
            audit: Vec::new(),
            footer: None,
            conclusion: None,
            consult: None,
            promote: false,
            asserted: None,
        }
    }

    /// The name of a file of this piece of work: `brief.md`, then `brief-2.md`.
    pub(super) fn file(&self, name: &str) -> String {
        if self.piece == 1 { format!("{name}.md") } else { format!("{name}-{}.md", self.piece) }
    }

    /// Whether something in the transcripts wants to be obeyed.
    pub(super) fn is_suspect(&self) -> bool {
        let suspect = |kind| self.found.get(kind).is_some_and(|found| found.contains_key(SUSPECT));
        [ItemKind::Pilot, ItemKind::Rollouts].iter().any(suspect)
    }

    /// The digest of the brief, once it is written.
    pub(super) fn brief(&self) -> Option<Digest> {
        self.files.get(&self.file("brief")).copied()
    }
}
