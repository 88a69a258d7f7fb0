//! A set of states as one machine word, so that asking whether two exit sets meet is one instruction.

use serde::{Serialize, Serializer};

use super::chart::StateId;

/// A set of states of one chart, read in document order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateSet(u128);

impl StateSet {
    /// No state.
    pub const EMPTY: Self = Self(0);

    /// Whether there is no state.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether `id` is one of them.
    pub const fn contains(self, id: StateId) -> bool {
        self.0 & bit(id) != 0
    }

    /// With `id`.
    #[must_use]
    pub const fn with(self, id: StateId) -> Self {
        Self(self.0 | bit(id))
    }

    /// Adds `id`.
    pub const fn insert(&mut self, id: StateId) {
        self.0 |= bit(id);
    }

    /// Takes `id` away.
    pub const fn remove(&mut self, id: StateId) {
        self.0 &= !bit(id);
    }

    /// What is in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// What is in either.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether any state is in both.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The states in document order; from the end, in reverse.
    pub const fn iter(self) -> States {
        States(self.0)
    }
}

const fn bit(id: StateId) -> u128 {
    1 << id.0
}

impl FromIterator<StateId> for StateSet {
    fn from_iter<I: IntoIterator<Item = StateId>>(ids: I) -> Self {
        ids.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl IntoIterator for StateSet {
    type Item = StateId;
    type IntoIter = States;

    fn into_iter(self) -> States {
        self.iter()
    }
}

impl Serialize for StateSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

/// The states of a [`StateSet`].
#[derive(Debug, Clone)]
pub struct States(u128);

impl Iterator for States {
    type Item = StateId;

    fn next(&mut self) -> Option<StateId> {
        let first = StateId(u8::try_from(self.0.trailing_zeros()).ok().filter(|_| self.0 != 0)?);
        self.0 &= !bit(first);
        Some(first)
    }
}

impl DoubleEndedIterator for States {
    fn next_back(&mut self) -> Option<StateId> {
        let last = StateId(u8::try_from(self.0.checked_ilog2()?).ok()?);
        self.0 &= !bit(last);
        Some(last)
    }
}
