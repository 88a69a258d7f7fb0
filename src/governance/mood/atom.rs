//! Atoms: pieces of text with a trust state.

use serde::{Deserialize, Serialize};

/// The trust state of an atom.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtomState {
    /// Data only.
    #[default]
    Untrusted,
    /// Inspected and isolated.
    Quarantined,
    /// Proposed for promotion; may be challenged.
    PromotionPending,
    /// May be cited by assertions.
    Promoted,
    /// Withdrawn permanently.
    Retracted,
}

/// An atom.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Atom {
    /// Its trust state.
    pub state: AtomState,
}

/// A transition of an atom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtomEvent {
    /// It was inspected.
    Quarantine,
    /// Its promotion was proposed.
    Propose,
    /// A challenge succeeded.
    Challenge,
    /// It was promoted; needs a policy token.
    Promote,
    /// It was withdrawn.
    Retract,
}

impl AtomEvent {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Quarantine, Self::Propose, Self::Challenge, Self::Promote, Self::Retract];
}

/// The transition does not exist in the atom's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("an atom that is {from:?} cannot {event:?}")]
pub struct AtomError {
    /// The present state.
    pub from: AtomState,
    /// The requested transition.
    pub event: AtomEvent,
}

impl Atom {
    /// The atom after `event`.
    ///
    /// # Errors
    /// If the transition does not exist in the atom's state.
    pub const fn after(self, event: AtomEvent) -> Result<Self, AtomError> {
        use AtomState::{Promoted, PromotionPending, Quarantined, Retracted, Untrusted};
        let state = match (self.state, event) {
            (Untrusted, AtomEvent::Quarantine) | (PromotionPending, AtomEvent::Challenge) => Quarantined,
            (Quarantined, AtomEvent::Propose) => PromotionPending,
            (PromotionPending, AtomEvent::Promote) => Promoted,
            (Quarantined | PromotionPending | Promoted, AtomEvent::Retract) => Retracted,
            (from, event) => return Err(AtomError { from, event }),
        };
        Ok(Self { state })
    }
}
