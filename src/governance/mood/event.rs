//! What can happen to a run, as far as its mood is concerned. Every event stands for something that was observed, counted or
//! said by a person: what a model writes is quantised into one of these before it comes here.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::registers::{Change, Text};
use crate::foundation::gate::Category;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The process began again without a clean handoff.
    Restarted,
    /// The heartbeat is older than it may be.
    HeartbeatStale,
    /// The state was rebuilt from receipts.
    Projected {
        /// Whether it agrees with the last receipts.
        consistent: bool,
    },
    /// Something looks like an attack on the work itself.
    Suspected(Suspicion),
    /// The attack is written down in its form.
    Disclosed,
    /// A preference or policy is missing that would change the next move.
    PreferenceMissing,
    /// The user answered.
    PreferenceSet,
    /// The user did not answer in time: a preference takes its default, an approval is denied.
    TimedOut,
    /// Something is about to be published, promoted or signed.
    Crossing(Privilege),
    /// A person gave the policy token for it.
    Approved(Privilege),
    /// A person denied it.
    Denied(Privilege),
    /// It happened, or was given up.
    Crossed(Privilege),
    /// Verifiers failed again, or progress went back.
    VerifiersFailed,
    /// The verifiers of the scope pass.
    VerifiersPassed,
    /// An iteration ended.
    Iterated {
        /// Whether the verifiers say more than before.
        improved: bool,
    },
    /// Sources contradict each other.
    EvidenceConflicts,
    /// A security surface was touched.
    SecurityTouched,
    /// Risk grew.
    RiskGrew,
    /// An ambiguity blocks the work, or the user does not know and the answer can be researched.
    Ambiguous,
    /// The next action is clear and testable.
    NextClear,
    /// Mitigations are installed.
    Mitigated,
    /// Whoever leads wants the scope widened.
    Widen,
    /// The regulator decided.
    Regulated(Regulation),
    /// A change of the registers is proposed.
    Changed(Change),
}

/// What looks like an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Suspicion {
    /// Text that wants to be obeyed.
    Injection,
    /// A verifier that passes for the wrong reason.
    RewardHack,
    /// A claim that nothing can refute.
    SelfSealing,
}

/// A boundary that only a policy token opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Privilege {
    /// Give something out of the house.
    Publish,
    /// Make an atom one that assertions may cite.
    Promote,
    /// Sign in the user's name.
    Sign,
}

impl Privilege {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Publish, Self::Promote, Self::Sign];

    /// The gate's category for it.
    pub const fn category(self) -> Category {
        match self {
            Self::Publish => Category::Publish,
            Self::Promote => Category::Promote,
            Self::Sign => Category::Sign,
        }
    }
}

/// What the regulator's decisions mean here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Regulation {
    /// A cost cap was reached: whether to go on is the user's to say.
    CostCap,
    /// Quality declines or stays low.
    QualityDecline,
    /// The same failure repeats.
    RepeatedFailure,
    /// The reply goes beyond its task.
    ScopeDrift,
    /// The model itself found parts of what it said unlikely.
    LowConfidence {
        /// The hypotheses that rest on them: they cannot be asserted until a verifier attests to them anew.
        claims: Vec<Text>,
    },
    /// Users corrected this before.
    ProceduralWarning,
}

/// A sign of life that a run gives; one that is overdue counts as a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// When it was last given.
    pub last: Timestamp,
    /// How old it may be.
    pub every: SignedDuration,
}

impl Heartbeat {
    /// Whether it is overdue. A heartbeat from the future is, too: one of the two clocks is wrong.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        let age = now.duration_since(self.last);
        age > self.every || age.is_negative()
    }
}
