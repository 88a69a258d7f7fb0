//! A lock on one open file, among processes and within one.

use std::fs::{File, TryLockError};
use std::io;

/// An advisory lock, held until it is dropped.
///
/// It is given back by unlocking, not by closing: a child that is being started holds a copy of every open file until
/// its own program begins, and a lock that only its last copy ends would outlive its holder by that moment.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// The lock on `file`, which nobody else then has; `None` where somebody has it.
    ///
    /// # Errors
    /// What the file system says, where it knows no locks, say.
    pub fn exclusive(file: File) -> io::Result<Option<Self>> {
        Self::of(file.try_lock(), file)
    }

    /// A lock on `file` that any number may share; `None` where somebody has it alone.
    ///
    /// # Errors
    /// As [`exclusive`](Self::exclusive).
    pub fn shared(file: File) -> io::Result<Option<Self>> {
        Self::of(file.try_lock_shared(), file)
    }

    fn of(tried: Result<(), TryLockError>, file: File) -> io::Result<Option<Self>> {
        match tried {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Where this fails, closing the file does it.
        let _closed_next = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_with_its_holder_though_a_copy_of_the_file_stays_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let file = File::create(&path).unwrap();
        // What a child that is just being started has.
        let copy = file.try_clone().unwrap();
        let alone = FileLock::exclusive(file).unwrap().unwrap();
        let open = || File::open(&path).unwrap();
        assert!(FileLock::exclusive(open()).unwrap().is_none());
        assert!(FileLock::shared(open()).unwrap().is_none());
        drop(alone);
        let shared = FileLock::shared(open()).unwrap().unwrap();
        assert!(FileLock::shared(open()).unwrap().is_some());
        assert!(FileLock::exclusive(open()).unwrap().is_none());
        drop(shared);
        assert!(FileLock::exclusive(open()).unwrap().is_some());
        drop(copy);
    }
}
