//! What is asserted, guessed, wanted and believed (AHDB), with blind spots and conjectures: typed, and merged by id.
//!
//! A change puts one entry or moves it; nothing replaces a register. What the types demand cannot be left out: there is no
//! hypothesis without a test and a budget, no assertion without evidence and a verifier's word.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::atom::{Atom, AtomError, AtomEvent, AtomState, Challenge};
use super::matrix::{Admission, Register, admission};
use super::name::Mood;
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
    fn pointers(&self) -> impl Iterator<Item = &Pointer> {
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

/// The registers of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Registers {
    /// What is being shown in thirty seconds when the work is done.
    pub demo: Option<Text>,
    /// ASSERT.
    pub assert: BTreeMap<Text, Assertion>,
    /// HYPOTHESIZE.
    pub hypothesize: BTreeMap<Text, Hypothesis>,
    /// DRIVE.
    pub drive: BTreeMap<Text, Drive>,
    /// BELIEVE.
    pub believe: BTreeMap<Text, Belief>,
    /// HYPERTHESIS.
    pub hyperthesis: BTreeMap<Text, Hyperthesis>,
    /// CONJECTURES.
    pub conjectures: BTreeMap<Text, Conjecture>,
    /// Atoms by the digest of their text.
    pub atoms: BTreeMap<Digest, Atom>,
    /// Challenges.
    pub challenges: BTreeMap<Text, Challenge>,
    /// Hypotheses that rest on what the model itself found unlikely.
    pub doubted: BTreeSet<Text>,
}

/// A change of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Say what the demo is.
    Demo(Text),
    /// Guess.
    Hypothesize(Text, Hypothesis),
    /// Make a hypothesis an assertion.
    Assert {
        /// Which.
        id: Text,
        /// On what evidence.
        evidence: Pointer,
        /// And what more.
        more_evidence: Vec<Pointer>,
        /// On whose word.
        attestation: Attestation,
    },
    /// Make an assertion a hypothesis again.
    Demote(Text),
    /// Drop a hypothesis that failed its test.
    Refute(Text),
    /// Want.
    Drive(Text, Drive),
    /// Believe.
    Believe(Text, Belief),
    /// Name a blind spot, or bound it.
    Hyperthesis(Text, Hyperthesis),
    /// Conjecture.
    Conjecture(Text, Conjecture),
    /// Something happens to an atom.
    Atom(Digest, AtomEvent),
    /// Challenge an atom.
    Challenge(Text, Challenge),
}

/// What a change did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Merge {
    /// Assertions that became hypotheses because an atom that they cite was retracted.
    pub demoted: Vec<Text>,
}

/// Why a change cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "error", rename_all = "snake_case")]
pub enum MergeError {
    /// Not in this mood.
    #[error("{mood} may not change {register:?} so: {help}")]
    NotInThisMood {
        /// In which.
        mood: Mood,
        /// What.
        register: Register,
        /// What to do.
        help: &'static str,
    },
    /// There is no such entry.
    #[error("there is no {what} `{}`", id.as_str())]
    Unknown {
        /// Of which kind.
        what: &'static str,
        /// Which.
        id: Text,
    },
    /// Evidence that may not be cited.
    #[error("{atom} is not a promoted atom: promote it, or cite one that is")]
    NotPromoted {
        /// Which.
        atom: Digest,
    },
    /// The claim rests on what the model itself found unlikely.
    #[error("`{}` rests on words that the model itself found unlikely: have it verified independently", id.as_str())]
    Doubted {
        /// Which.
        id: Text,
    },
    /// Much depends on it, and the verifier was not independent.
    #[error("much depends on `{}`: an independent check is needed", id.as_str())]
    NotIndependent {
        /// Which.
        id: Text,
    },
    /// Not the next version.
    #[error("the drive is at version {at}: a change names version {}", at + 1)]
    Version {
        /// The one that holds.
        at: u32,
    },
    /// Only a crossing promotes.
    #[error("only a crossing with a policy token promotes an atom")]
    NoToken,
    /// The atom does not go there from where it is.
    #[error(transparent)]
    Atom(#[from] AtomError),
}

impl Registers {
    /// Whether the work has an aim: a demo and a conjecture.
    pub fn is_aimed(&self) -> bool {
        self.demo.is_some() && !self.conjectures.is_empty()
    }

    /// Whether a blind spot is severe.
    pub fn is_exposed(&self) -> bool {
        self.hyperthesis.values().any(Hyperthesis::is_severe)
    }

    /// Merges one change. `may_promote` says whether a crossing for promotion is cleared.
    ///
    /// # Errors
    /// When the mood, the types' rules or the atoms forbid it; nothing is changed then.
    pub fn merge(&mut self, mood: Mood, change: &Change, may_promote: bool) -> Result<Merge, MergeError> {
        admit(mood, change)?;
        let mut merge = Merge::default();
        match change {
            Change::Demo(demo) => self.demo = Some(demo.clone()),
            Change::Hypothesize(id, hypothesis) => {
                self.hypothesize.insert(id.clone(), hypothesis.clone());
            }
            Change::Assert { id, evidence, more_evidence, attestation } => {
                self.assert(id, *evidence, more_evidence, attestation)?;
            }
            Change::Demote(id) => self.demote(id)?,
            Change::Refute(id) => {
                let unknown = || MergeError::Unknown { what: "hypothesis", id: id.clone() };
                self.hypothesize.remove(id).ok_or_else(unknown)?;
            }
            Change::Drive(id, drive) => {
                let at = self.drive.get(id).map_or(0, |drive| drive.version);
                if at.checked_add(1) != Some(drive.version) {
                    return Err(MergeError::Version { at });
                }
                self.drive.insert(id.clone(), drive.clone());
            }
            Change::Believe(id, belief) => {
                self.believe.insert(id.clone(), belief.clone());
            }
            Change::Hyperthesis(id, hyperthesis) => {
                self.hyperthesis.insert(id.clone(), hyperthesis.clone());
            }
            Change::Conjecture(id, conjecture) => {
                self.conjectures.insert(id.clone(), conjecture.clone());
            }
            Change::Atom(digest, event) => {
                if *event == AtomEvent::Promote && !may_promote {
                    return Err(MergeError::NoToken);
                }
                let atom = self.atoms.get(digest).copied().unwrap_or_default().after(*event)?;
                self.atoms.insert(*digest, atom);
                if atom.state == AtomState::Retracted {
                    merge.demoted = self.citing(*digest);
                }
            }
            Change::Challenge(id, challenge) => {
                let atom = self.atoms.get(&challenge.atom).copied().unwrap_or_default();
                self.atoms.insert(challenge.atom, atom.after(AtomEvent::Challenge)?);
                self.challenges.insert(id.clone(), challenge.clone());
            }
        }
        for id in &merge.demoted {
            self.demote(id)?;
        }
        Ok(merge)
    }

    fn assert(
        &mut self,
        id: &Text,
        evidence: Pointer,
        more: &[Pointer],
        attestation: &Attestation,
    ) -> Result<(), MergeError> {
        let unknown = || MergeError::Unknown { what: "hypothesis", id: id.clone() };
        let hypothesis = self.hypothesize.get(id).ok_or_else(unknown)?;
        if self.doubted.contains(id) && !attestation.independent {
            return Err(MergeError::Doubted { id: id.clone() });
        }
        if hypothesis.impact == Impact::High && !attestation.independent {
            return Err(MergeError::NotIndependent { id: id.clone() });
        }
        let promoted = |pointer: &&Pointer| {
            self.atoms.get(&pointer.atom).is_some_and(|atom| atom.state == AtomState::Promoted)
                && pointer.start_byte < pointer.end_byte
        };
        if let Some(pointer) = std::iter::once(&evidence).chain(more).find(|pointer| !promoted(pointer)) {
            return Err(MergeError::NotPromoted { atom: pointer.atom });
        }
        let hypothesis = hypothesis.clone();
        let assertion =
            Assertion { hypothesis, evidence, more_evidence: more.to_vec(), attestation: attestation.clone() };
        self.hypothesize.remove(id);
        self.doubted.remove(id);
        self.assert.insert(id.clone(), assertion);
        Ok(())
    }

    fn demote(&mut self, id: &Text) -> Result<(), MergeError> {
        let unknown = || MergeError::Unknown { what: "assertion", id: id.clone() };
        let assertion = self.assert.remove(id).ok_or_else(unknown)?;
        self.hypothesize.insert(id.clone(), assertion.hypothesis);
        Ok(())
    }

    fn citing(&self, atom: Digest) -> Vec<Text> {
        let cites = |assertion: &Assertion| assertion.pointers().any(|pointer| pointer.atom == atom);
        self.assert.iter().filter(|(_, assertion)| cites(assertion)).map(|(id, _)| id.clone()).collect()
    }
}

/// Whether the mood admits the change at all (spec §5).
fn admit(mood: Mood, change: &Change) -> Result<(), MergeError> {
    let (register, enough): (_, &[Admission]) = match change {
        Change::Assert { .. } => (Register::Assert, &[Admission::Decides]),
        Change::Demote(_) => (Register::Assert, &[Admission::Decides, Admission::Tightens]),
        Change::Refute(_) => (Register::Hypothesize, &[Admission::Decides]),
        Change::Hypothesize(..) | Change::Conjecture(..) | Change::Hyperthesis(..) | Change::Demo(_) => {
            (Register::Hypothesize, &[Admission::Decides, Admission::Preferred, Admission::Proposes])
        }
        Change::Drive(..) => (Register::Drive, &[Admission::Decides, Admission::Preferred, Admission::Proposes]),
        Change::Believe(_, belief) if belief.effect == Believed::Widens => (Register::Believe, &[Admission::Decides]),
        Change::Believe(..) => (Register::Believe, &[Admission::Decides, Admission::Preferred, Admission::Tightens]),
        Change::Atom(..) | Change::Challenge(..) => return Ok(()),
    };
    if enough.contains(&admission(register, mood)) {
        return Ok(());
    }
    let help = match register {
        Register::Assert => "SKEPTICAL decides what is asserted; propose a hypothesis",
        Register::Hypothesize => "SKEPTICAL decides which hypotheses fall",
        Register::Drive => "DEFERENTIAL asks the user",
        Register::Believe => "BOLD widens what is believed possible",
    };
    Err(MergeError::NotInThisMood { mood, register, help })
}
