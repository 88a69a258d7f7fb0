//! A lease: somebody's rights for a time.

use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Budget, Categories, Rights};

/// The number of a lease within its gate; the first one, from 0, is the session's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(pub(super) u32);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Who holds a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// Of which run.
    pub run: Arc<str>,
    /// For whom.
    pub user: Arc<str>,
    /// In which mood.
    pub mood: Arc<str>,
}

impl Principal {
    /// Somebody.
    pub fn new(run: &str, user: &str, mood: &str) -> Self {
        Self { run: run.into(), user: user.into(), mood: mood.into() }
    }
}

/// What a lease gives and until when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Terms {
    /// The rights.
    pub rights: Rights,
    /// It ends then.
    #[serde(serialize_with = "told")]
    pub expires: Timestamp,
    /// It ends when nobody used it for so long.
    #[serde(serialize_with = "told")]
    pub idle: SignedDuration,
}

/// Times as text: RFC 3339, and ISO 8601 for spans.
pub(super) fn told<T: fmt::Display, S: serde::Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// A lease.
#[derive(Debug, Clone)]
pub struct Lease {
    pub(super) parent: Option<LeaseId>,
    pub(super) principal: Principal,
    pub(super) terms: Terms,
    /// The rights of the mood that its holder is in now.
    pub(super) mood: Rights,
    /// What both allow, but for the budgets.
    pub(super) effective: Rights,
    spent: Budget,
    /// Spent since the holder came into its mood.
    spent_in_mood: Budget,
    /// What is left of its budget, and what of that in this mood: as the figures above say, kept for the quick look.
    remaining: Budget,
    left: Budget,
    /// When it ends for want of use.
    pub(super) idle_at: Timestamp,
    /// When it ends, for whatever reason.
    pub(super) ends: Timestamp,
    pub(super) revoked: bool,
}

impl Lease {
    pub(super) fn new(parent: Option<LeaseId>, principal: Principal, terms: Terms, now: Timestamp) -> Self {
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

    /// Who holds it.
    pub const fn principal(&self) -> &Principal {
        &self.principal
    }

    /// What it gives and until when.
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// What its holder may do in the mood it is in; the budget is what this mood allows of what the lease has left.
    pub fn effective(&self) -> Rights {
        Rights { budget: self.left, ..self.effective.clone() }
    }

    /// The kinds of effects that its holder may ask for now: what is not among them need not be offered.
    pub const fn offers(&self) -> Categories {
        self.effective.uses
    }

    /// What is left of its budget, whatever the mood. It never grows.
    pub const fn remaining(&self) -> &Budget {
        &self.remaining
    }

    /// What is left in this mood.
    pub(super) const fn left(&self) -> &Budget {
        &self.left
    }

    /// Its holder is in a mood with these rights from now on.
    pub(super) fn enter(&mut self, rights: &Rights) {
        self.effective = self.terms.rights.meet(rights);
        self.mood = rights.clone();
        self.spent_in_mood = Budget::NOTHING;
        self.settle();
    }

    /// It is used at this cost: by its holder, or by one whose lease was drawn from it.
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
