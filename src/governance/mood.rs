//! Moods: what a run may do right now, chosen by guards and never by a model.
//!
//! A mood is a profile ([`Profile`], YAML in `configs/moods/`) that compiles into rights for the gate. Which mood holds is up
//! to a table of guards ([`GUARDS`]) over facts; [`step`] takes an event and gives the next state and effects. Beside the
//! mood stands what is claimed, guessed, wanted and believed ([`Registers`]), merged entry by entry. Texts are only ever
//! data: [`lint`] judges their form, and no text changes a mood but through a fact that somebody vouches for.
//!
//! ```
//! use loom_agent::governance::mood::{Event, Facts, Mood, MoodState, Profiles, step};
//!
//! let profiles = Profiles::shipped()?;
//! let calm = MoodState::enter(Facts::NONE).state;
//! assert_eq!(calm.mood(), Mood::Calm);
//! let after = step(&calm, &Event::VerifiersFailed);
//! assert_eq!(after.state.mood(), Mood::Skeptical);
//! assert!(after.state.rights(&profiles).power().within(calm.rights(&profiles).power()));
//! # Ok::<(), loom_agent::foundation::config::ConfigErrors>(())
//! ```
//!
//! Knows no clock, no file and no model; performs nothing.

mod name;
mod facts;
mod matrix;
mod atom;
mod registers;
mod event;
pub mod lint;
mod profile;
mod guards;
mod state;
mod replay;

#[cfg(test)]
mod attempts;
#[cfg(test)]
mod exploration;
#[cfg(test)]
mod properties;

pub use atom::{Atom, AtomError, AtomEvent, AtomState};
pub use event::{Event, Heartbeat, Privilege, Regulation, Suspicion};
pub use facts::{Fact, Facts};
pub use guards::{Counter, GUARDS, Guard, Kind, Target, explain, guard_table};
pub use matrix::{Admission, Register, admission, matrix_table};
pub use name::Mood;
pub use profile::{Check, ModelTier, OutputForm, Profile, Profiles, Reach, ReceiptKind, SHIPPED};
pub use registers::{
    Assertion, Attestation, Belief, Believed, Challenge, Change, Conjecture, Drive, Hyperthesis, Hypothesis, Impact,
    Invisible, Merge, MergeError, Pointer, Registers, TestBudget, Text, Tier,
};
pub use replay::{ReplayError, Replayed, replay, step_entry};
pub use state::{Effect, MoodState, Step, step};
