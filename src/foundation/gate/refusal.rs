//! Why an effect may not happen, and what could be done instead.

use serde::Serialize;

use super::{Category, LeaseId, Resource, Scopes};

/// Why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// The gate has no such lease.
    #[error("there is no lease {lease}")]
    UnknownLease {
        /// Which.
        lease: LeaseId,
    },
    /// The lease, or one that it stands on, was taken back.
    #[error("lease {lease} was revoked")]
    Revoked {
        /// Which.
        lease: LeaseId,
    },
    /// The lease, or one that it stands on, has ended.
    #[error("lease {lease} has expired")]
    Expired {
        /// Which.
        lease: LeaseId,
    },
    /// The lease, or one that it stands on, was not used for too long.
    #[error("lease {lease} lay idle for too long")]
    Idle {
        /// Which.
        lease: LeaseId,
    },
    /// Not this kind of effect.
    #[error("`{category}` is not among the rights")]
    NotAllowed {
        /// Which.
        category: Category,
    },
    /// Not these data.
    #[error("reading {scopes} is not among the rights")]
    MayNotRead {
        /// Which.
        scopes: Scopes,
    },
    /// Not these data.
    #[error("writing {scopes} is not among the rights")]
    MayNotWrite {
        /// Which.
        scopes: Scopes,
    },
    /// Not this host.
    #[error("the host `{host}` is not among the rights")]
    MayNotReach {
        /// Which.
        host: String,
    },
    /// An effect that says too little to be judged.
    #[error("`{category}` does not say {lacks}")]
    Unclear {
        /// Of which kind.
        category: Category,
        /// What is missing.
        lacks: &'static str,
    },
    /// Too dear.
    #[error("there is not enough `{}` left", resource.name())]
    Spent {
        /// What has run out.
        resource: Resource,
    },
    /// Nobody approved these exact arguments, or the approval was used or has ended.
    #[error("`{category}` needs an approval of these exact arguments")]
    NotApproved {
        /// Of which kind.
        category: Category,
    },
    /// A lease for somebody else would give more than may be passed on.
    #[error("the lease goes beyond what may be passed on: {}", beyond.join(", "))]
    TooWide {
        /// In what.
        beyond: Vec<String>,
    },
    /// What is about to happen is not what was asked for.
    #[error("what is about to happen is not what was permitted")]
    Changed,
    /// The permit was not used in time.
    #[error("the permit has expired")]
    Late,
    /// The answer could not be written down, so there is none.
    #[error("it could not be written down: {why}")]
    Unrecorded {
        /// Why.
        why: String,
    },
}

impl Reason {
    /// What could be done instead.
    pub const fn alternative(&self) -> &'static str {
        match self {
            Self::UnknownLease { .. } => "ask under a lease that this session gave",
            Self::Revoked { .. } | Self::Expired { .. } | Self::Idle { .. } => {
                "ask whoever leads the session for a new lease"
            }
            Self::NotAllowed { category } => match category {
                Category::Write => "write down what should change as a note, or propose it",
                Category::Exec => "name the command and why it should be run, and ask",
                Category::Network => "use what is on this machine, or ask the user to name the host",
                Category::Model => "go on without a model",
                Category::MemoryApply => "propose it: `loom memory propose`",
                Category::Promote | Category::Publish | Category::Sign => {
                    "prepare it, let it lie in quarantine, and ask the user"
                }
                Category::Secret => "ask the user to do the part that needs the secret",
                _ => "leave it to a mood that has the right",
            },
            Self::MayNotRead { .. } => "work with the data that the mood may read, or ask",
            Self::MayNotWrite { .. } => "write to a store that the mood may write, or propose the change",
            Self::MayNotReach { .. } => "use a model or a source on this machine, or ask the user to name the host",
            Self::Unclear { .. } => "say exactly what the effect reads, writes and reaches",
            Self::Spent { .. } => "stop here, tell what was found, and ask for more",
            Self::NotApproved { .. } => "show the user the exact arguments and ask",
            Self::TooWide { .. } => "ask for less",
            Self::Changed => "ask again for what is to happen now",
            Self::Late => "ask again",
            Self::Unrecorded { .. } => "free some space or mend the receipts, then begin again",
        }
    }
}

/// No.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{reason}; instead: {}", reason.alternative())]
pub struct Refusal {
    /// Why not.
    #[serde(flatten)]
    pub reason: Reason,
}

impl Refusal {
    /// What could be done instead.
    pub const fn alternative(&self) -> &'static str {
        self.reason.alternative()
    }
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self { reason }
    }
}
