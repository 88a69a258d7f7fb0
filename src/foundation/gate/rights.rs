//! Rights: categories to use and to delegate, data to read and write, hosts, a budget.

use serde::{Deserialize, Serialize};

use super::{Budget, Categories, Category, Hosts, Scopes};

/// What a principal may do. Rights are partially ordered by [`within`](Self::within); [`meet`](Self::meet) is the intersection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rights {
    /// Categories that may be requested.
    pub uses: Categories,
    /// Categories that a child lease may have. They are independent of `uses`: a director may delegate what it may not do
    /// itself.
    pub delegates: Categories,
    /// Data stores that may be read.
    pub reads: Scopes,
    /// Data stores that may be written.
    pub writes: Scopes,
    /// Hosts of [`Category::Network`].
    pub hosts: Hosts,
    /// Hosts of [`Category::Model`]; a local model has none.
    pub model_hosts: Hosts,
    /// The budget.
    pub budget: Budget,
}

/// The part of rights that changes something or sends data out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Power {
    /// Acting categories.
    pub acts: Categories,
    /// Data stores that may be written, except the run's [own](Scopes::OWN).
    pub writes: Scopes,
}

impl Rights {
    /// Categories that connect to hosts other than a model's.
    const REACHING: Categories = Categories::of(&[Category::Network, Category::Publish]);

    /// No rights.
    pub const NONE: Self = Self {
        uses: Categories::NONE,
        delegates: Categories::NONE,
        reads: Scopes::NONE,
        writes: Scopes::NONE,
        hosts: Hosts::None,
        model_hosts: Hosts::None,
        budget: Budget::NOTHING,
    };

    /// The intersection.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        Self {
            uses: self.uses.meet(other.uses),
            delegates: self.delegates.meet(other.delegates),
            reads: self.reads.meet(other.reads),
            writes: self.writes.meet(other.writes),
            hosts: self.hosts.meet(&other.hosts),
            model_hosts: self.model_hosts.meet(&other.model_hosts),
            budget: self.budget.meet(&other.budget),
        }
    }

    /// Where these rights exceed `bound`, as texts; empty if they do not.
    pub fn beyond(&self, bound: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for (what, mine, theirs) in [("uses", self.uses, bound.uses), ("delegates", self.delegates, bound.delegates)] {
            found.extend(mine.without(theirs).iter().map(|category| format!("{what} `{category}`")));
        }
        for (what, mine, theirs) in [("reads", self.reads, bound.reads), ("writes", self.writes, bound.writes)] {
            found.extend(mine.without(theirs).iter().map(|scope| format!("{what} `{scope}`")));
        }
        for (what, mine, theirs) in
            [("hosts", &self.hosts, &bound.hosts), ("model hosts", &self.model_hosts, &bound.model_hosts)]
        {
            if !mine.within(theirs) {
                found.push(format!("has more {what}"));
            }
        }
        found.extend(bound.budget.short_of(&self.budget).map(|resource| format!("has more `{}`", resource.name())));
        found
    }

    /// Whether they do not exceed `bound`.
    pub fn within(&self, bound: &Self) -> bool {
        self.beyond(bound).is_empty()
    }

    /// Where they exceed what a holder of `parent`, with `left` of its budget, may delegate.
    pub(super) fn beyond_delegation(&self, parent: &Self, left: &Budget) -> Vec<String> {
        let bound = Self { uses: parent.delegates, budget: *left, ..parent.clone() };
        self.beyond(&bound)
    }

    /// The part that changes something or sends data out.
    pub const fn power(&self) -> Power {
        Power { acts: self.uses.meet(Categories::ACTING), writes: self.writes.without(Scopes::OWN) }
    }

    /// These rights, with their power limited to `ceiling`.
    #[must_use]
    pub fn under(&self, ceiling: Power) -> Self {
        let passive = |set: Categories| set.without(Categories::ACTING).join(set.meet(ceiling.acts));
        let uses = passive(self.uses);
        Self {
            uses,
            delegates: passive(self.delegates),
            writes: self.writes.meet(ceiling.writes.join(Scopes::OWN)),
            hosts: if uses.is_disjoint(Self::REACHING) { Hosts::None } else { self.hosts.clone() },
            ..self.clone()
        }
    }
}

impl Power {
    /// Whether it does not exceed `other`.
    pub const fn within(self, other: Self) -> bool {
        self.acts.within(other.acts) && self.writes.within(other.writes)
    }

    /// The intersection.
    #[must_use]
    pub const fn meet(self, other: Self) -> Self {
        Self { acts: self.acts.meet(other.acts), writes: self.writes.meet(other.writes) }
    }
}
