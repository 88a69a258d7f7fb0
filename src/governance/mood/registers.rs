//! The registers: assertions, hypotheses, drives and beliefs (AHDB), blind spots and conjectures; typed, with entries by id.
//!
//! A change adds or moves one entry; no change replaces a register. The types enforce required parts: no hypothesis
//! without a test and a budget, no assertion without evidence and an attestation.

mod change;
mod entries;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use change::{MergeError, MergeOutcome, RegisterChange};
pub use entries::{
    Assertion, Attestation, Belief, BeliefEffect, BeliefTier, BlindSpot, BlindSpotCause, Challenge, Conjecture, Drive,
    EntryText, EvidencePointer, Hypothesis, ImpactLevel, TestBudget,
};

use self::change::admit;
use super::atom::{Atom, AtomEvent, AtomState};
use super::name::Mood;
use crate::foundation::base::Digest;

/// The registers of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Registers {
    /// The 30-second demo of the finished work.
    pub demo: Option<EntryText>,
    /// ASSERT.
    pub assert: BTreeMap<EntryText, Assertion>,
    /// HYPOTHESIZE.
    pub hypothesize: BTreeMap<EntryText, Hypothesis>,
    /// DRIVE.
    pub drive: BTreeMap<EntryText, Drive>,
    /// BELIEVE.
    pub believe: BTreeMap<EntryText, Belief>,
    /// Known blind spots.
    #[serde(rename = "hyperthesis")]
    pub blind_spots: BTreeMap<EntryText, BlindSpot>,
    /// CONJECTURES.
    pub conjectures: BTreeMap<EntryText, Conjecture>,
    /// Atoms by the digest of their text.
    pub atoms: BTreeMap<Digest, Atom>,
    /// Challenges.
    pub challenges: BTreeMap<EntryText, Challenge>,
    /// Hypotheses based on words to which the model assigned low probability.
    pub doubted: BTreeSet<EntryText>,
}

impl Registers {
    /// Whether the work has an aim: a demo and a conjecture.
    pub fn is_aimed(&self) -> bool {
        self.demo.is_some() && !self.conjectures.is_empty()
    }

    /// Whether a blind spot is severe.
    pub fn is_exposed(&self) -> bool {
        self.blind_spots.values().any(BlindSpot::is_severe)
    }

    /// Applies one change. `may_promote` says whether a promotion is cleared.
    ///
    /// # Errors
    /// If the mood, the rules of the types or the atoms do not allow it; nothing is changed then.
    pub fn merge(
        &mut self,
        mood: Mood,
        change: &RegisterChange,
        may_promote: bool,
    ) -> Result<MergeOutcome, MergeError> {
        admit(mood, change)?;
        let mut merge = MergeOutcome::default();
        match change {
            RegisterChange::Demo(demo) => self.demo = Some(demo.clone()),
            RegisterChange::Hypothesize(id, hypothesis) => {
                self.hypothesize.insert(id.clone(), hypothesis.clone());
            }
            RegisterChange::Assert { id, evidence, more_evidence, attestation } => {
                self.assert(id, *evidence, more_evidence, attestation)?;
            }
            RegisterChange::Demote(id) => self.demote(id)?,
            RegisterChange::Refute(id) => {
                let unknown = || MergeError::Unknown { what: "hypothesis", id: id.clone() };
                self.hypothesize.remove(id).ok_or_else(unknown)?;
            }
            RegisterChange::Drive(id, drive) => {
                let at = self.drive.get(id).map_or(0, |drive| drive.version);
                if at.checked_add(1) != Some(drive.version) {
                    return Err(MergeError::Version { at });
                }
                self.drive.insert(id.clone(), drive.clone());
            }
            RegisterChange::Believe(id, belief) => {
                self.believe.insert(id.clone(), belief.clone());
            }
            RegisterChange::BlindSpot(id, blind_spot) => {
                self.blind_spots.insert(id.clone(), blind_spot.clone());
            }
            RegisterChange::Conjecture(id, conjecture) => {
                self.conjectures.insert(id.clone(), conjecture.clone());
            }
            RegisterChange::Atom(digest, event) => {
                if *event == AtomEvent::Promote && !may_promote {
                    return Err(MergeError::NoToken);
                }
                let atom = self.atoms.get(digest).copied().unwrap_or_default().after(*event)?;
                self.atoms.insert(*digest, atom);
                if atom.state == AtomState::Retracted {
                    merge.demoted = self.citing(*digest);
                }
            }
            RegisterChange::Challenge(id, challenge) => {
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
        id: &EntryText,
        evidence: EvidencePointer,
        more: &[EvidencePointer],
        attestation: &Attestation,
    ) -> Result<(), MergeError> {
        let unknown = || MergeError::Unknown { what: "hypothesis", id: id.clone() };
        let hypothesis = self.hypothesize.get(id).ok_or_else(unknown)?;
        if self.doubted.contains(id) && !attestation.independent {
            return Err(MergeError::Doubted { id: id.clone() });
        }
        if hypothesis.impact == ImpactLevel::High && !attestation.independent {
            return Err(MergeError::NotIndependent { id: id.clone() });
        }
        let promoted = |pointer: &&EvidencePointer| {
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

    fn demote(&mut self, id: &EntryText) -> Result<(), MergeError> {
        let unknown = || MergeError::Unknown { what: "assertion", id: id.clone() };
        let assertion = self.assert.remove(id).ok_or_else(unknown)?;
        self.hypothesize.insert(id.clone(), assertion.hypothesis);
        Ok(())
    }

    fn citing(&self, atom: Digest) -> Vec<EntryText> {
        let cites = |assertion: &Assertion| assertion.pointers().any(|pointer| pointer.atom == atom);
        self.assert.iter().filter(|(_, assertion)| cites(assertion)).map(|(id, _)| id.clone()).collect()
    }
}
