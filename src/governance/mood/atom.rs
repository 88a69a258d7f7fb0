//! Atoms: pieces of text, and how far each is trusted.

use serde::{Deserialize, Serialize};

/// How far an atom is trusted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtomState {
    /// Data, nothing more.
    #[default]
    Untrusted,
    /// Looked at, kept apart.
    Quarantined,
    /// Proposed for promotion; it can be challenged.
    PromotionPending,
    /// Assertions may cite it.
    Promoted,
    /// Taken back, for good.
    Retracted,
}

/// An atom.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Atom {
    /// How far it is trusted.
    pub state: AtomState,
}

/// What can happen to an atom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtomEvent {
    /// It was looked at.
    Quarantine,
    /// Somebody proposes its promotion.
    Propose,
    /// A challenge succeeded.
    Challenge,
    /// It is promoted; that takes a policy token.
    Promote,
    /// It is taken back.
    Retract,
}

impl AtomEvent {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Quarantine, Self::Propose, Self::Challenge, Self::Promote, Self::Retract];
}

/// An atom does not go there from where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("an atom that is {from:?} cannot {event:?}")]
pub struct AtomError {
    /// Where it is.
    pub from: AtomState,
    /// What was to happen.
    pub event: AtomEvent,
}

impl Atom {
    /// The atom after `event`.
    ///
    /// # Errors
    /// When it does not go there from where it is.
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
