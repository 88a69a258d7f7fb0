//! What an entry of a register is. What its type demands cannot be left out.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::foundation::base::{Digest, limits};

/// A text that says something: not blank, not longer than [`limits::MOOD_TEXT_BYTES_MAX`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Text(String);

impl Text {
    /// The text of it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Text {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let most = limits::MOOD_TEXT_BYTES_MAX;
        match text.len() {
            _ if text.trim().is_empty() => Err("an entry's text is blank: say it, or leave the entry out".to_owned()),
            length if length > most => Err(format!("an entry's text has {length} bytes, more than {most}: shorten it")),
            _ => Ok(Self(text)),
        }
    }
}

impl TryFrom<&str> for Text {
    type Error = String;

    fn try_from(text: &str) -> Result<Self, Self::Error> {
        Self::try_from(text.to_owned())
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.0
    }
}

/// A place in a text: the only form in which evidence is quoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pointer {
    /// The digest of the atom's text.
    pub atom: Digest,
    /// First byte.
    pub start_byte: u64,
    /// One past the last byte.
    pub end_byte: u64,
}

/// A verifier's word that a claim passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attestation {
    /// Which verifier.
    pub verifier: Text,
    /// In which version.
    pub version: Text,
    /// The receipt of its run.
    pub receipt: Digest,
    /// Whether it ran apart from whoever made the claim; a claim of high impact needs one that did.
    pub independent: bool,
}

/// What testing a hypothesis may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestBudget {
    /// Effects.
    pub calls: NonZeroU32,
    /// Tokens; a test that asks no model needs none.
    pub tokens: u32,
}

/// A guess that can be tested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hypothesis {
    /// What is claimed.
    pub claim: Text,
    /// Where it is claimed to hold.
    pub scope: Text,
    /// The test that tells it from its rivals.
    pub test: Text,
    /// What the test may cost.
    pub budget: TestBudget,
    /// When it becomes an assertion.
    pub promotion_rule: Text,
    /// How much depends on it.
    pub impact: Impact,
}

/// A hypothesis that passed. It keeps what it was, so that it can be demoted to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assertion {
    /// What passed.
    pub hypothesis: Hypothesis,
    /// The first piece of evidence; there is at least one.
    pub evidence: Pointer,
    /// More of it.
    pub more_evidence: Vec<Pointer>,
    /// The verifier's word.
    pub attestation: Attestation,
}

impl Assertion {
    pub(super) fn pointers(&self) -> impl Iterator<Item = &Pointer> {
        std::iter::once(&self.evidence).chain(&self.more_evidence)
    }
}

/// What is wanted. Explicit and versioned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drive {
    /// What comes first.
    pub priority: Text,
    /// What is given up for it.
    pub trade_off: Text,
    /// What must not be wanted.
    pub anti_drive: Text,
    /// From 1; a change names the next one.
    pub version: u32,
}

/// How sure a belief is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// A guess.
    Low,
    /// Seen.
    Medium,
    /// Seen often, and never otherwise.
    High,
}

/// What a belief does to what can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Believed {
    /// Less can be done than was thought.
    Tightens,
    /// More.
    Widens,
}

/// What is taken for granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Belief {
    /// What.
    pub prior: Text,
    /// How surely.
    pub tier: Tier,
    /// What would change it.
    pub update_trigger: Text,
    /// What it does.
    pub effect: Believed,
}

/// Why something cannot be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Invisible {
    /// No data.
    Data,
    /// No tool.
    Tool,
    /// No permission.
    Permission,
    /// Too dear.
    Cost,
    /// No agreed meaning.
    Semantics,
    /// Somebody hides it.
    Adversary,
}

/// How much depends on something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Impact {
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
}

/// A known blind spot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hyperthesis {
    /// What cannot be seen.
    pub blind_spot: Text,
    /// Why not.
    pub why: Invisible,
    /// What it could do.
    pub risk: Text,
    /// How much depends on it.
    pub impact: Impact,
    /// What bounds the damage, if anything does.
    pub bound: Option<Text>,
}

impl Hyperthesis {
    /// Severe: much depends on it and nothing bounds it.
    pub fn is_severe(&self) -> bool {
        self.impact == Impact::High && self.bound.is_none()
    }
}

/// A guess about the whole, with its own edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conjecture {
    /// What is claimed.
    pub claim: Text,
    /// What would tell.
    pub test: Text,
    /// How it could be wrong without anybody noticing.
    pub edge: Text,
    /// ΔO: the smallest better instrument that shrinks the edge.
    pub observer_upgrade: Text,
    /// Where it is claimed to hold.
    pub scope: Text,
}

/// A successful challenge to a pending promotion, on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// Of which atom.
    pub atom: Digest,
    /// Why.
    pub grounds: Text,
    /// On what evidence.
    pub evidence: Pointer,
    /// What would settle it.
    pub settled_by: Text,
}
