//! What touches the world. Each tool says what it is about to do ([`Effect`]) and does it for a [`Permit`] of exactly that.

#[cfg(unix)]
mod exec;
mod files;
mod memory;

#[cfg(unix)]
pub use exec::{Containment, Exec, Ran};
pub use files::Files;
pub use memory::Memory;

use crate::foundation::gate::Refusal;

/// Why a tool did nothing.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The permit is for something else, or came too late.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The path leaves the folder, by `..`, as an absolute path or through a link.
    #[error("`{path}` is not inside the folder that was opened: {source}")]
    Outside {
        /// The path.
        path: String,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The operating system said no.
    #[error("cannot {action} `{path}`: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The memory said no.
    #[error("the memory: {0}")]
    Memory(String),
    /// A limit was met.
    #[error("`{path}` is larger than {most} bytes: name a smaller file")]
    TooLarge {
        /// The path.
        path: String,
        /// How many bytes a file may have.
        most: u64,
    },
}

#[cfg(test)]
mod tests {
    //! A gate for the tools' tests.

    use jiff::{SignedDuration, Timestamp};

    use crate::foundation::base::Digest;
    use crate::foundation::gate::{
        Budget, Categories, Category, Effect, Entry, Gate, LeaseId, Ledger, LedgerError, Permit, Principal, Request,
        Rights, Scope, Scopes, Terms,
    };

    pub(super) struct Paper;

    impl Ledger for Paper {
        fn record(&mut self, _: Timestamp, entries: &[Entry]) -> Result<Vec<Digest>, LedgerError> {
            Ok(entries.iter().map(|entry| Digest::of(&entry.kind)).collect())
        }
    }

    /// Gives permits for everything that is not privileged.
    pub(super) struct Keeper {
        gate: Gate<Paper>,
        lease: LeaseId,
        pub(super) now: Timestamp,
    }

    impl Keeper {
        pub(super) fn new() -> Self {
            let now = Timestamp::UNIX_EPOCH;
            let budget = Budget {
                money_micros: 0,
                tokens: 1_000,
                wall_ms: 600_000,
                calls: 1_000,
                files: 100,
                diff_lines: 1_000,
            };
            let rights = Rights {
                uses: Categories::of(Category::ALL),
                reads: Scopes::of(Scope::ALL),
                writes: Scopes::of(Scope::ALL),
                budget,
                ..Rights::NONE
            };
            let hour = SignedDuration::from_hours(1);
            let terms = Terms { rights, expires: now + hour, idle: hour };
            let (gate, lease) = Gate::open(Paper, Principal::new("test", "test", "calm"), terms, now).unwrap();
            Self { gate, lease, now }
        }

        pub(super) fn permit(&mut self, effect: &Effect) -> Permit {
            self.gate.ask(&Request { lease: self.lease, effect: effect.clone() }, self.now).unwrap()
        }
    }
}
