//! The entries of the registers. Their types enforce the required parts.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::foundation::base::{Digest, limits};

/// A text that is not blank and not longer than [`limits::MOOD_TEXT_BYTES_MAX`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct EntryText(String);

impl EntryText {
    /// The text as a string slice.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for EntryText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let most = limits::MOOD_TEXT_BYTES_MAX;
        match text.len() {
            _ if text.trim().is_empty() => Err("an entry's text is blank: fill it in, or remove the entry".to_owned()),
            length if length > most => Err(format!("an entry's text has {length} bytes, more than {most}: shorten it")),
            _ => Ok(Self(text)),
        }
    }
}

impl TryFrom<&str> for EntryText {
    type Error = String;

    fn try_from(text: &str) -> Result<Self, Self::Error> {
        Self::try_from(text.to_owned())
    }
}

impl From<EntryText> for String {
    fn from(text: EntryText) -> Self {
        text.0
    }
}

/// A range in a text: the only form in which evidence is cited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EvidencePointer {
    /// The digest of the atom's text.
    pub atom: Digest,
    /// First byte.
    pub start_byte: u64,
    /// The end, exclusive.
    pub end_byte: u64,
}

/// The statement of a verifier that a claim passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attestation {
    /// The verifier.
    pub verifier: EntryText,
    /// Its version.
    pub version: EntryText,
    /// The receipt of its run.
    pub receipt: Digest,
    /// Whether it ran independently of the author of the claim; required for claims of high impact.
    pub independent: bool,
}

/// The budget of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestBudget {
    /// The number of effects.
    pub calls: NonZeroU32,
    /// The number of tokens; 0 for a test without a model.
    pub tokens: u32,
}

/// A testable guess.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hypothesis {
    /// The claim.
    pub claim: EntryText,
    /// The scope of the claim.
    pub scope: EntryText,
    /// The test that distinguishes it from its rivals.
    pub test: EntryText,
    /// The budget of the test.
    pub budget: TestBudget,
    /// The condition for promoting it to an assertion.
    pub promotion_rule: EntryText,
    /// The impact.
    pub impact: ImpactLevel,
}

/// A hypothesis that passed. The hypothesis is stored so that it can be demoted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assertion {
    /// The hypothesis.
    pub hypothesis: Hypothesis,
    /// The evidence; at least one pointer.
    pub evidence: EvidencePointer,
    /// Further evidence.
    pub more_evidence: Vec<EvidencePointer>,
    /// The attestation of the verifier.
    pub attestation: Attestation,
}

impl Assertion {
    pub(super) fn pointers(&self) -> impl Iterator<Item = &EvidencePointer> {
        std::iter::once(&self.evidence).chain(&self.more_evidence)
    }
}

/// A goal, explicit and versioned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drive {
    /// The priority.
    pub priority: EntryText,
    /// What is given up for it.
    pub trade_off: EntryText,
    /// What is explicitly not a goal.
    pub anti_drive: EntryText,
    /// From 1; a change must have the next version.
    pub version: u32,
}

/// The confidence in a belief.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BeliefTier {
    /// A guess.
    Low,
    /// Observed.
    Medium,
    /// Observed often, without exception.
    High,
}

/// The effect of a belief on what is considered feasible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BeliefEffect {
    /// Less is feasible than assumed.
    Tightens,
    /// More is feasible than assumed.
    Widens,
}

/// An assumption.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Belief {
    /// The assumption.
    pub prior: EntryText,
    /// The confidence.
    pub tier: BeliefTier,
    /// What would change it.
    pub update_trigger: EntryText,
    /// Its effect.
    pub effect: BeliefEffect,
}

/// Why something cannot be observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlindSpotCause {
    /// No data.
    Data,
    /// No tool.
    Tool,
    /// No permission.
    Permission,
    /// Too expensive.
    Cost,
    /// No agreed meaning.
    Semantics,
    /// An adversary hides it.
    Adversary,
}

/// The impact of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImpactLevel {
    /// Low.
    Low,
    /// Medium.
    Medium,
    /// High.
    High,
}

/// A known blind spot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlindSpot {
    /// What cannot be observed.
    pub blind_spot: EntryText,
    /// The cause.
    pub why: BlindSpotCause,
    /// The risk.
    pub risk: EntryText,
    /// The impact.
    pub impact: ImpactLevel,
    /// What limits the damage, if anything.
    pub bound: Option<EntryText>,
}

impl BlindSpot {
    /// Severe: high impact without a bound.
    pub fn is_severe(&self) -> bool {
        self.impact == ImpactLevel::High && self.bound.is_none()
    }
}

/// A conjecture about the whole, with its blind edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conjecture {
    /// The claim.
    pub claim: EntryText,
    /// The test.
    pub test: EntryText,
    /// How it could be wrong without being noticed.
    pub edge: EntryText,
    /// ΔO: the smallest better instrument that shrinks the edge.
    pub observer_upgrade: EntryText,
    /// The scope of the claim.
    pub scope: EntryText,
}

/// A successful challenge to a pending promotion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// The atom.
    pub atom: Digest,
    /// The grounds.
    pub grounds: EntryText,
    /// The evidence.
    pub evidence: EvidencePointer,
    /// What would settle it.
    pub settled_by: EntryText,
}
