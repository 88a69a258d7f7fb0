//! Advisory locks on open files, between and within processes.

use std::fs::{File, TryLockError};
use std::io;

/// An advisory lock, released when it is dropped.
///
/// It is released by unlocking, not by closing the file: between `fork` and `exec` a child process holds a copy of every
/// open file, so a lock released by closing would outlive its holder.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// An exclusive lock on `file`; `None` if another holder has a lock.
    ///
    /// # Errors
    /// An error of the file system, for example if it does not support locks.
    pub fn exclusive(file: File) -> io::Result<Option<Self>> {
        Self::of(file.try_lock(), file)
    }

    /// A shared lock on `file`; `None` if another holder has an exclusive lock.
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
        // If this fails, closing the file releases the lock.
        let _closed_next = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_with_its_holder_even_if_a_copy_of_the_file_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let file = File::create(&path).unwrap();
        // Stands for the copy of a child process before `exec`.
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
