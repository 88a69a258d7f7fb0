//! States of a chart, and sets of them as bit sets.

use serde::{Serialize, Serializer};

/// A state of one chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct StateId(pub(super) u8);

impl StateId {
    /// The chart itself, the root of its states. It is never active.
    pub const ROOT: Self = Self(0);
}

/// A set of states of one chart, read in document order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateSet(u128);

impl StateSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// Whether it is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The number of states.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether it contains `id`.
    pub const fn contains(self, id: StateId) -> bool {
        self.0 & bit(id) != 0
    }

    /// The set with `id` added.
    #[must_use]
    pub const fn with(self, id: StateId) -> Self {
        Self(self.0 | bit(id))
    }

    /// Adds `id`.
    pub const fn insert(&mut self, id: StateId) {
        self.0 |= bit(id);
    }

    /// Removes `id`.
    pub const fn remove(&mut self, id: StateId) {
        self.0 &= !bit(id);
    }

    /// The intersection.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The union.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the intersection is not empty.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Iterates in document order; double-ended.
    pub const fn iter(self) -> StateSetIter {
        StateSetIter(self.0)
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
    type IntoIter = StateSetIter;

    fn into_iter(self) -> StateSetIter {
        self.iter()
    }
}

impl Serialize for StateSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

/// Iterator over a [`StateSet`].
#[derive(Debug, Clone)]
pub struct StateSetIter(u128);

impl Iterator for StateSetIter {
    type Item = StateId;

    fn next(&mut self) -> Option<StateId> {
        let first = StateId(u8::try_from(self.0.trailing_zeros()).ok().filter(|_| self.0 != 0)?);
        self.0 &= !bit(first);
        Some(first)
    }
}

impl DoubleEndedIterator for StateSetIter {
    fn next_back(&mut self) -> Option<StateId> {
        let last = StateId(u8::try_from(self.0.checked_ilog2()?).ok()?);
        self.0 &= !bit(last);
        Some(last)
    }
}
