//! Crash-safe files: the trait [`Disk`]; a [`Transaction`] that
//! changes many files of one folder atomically; and the log of [`receipts`]. Independent of the files' contents.

mod disk;
mod lock;
mod regular;
pub mod receipts;
#[cfg(test)]
mod sim;
mod transaction;
mod atomic;

pub use atomic::{
    append_inside, copy_inside, create_inside, require_no_links, sync_parent, write_atomic, write_inside, write_shared,
};
pub use disk::{Disk, DiskLock, FileStamp, RealDisk};
pub use lock::FileLock;
pub use regular::{open_regular, read_from, read_limited, read_text};
#[cfg(test)]
pub(crate) use sim::{CrashOutcome, SimDisk};
pub use transaction::{Committed, FileChange, LOOM_DIR, Recovery, StoreError, Transaction, recover, replace};
