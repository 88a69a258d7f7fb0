//! The events of a run that concern its mood. Each one is observed, counted or reported by a person; model output is
//! classified into one of these first.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::registers::{EntryText, RegisterChange};
use crate::foundation::gate::Category;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoodEvent {
    /// The process restarted without a clean handoff.
    Restarted,
    /// The heartbeat is overdue.
    HeartbeatStale,
    /// The state was rebuilt from receipts.
    Projected {
        /// Whether it is consistent with the last receipts.
        consistent: bool,
    },
    /// A possible attack on the work itself.
    Suspected(Suspicion),
    /// The attack was disclosed in its form.
    Disclosed,
    /// A missing preference or policy would change the next action.
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
    /// It was done, or withdrawn.
    Crossed(Privilege),
    /// Verifiers failed, or progress regressed.
    VerifiersFailed,
    /// The verifiers of the scope pass.
    VerifiersPassed,
    /// An iteration ended.
    Iterated {
        /// Whether the verifiers report an improvement.
        improved: bool,
    },
    /// Sources contradict each other.
    EvidenceConflicts,
    /// A security-relevant surface was changed.
    SecurityTouched,
    /// The risk increased.
    RiskGrew,
    /// An ambiguity blocks the work and can be researched.
    Ambiguous,
    /// The next action is clear and testable.
    NextClear,
    /// Mitigations are installed.
    Mitigated,
    /// The user wants a wider scope.
    Widen,
    /// The regulator made a decision.
    Regulated(RegulatorSignal),
    /// A register change was proposed.
    Changed(RegisterChange),
}

/// The kind of attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Suspicion {
    /// Text that gives instructions to its reader.
    Injection,
    /// A verifier that passes for the wrong reason.
    RewardHack,
    /// A claim that nothing can refute.
    SelfSealing,
}

/// An action that needs a policy token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Privilege {
    /// Publish outside the program.
    Publish,
    /// Promote an atom, so that assertions may cite it.
    Promote,
    /// Sign in the user's name.
    Sign,
}

impl Privilege {
    /// All privileges.
    pub const ALL: [Self; 3] = [Self::Publish, Self::Promote, Self::Sign];

    /// The gate's category.
    pub const fn category(self) -> Category {
        match self {
            Self::Publish => Category::Publish,
            Self::Promote => Category::Promote,
            Self::Sign => Category::Sign,
        }
    }
}

/// Decisions of the regulator, as far as they concern the mood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegulatorSignal {
    /// A cost cap was reached: the user decides whether to continue.
    CostCap,
    /// Quality declines or stays low.
    QualityDecline,
    /// The same failure repeats.
    RepeatedFailure,
    /// The reply goes beyond its task.
    ScopeDrift,
    /// The model assigned low probability to parts of its reply.
    LowConfidence {
        /// The hypotheses based on these parts: they need an independent attestation before they can be asserted.
        claims: Vec<EntryText>,
    },
    /// Users corrected this before.
    ProceduralWarning,
}

/// The heartbeat of a run; an overdue one counts as a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// The time of the last beat.
    pub last: Timestamp,
    /// The maximum age.
    pub every: SignedDuration,
}

impl Heartbeat {
    /// Whether it is overdue. A beat in the future is too: one of the two clocks is wrong.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        let age = now.duration_since(self.last);
        age > self.every || age.is_negative()
    }
}
