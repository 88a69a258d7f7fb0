//! Descriptions of effects, exact enough to decide on and to compare with what is performed.

use serde::Serialize;

use super::{Budget, Category, LeaseId, Scope, Scopes};
use crate::foundation::base::Digest;

/// An effect on the world. Equal effects have equal digests; a permit is bound to the digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Effect {
    category: Category,
    reads: Scopes,
    writes: Scopes,
    host: Option<String>,
    cost: Budget,
    arguments: Digest,
}

/// A request for a permit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EffectRequest {
    /// The lease to use.
    pub lease: LeaseId,
    /// The requested effect.
    pub effect: Effect,
}

impl Effect {
    /// An effect with exactly these arguments, one call. A command counts as writing to the workspace unless it is
    /// [`contained`](Self::contained).
    pub fn new(category: Category, arguments: impl AsRef<[u8]>) -> Self {
        let writes = if category == Category::Exec { Scope::Workspace.into() } else { Scopes::NONE };
        Self {
            category,
            reads: Scopes::NONE,
            writes,
            host: None,
            cost: Budget { calls: 1, ..Budget::NOTHING },
            arguments: Digest::of(arguments),
        }
    }

    /// Adds a data store that it reads.
    #[must_use]
    pub fn reading(mut self, scope: Scope) -> Self {
        self.reads = self.reads.join(scope.into());
        self
    }

    /// Adds a data store that it writes.
    #[must_use]
    pub fn writing(mut self, scope: Scope) -> Self {
        self.writes = self.writes.join(scope.into());
        self
    }

    /// Sets the host that it connects to.
    #[must_use]
    pub fn reaching(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// Sets its maximum cost, including the call itself.
    #[must_use]
    pub fn costing(mut self, cost: Budget) -> Self {
        self.cost = Budget { calls: cost.calls.max(1), ..cost };
        self
    }

    /// Its category.
    pub const fn category(&self) -> Category {
        self.category
    }

    /// Whether its description is complete and it needs neither a host nor an approval, so that only rights and budget decide.
    pub(super) fn is_plain(&self) -> bool {
        let complete = match self.category {
            Category::Read => !self.reads.is_empty(),
            Category::Write => !self.writes.is_empty(),
            Category::Network => false,
            category => !super::Categories::PRIVILEGED.contains(category),
        };
        complete && self.host.is_none()
    }

    /// Data stores that it reads.
    pub const fn reads(&self) -> Scopes {
        self.reads
    }

    /// Data stores that it writes.
    pub const fn writes(&self) -> Scopes {
        self.writes
    }

    /// The host that it connects to.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Its maximum cost.
    pub const fn cost(&self) -> &Budget {
        &self.cost
    }

    /// The digest of its arguments, which approvals refer to.
    pub const fn arguments(&self) -> Digest {
        self.arguments
    }

    /// Its digest: fields in a fixed order, variable ones with a length prefix.
    pub fn digest(&self) -> Digest {
        let mut bytes = Vec::with_capacity(160);
        bytes.extend_from_slice(b"loom effect v1\0");
        let bits = |set: Scopes| set.iter().fold(0_u32, |bits, scope| bits | 1 << scope as u32);
        bytes.extend_from_slice(&(self.category as u32).to_le_bytes());
        bytes.extend_from_slice(&bits(self.reads).to_le_bytes());
        bytes.extend_from_slice(&bits(self.writes).to_le_bytes());
        let Budget { money_micros, tokens, wall_ms, calls, files, diff_lines } = self.cost;
        for figure in [money_micros, tokens, wall_ms, calls, files, diff_lines] {
            bytes.extend_from_slice(&figure.to_le_bytes());
        }
        bytes.extend_from_slice(self.arguments.as_bytes());
        match &self.host {
            None => bytes.push(0),
            Some(host) => {
                bytes.push(1);
                bytes.extend_from_slice(&(host.len() as u64).to_le_bytes());
                bytes.extend_from_slice(host.as_bytes());
            }
        }
        Digest::of(bytes)
    }
}
