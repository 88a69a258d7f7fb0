//! Moods: what a run may do at present, selected by guards and never by a model.
//!
//! A mood is a profile ([`MoodProfile`], YAML in `configs/moods/`) that compiles into rights for the gate. The mood is
//! selected by a table of guards ([`GUARDS`]) over facts; [`step`] maps a state and an event to the next state and
//! effects. [`Registers`] hold assertions, hypotheses, drives and beliefs. Texts are data only: [`lint`] checks their
//! form, and a text influences the mood only through a fact that a check or a person reports.
//!
//! ```
//! use loom_agent::governance::mood::{MoodEvent, MoodFacts, Mood, MoodState, MoodProfiles, step};
//!
//! let profiles = MoodProfiles::shipped()?;
//! let calm = MoodState::enter(MoodFacts::NONE).state;
//! assert_eq!(calm.mood(), Mood::Calm);
//! let after = step(&calm, &MoodEvent::VerifiersFailed);
//! assert_eq!(after.state.mood(), Mood::Skeptical);
//! assert!(after.state.rights(&profiles).power().within(calm.rights(&profiles).power()));
//! # Ok::<(), loom_agent::foundation::config::ConfigErrors>(())
//! ```
//!
//! The module has no clock, no files and no models.

mod name;
mod facts;
mod register_access;
mod atom;
mod registers;
mod event;
pub mod lint;
mod profile;
mod guards;
mod state;
mod replay;

#[cfg(test)]
mod denial_tests;
#[cfg(test)]
mod exploration;
#[cfg(test)]
mod properties;

pub use atom::{Atom, AtomError, AtomEvent, AtomState};
pub use event::{Heartbeat, MoodEvent, Privilege, RegulatorSignal, Suspicion};
pub use facts::{MoodFact, MoodFacts};
pub use guards::{GUARDS, Guard, GuardKind, GuardTarget, TransitionCounter, explain, guard_table};
pub use name::Mood;
pub use profile::{
    HostAccess, ModelTier, MoodProfile, MoodProfiles, OutputForm, ReceiptKind, SHIPPED_PROFILES, VerifierCheck,
};
pub use register_access::{Register, RegisterAccess, matrix_table, register_access};
pub use registers::{
    Assertion, Attestation, Belief, BeliefEffect, BeliefTier, BlindSpot, BlindSpotCause, Challenge, Conjecture, Drive,
    EntryText, EvidencePointer, Hypothesis, ImpactLevel, MergeError, MergeOutcome, RegisterChange, Registers,
    TestBudget,
};
pub use replay::{ReplayError, Replayed, begin_entry, replay, step_entry};
pub use state::{MoodEffect, MoodState, MoodStep, step};
