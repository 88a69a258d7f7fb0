//! Tools with effects outside the program. Each tool describes an effect ([`Effect`]) and performs it with a [`Permit`]
//! for exactly that.

#[cfg(unix)]
mod exec;
mod files;
mod memory;

#[cfg(unix)]
pub use exec::{Containment, Exec, Ran};
pub use files::Files;
pub use memory::Memory;

use crate::foundation::gate::Refusal;

/// Why a tool failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The permit is for another effect, or has expired.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The path leaves the folder: by `..`, as an absolute path, or through a link.
    #[error("`{path}` is outside the opened folder: {source}")]
    Outside {
        /// The path.
        path: String,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A file system error.
    #[error("cannot {action} `{path}`: {source}")]
    Io {
        /// The attempted operation.
        action: &'static str,
        /// Its path.
        path: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The memory's error.
    #[error("the memory failed: {0}")]
    Memory(String),
    /// The file is too large.
    #[error("`{path}` is larger than {most} bytes: use a smaller file")]
    TooLarge {
        /// The path.
        path: String,
        /// The maximum size in bytes.
        most: u64,
    },
}

#[cfg(test)]
mod tests {
    //! A gate for the tests of the tools.

    use jiff::{SignedDuration, Timestamp};

    use crate::foundation::base::Digest;
    use crate::foundation::gate::{
        Budget, Categories, Category, Effect, EffectRequest, Gate, LeaseId, LeaseTerms, Ledger, LedgerEntry,
        LedgerError, Permit, Principal, Rights, Scope, Scopes,
    };

    pub(super) struct NullLedger;

    impl Ledger for NullLedger {
        fn record(&mut self, _: Timestamp, entries: &[LedgerEntry]) -> Result<Vec<Digest>, LedgerError> {
            Ok(entries.iter().map(|entry| Digest::of(&entry.kind)).collect())
        }
    }

    /// Grants every effect that is not privileged.
    pub(super) struct TestGate {
        gate: Gate<NullLedger>,
        lease: LeaseId,
        pub(super) now: Timestamp,
    }

    impl TestGate {
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
            let terms = LeaseTerms { rights, expires: now + hour, idle: hour };
            let (gate, lease) = Gate::open(NullLedger, Principal::new("test", "test", "calm"), terms, now).unwrap();
            Self { gate, lease, now }
        }

        pub(super) fn permit(&mut self, effect: &Effect) -> Permit {
            self.gate.ask(&EffectRequest { lease: self.lease, effect: effect.clone() }, self.now).unwrap()
        }
    }
}
