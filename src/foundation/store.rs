//! Crash-safe files: the trait [`Disk`], with a simulated disk that fails at a chosen operation; a [`Transaction`] that
//! changes many files of one folder atomically; and the log of [`receipts`]. Independent of the files' contents.

mod disk;
mod lock;
pub mod receipts;
mod sim;
mod transaction;
mod atomic;

pub use atomic::{sync_parent, write_atomic};
pub use disk::{Disk, DiskLock, FileStamp, RealDisk};
pub use lock::FileLock;
pub use sim::{CrashOutcome, SimDisk};
pub use transaction::{Committed, FileChange, LOOM_DIR, Recovery, StoreError, Transaction, recover, replace};
