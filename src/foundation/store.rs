//! Crash-safe files: a [`Disk`] that may be the real one or one that can be made to fail, a [`Transaction`] that
//! changes many files of one folder, all or none, and the log of [`receipts`]. Knows nothing of what the files say.

mod disk;
mod lock;
pub mod receipts;
mod sim;
mod transaction;
mod whole;

pub use disk::{Disk, Lock, RealDisk, Stamp};
pub use lock::FileLock;
pub use sim::{SimDisk, Surviving};
pub use transaction::{Change, Committed, HOME, Recovery, StoreError, Transaction, recover, replace};
pub use whole::{sync_names, write_whole};
