//! A change of one entry, what it did, and why it cannot be.

use serde::{Deserialize, Serialize};

use super::entries::{
    Attestation, Belief, Believed, Challenge, Conjecture, Drive, Hyperthesis, Hypothesis, Pointer, Text,
};
use crate::foundation::base::Digest;
use crate::governance::mood::atom::{AtomError, AtomEvent};
use crate::governance::mood::matrix::{Admission, Register, admission};
use crate::governance::mood::name::Mood;

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

/// Whether the mood admits the change at all (spec §5).
pub(super) fn admit(mood: Mood, change: &Change) -> Result<(), MergeError> {
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
