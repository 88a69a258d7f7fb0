//! What is asserted, guessed, wanted and believed (AHDB), with blind spots and conjectures: typed, and merged by id.
//!
//! A change puts one entry or moves it; nothing replaces a register. What the types demand cannot be left out: there is no
//! hypothesis without a test and a budget, no assertion without evidence and a verifier's word.

mod change;
mod entries;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use change::{Change, Merge, MergeError};
pub use entries::{
    Assertion, Attestation, Belief, Believed, Challenge, Conjecture, Drive, Hyperthesis, Hypothesis, Impact, Invisible,
    Pointer, TestBudget, Text, Tier,
};

use self::change::admit;
use super::atom::{Atom, AtomEvent, AtomState};
use super::name::Mood;
use crate::foundation::base::Digest;

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
