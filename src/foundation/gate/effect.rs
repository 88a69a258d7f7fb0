//! What somebody wants to do, exactly enough to be allowed or refused, and to be recognised when it is done.

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

/// Somebody's wish for an effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Request {
    /// Under which lease.
    pub lease: LeaseId,
    /// What for.
    pub effect: Effect,
}

impl Effect {
    /// An effect with exactly these arguments, one call. A command can write: it says so itself, unless it is
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

    /// That reads this store as well.
    #[must_use]
    pub fn reading(mut self, scope: Scope) -> Self {
        self.reads = self.reads.join(scope.into());
        self
    }

    /// That writes this store as well.
    #[must_use]
    pub fn writing(mut self, scope: Scope) -> Self {
        self.writes = self.writes.join(scope.into());
        self
    }

    /// That reaches this host.
    #[must_use]
    pub fn reaching(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// That costs this much at most, its call included.
    #[must_use]
    pub fn costing(mut self, cost: Budget) -> Self {
        self.cost = Budget { calls: cost.calls.max(1), ..cost };
        self
    }

    /// A command that the operating system keeps from writing anywhere: the one who runs it answers for that.
    #[must_use]
    pub fn contained(mut self) -> Self {
        self.writes = Scopes::NONE;
        self
    }

    /// What kind of effect it is.
    pub const fn category(&self) -> Category {
        self.category
    }

    /// Whether it says all that it must, reaches no host and needs nobody's word: then rights and budget alone decide.
    pub(super) fn is_plain(&self) -> bool {
        let told = match self.category {
            Category::Read => !self.reads.is_empty(),
            Category::Write => !self.writes.is_empty(),
            Category::Network => false,
            category => !super::Categories::PRIVILEGED.contains(category),
        };
        told && self.host.is_none()
    }

    /// What it reads.
    pub const fn reads(&self) -> Scopes {
        self.reads
    }

    /// What it writes.
    pub const fn writes(&self) -> Scopes {
        self.writes
    }

    /// Which host it reaches.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// What it costs at most.
    pub const fn cost(&self) -> &Budget {
        &self.cost
    }

    /// The digest of its arguments: what an approval names.
    pub const fn arguments(&self) -> Digest {
        self.arguments
    }

    /// Its digest: fields in a fixed order, lengths before what varies.
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
