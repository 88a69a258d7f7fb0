//! Crash-safe files: the trait [`Disk`]; a [`Transaction`] that
//! changes many files of one folder atomically; and the log of [`receipts`]. Independent of the files' contents.

mod disk;
mod lock;
pub mod receipts;
#[cfg(test)]
mod sim;
mod transaction;
mod atomic;

pub use atomic::{sync_parent, write_atomic};
pub use disk::{Disk, DiskLock, FileStamp, RealDisk};
pub use lock::FileLock;
#[cfg(test)]
pub(crate) use sim::{CrashOutcome, SimDisk};
pub use transaction::{Committed, FileChange, LOOM_DIR, Recovery, StoreError, Transaction, recover, replace};
