//! Reasons of refusals, with alternatives.

use serde::Serialize;

use super::{Category, LeaseId, Resource, Scopes};

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum RefusalReason {
    /// There is no such lease.
    #[error("there is no lease {lease}")]
    UnknownLease {
        /// Which.
        lease: LeaseId,
    },
    /// The lease or one of its ancestors was revoked.
    #[error("lease {lease} was revoked")]
    Revoked {
        /// Which.
        lease: LeaseId,
    },
    /// The lease or one of its ancestors has expired.
    #[error("lease {lease} has expired")]
    Expired {
        /// Which.
        lease: LeaseId,
    },
    /// The lease or one of its ancestors ended because it was not used.
    #[error("lease {lease} ended because it was not used for too long")]
    Idle {
        /// Which.
        lease: LeaseId,
    },
    /// The category is not allowed.
    #[error("`{category}` is not among the rights")]
    NotAllowed {
        /// Which.
        category: Category,
    },
    /// Reading these data stores is not allowed.
    #[error("reading {scopes} is not among the rights")]
    MayNotRead {
        /// Which.
        scopes: Scopes,
    },
    /// Writing these data stores is not allowed.
    #[error("writing {scopes} is not among the rights")]
    MayNotWrite {
        /// Which.
        scopes: Scopes,
    },
    /// The host is not allowed.
    #[error("the host `{host}` is not among the rights")]
    MayNotReach {
        /// Which.
        host: String,
    },
    /// The description of the effect is incomplete.
    #[error("the request for `{category}` does not state {lacks}")]
    Unclear {
        /// Of which kind.
        category: Category,
        /// What is missing.
        lacks: &'static str,
    },
    /// A resource is exhausted.
    #[error("there is not enough `{}` left", resource.name())]
    #[serde(rename = "spent")]
    Exhausted {
        /// The exhausted resource.
        resource: Resource,
    },
    /// There is no unused, unexpired approval of these exact arguments.
    #[error("`{category}` needs an approval of these exact arguments")]
    NotApproved {
        /// Of which kind.
        category: Category,
    },
    /// A child lease would exceed what may be delegated.
    #[error("the lease exceeds what may be delegated: {}", beyond.join(", "))]
    TooWide {
        /// Where it exceeds the limits.
        beyond: Vec<String>,
    },
    /// The effect about to be performed is not the permitted one.
    #[error("the effect about to be performed is not the permitted one")]
    Changed,
    /// The permit has expired.
    #[error("the permit has expired")]
    Late,
    /// The decision could not be recorded, so nothing is permitted.
    #[error("the decision could not be recorded: {why}")]
    Unrecorded {
        /// The cause.
        why: String,
    },
}

impl RefusalReason {
    /// What to do instead.
    pub const fn alternative(&self) -> &'static str {
        match self {
            Self::UnknownLease { .. } => "use a lease of this session",
            Self::Revoked { .. } | Self::Expired { .. } | Self::Idle { .. } => {
                "request a new lease from the holder of the parent lease"
            }
            Self::NotAllowed { category } => match category {
                Category::Write => "write the change as a note, or propose it",
                Category::Exec => "ask the user, naming the command and its purpose",
                Category::Network => "use data on this machine, or ask the user to allow the host",
                Category::Model => "continue without a model",
                Category::MemoryApply => "propose it: `loom memory propose`",
                Category::Promote | Category::Publish | Category::Sign => "prepare it in quarantine and ask the user",
                Category::Secret => "ask the user to do the part that needs the secret",
                _ => "use a mood that has this right",
            },
            Self::MayNotRead { .. } => "use data that the mood may read, or ask the user",
            Self::MayNotWrite { .. } => "write to a store that the mood may write, or propose the change",
            Self::MayNotReach { .. } => "use a model or a source on this machine, or ask the user to allow the host",
            Self::Unclear { .. } => "state exactly what the effect reads and writes and which host it connects to",
            Self::Exhausted { .. } => "stop, report the findings, and ask for a larger budget",
            Self::NotApproved { .. } => "show the user the exact arguments and ask",
            Self::TooWide { .. } => "request fewer rights",
            Self::Changed => "request a permit for the new effect",
            Self::Late => "request a new permit",
            Self::Unrecorded { .. } => "free disk space or repair the receipts, then start again",
        }
    }
}

/// A refused request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{reason}; instead: {}", reason.alternative())]
pub struct Refusal {
    /// The reason.
    #[serde(flatten)]
    pub reason: RefusalReason,
}

impl Refusal {
    /// What to do instead.
    pub const fn alternative(&self) -> &'static str {
        self.reason.alternative()
    }
}

impl From<RefusalReason> for Refusal {
    fn from(reason: RefusalReason) -> Self {
        Self { reason }
    }
}
