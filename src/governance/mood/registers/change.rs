//! Register changes, their outcome and their errors.

use serde::{Deserialize, Serialize};

use super::entries::{
    Attestation, Belief, BeliefEffect, BlindSpot, Challenge, Conjecture, Drive, EntryText, EvidencePointer, Hypothesis,
};
use crate::foundation::base::Digest;
use crate::governance::mood::atom::{AtomError, AtomEvent};
use crate::governance::mood::name::Mood;
use crate::governance::mood::register_access::{Register, RegisterAccess, register_access};

/// A change of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegisterChange {
    /// Set the demo.
    Demo(EntryText),
    /// Add a hypothesis.
    Hypothesize(EntryText, Hypothesis),
    /// Turn a hypothesis into an assertion.
    Assert {
        /// The hypothesis.
        id: EntryText,
        /// The evidence.
        evidence: EvidencePointer,
        /// Further evidence.
        more_evidence: Vec<EvidencePointer>,
        /// The attestation.
        attestation: Attestation,
    },
    /// Turn an assertion back into a hypothesis.
    Demote(EntryText),
    /// Remove a hypothesis that failed its test.
    Refute(EntryText),
    /// Set a drive.
    Drive(EntryText, Drive),
    /// Set a belief.
    Believe(EntryText, Belief),
    /// Add or bound a blind spot.
    #[serde(rename = "hyperthesis")]
    BlindSpot(EntryText, BlindSpot),
    /// Add a conjecture.
    Conjecture(EntryText, Conjecture),
    /// Change the trust state of an atom.
    Atom(Digest, AtomEvent),
    /// Challenge an atom.
    Challenge(EntryText, Challenge),
}

/// The outcome of a change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MergeOutcome {
    /// Assertions demoted to hypotheses because an atom that they cite was retracted.
    pub demoted: Vec<EntryText>,
}

/// Why a change was rejected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "error", rename_all = "snake_case")]
pub enum MergeError {
    /// The mood does not allow it.
    #[error("{mood} may not change {register:?} this way: {help}")]
    NotInThisMood {
        /// The mood.
        mood: Mood,
        /// The register.
        register: Register,
        /// What to do instead.
        help: &'static str,
    },
    /// The entry does not exist.
    #[error("there is no {what} `{}`", id.as_str())]
    Unknown {
        /// The kind of entry.
        what: &'static str,
        /// The id.
        id: EntryText,
    },
    /// The evidence may not be cited.
    #[error("{atom} is not a promoted atom: promote it, or cite one that is")]
    NotPromoted {
        /// The atom.
        atom: Digest,
    },
    /// The claim is based on words to which the model assigned low probability.
    #[error("`{}` is based on words to which the model assigned low probability: have it verified independently", id.as_str())]
    Doubted {
        /// The id.
        id: EntryText,
    },
    /// The impact is high and the verifier was not independent.
    #[error("the impact of `{}` is high: an independent check is needed", id.as_str())]
    NotIndependent {
        /// The id.
        id: EntryText,
    },
    /// The version is not the next one.
    #[error("the drive is at version {at}: the change must have version {}", at + 1)]
    Version {
        /// The present version.
        at: u32,
    },
    /// Promotion needs a cleared crossing.
    #[error("promoting an atom needs a crossing with a policy token")]
    NoToken,
    /// The atom does not allow this transition.
    #[error(transparent)]
    Atom(#[from] AtomError),
}

/// Whether the mood allows the change (specification, §5).
pub(super) fn admit(mood: Mood, change: &RegisterChange) -> Result<(), MergeError> {
    let (register, enough): (_, &[RegisterAccess]) = match change {
        RegisterChange::Assert { .. } => (Register::Assert, &[RegisterAccess::Decides]),
        RegisterChange::Demote(_) => (Register::Assert, &[RegisterAccess::Decides, RegisterAccess::Tightens]),
        RegisterChange::Refute(_) => (Register::Hypothesize, &[RegisterAccess::Decides]),
        RegisterChange::Hypothesize(..)
        | RegisterChange::Conjecture(..)
        | RegisterChange::BlindSpot(..)
        | RegisterChange::Demo(_) => {
            (Register::Hypothesize, &[RegisterAccess::Decides, RegisterAccess::Preferred, RegisterAccess::Proposes])
        }
        RegisterChange::Drive(..) => {
            (Register::Drive, &[RegisterAccess::Decides, RegisterAccess::Preferred, RegisterAccess::Proposes])
        }
        RegisterChange::Believe(_, belief) if belief.effect == BeliefEffect::Widens => {
            (Register::Believe, &[RegisterAccess::Decides])
        }
        RegisterChange::Believe(..) => {
            (Register::Believe, &[RegisterAccess::Decides, RegisterAccess::Preferred, RegisterAccess::Tightens])
        }
        RegisterChange::Atom(..) | RegisterChange::Challenge(..) => return Ok(()),
    };
    if enough.contains(&register_access(register, mood)) {
        return Ok(());
    }
    let help = match register {
        Register::Assert => "SKEPTICAL decides what is asserted; propose a hypothesis",
        Register::Hypothesize => "SKEPTICAL decides which hypotheses are refuted",
        Register::Drive => "DEFERENTIAL asks the user",
        Register::Believe => "BOLD widens beliefs",
    };
    Err(MergeError::NotInThisMood { mood, register, help })
}
