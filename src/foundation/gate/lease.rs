//! Leases: rights of a principal with a time limit.

use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Budget, Categories, Rights};

/// The number of a lease within its gate; 0 is the root lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(pub(super) u32);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The holder of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// The run.
    pub run: Arc<str>,
    /// The user on whose behalf it acts.
    pub user: Arc<str>,
    /// The mood.
    pub mood: Arc<str>,
}

impl Principal {
    /// A principal.
    pub fn new(run: &str, user: &str, mood: &str) -> Self {
        Self { run: run.into(), user: user.into(), mood: mood.into() }
    }
}

/// Rights and time limits of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeaseTerms {
    /// The rights.
    pub rights: Rights,
    /// End of the lease.
    #[serde(serialize_with = "as_text")]
    pub expires: Timestamp,
    /// The lease ends after this long without use.
    #[serde(serialize_with = "as_text")]
    pub idle: SignedDuration,
}

/// Serialises times as text: RFC 3339, durations as ISO 8601.
pub(super) fn as_text<T: fmt::Display, S: serde::Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// A lease.
#[derive(Debug, Clone)]
pub struct Lease {
    pub(super) parent: Option<LeaseId>,
    pub(super) principal: Principal,
    pub(super) terms: LeaseTerms,
    /// The rights of the holder's current mood.
    pub(super) mood: Rights,
    /// The intersection of lease and mood, budgets excepted.
    pub(super) effective: Rights,
    spent: Budget,
    /// Spent since the holder entered its current mood.
    spent_in_mood: Budget,
    /// What is left of the lease's budget and in the current mood; derived from the amounts above, cached for the fast path.
    remaining: Budget,
    left: Budget,
    /// When it ends if it is not used.
    pub(super) idle_at: Timestamp,
    /// The earlier of `idle_at` and the end of the lease.
    pub(super) ends: Timestamp,
    pub(super) revoked: bool,
}

impl Lease {
    pub(super) fn new(parent: Option<LeaseId>, principal: Principal, terms: LeaseTerms, now: Timestamp) -> Self {
        let mood = terms.rights.clone();
        let idle_at = now.saturating_add(terms.idle).unwrap_or(now);
        let budget = terms.rights.budget;
        Self {
            parent,
            remaining: budget,
            left: budget,
            ends: idle_at.min(terms.expires),
            principal,
            effective: mood.clone(),
            mood,
            terms,
            spent: Budget::NOTHING,
            spent_in_mood: Budget::NOTHING,
            idle_at,
            revoked: false,
        }
    }

    /// The holder.
    pub const fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Rights and time limits.
    pub const fn terms(&self) -> &LeaseTerms {
        &self.terms
    }

    /// The holder's effective rights in its current mood, with the remaining budget.
    pub fn effective(&self) -> Rights {
        Rights { budget: self.left, ..self.effective.clone() }
    }

    /// The categories that the holder may request now.
    pub const fn offers(&self) -> Categories {
        self.effective.uses
    }

    /// What is left of the lease's budget, independent of the mood. It never grows.
    pub const fn remaining(&self) -> &Budget {
        &self.remaining
    }

    /// What is left in the current mood.
    pub(super) const fn left(&self) -> &Budget {
        &self.left
    }

    /// Sets the rights of the holder's mood.
    pub(super) fn enter(&mut self, rights: &Rights) {
        self.effective = self.terms.rights.meet(rights);
        self.mood = rights.clone();
        self.spent_in_mood = Budget::NOTHING;
        self.settle();
    }

    /// Charges a cost, incurred by the holder or under a delegated lease.
    pub(super) fn charge(&mut self, cost: &Budget, by_holder: bool, now: Timestamp) {
        self.spent = self.spent.plus(cost);
        if by_holder {
            self.spent_in_mood = self.spent_in_mood.plus(cost);
        }
        self.idle_at = now.saturating_add(self.terms.idle).unwrap_or(now);
        self.ends = self.idle_at.min(self.terms.expires);
        self.settle();
    }

    fn settle(&mut self) {
        self.remaining = self.terms.rights.budget.minus(&self.spent);
        self.left = self.remaining.meet(&self.mood.budget.minus(&self.spent_in_mood));
    }
}
