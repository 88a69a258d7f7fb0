//! Crash-safe transactions over the files of one folder: all changes are made, or none.
//!
//! The caller holds the exclusive lock. All temporary files are in `.loom/tx/`:
//!
//! 1. `N.new` and `N.old` (new and former bytes of change N) are written and synced, with their folder.
//! 2. The journal names each path with the digests of both, and carries a digest of itself. It is written as
//!    `journal.tmp`, synced, renamed to `prepared`, the folder synced. From here a crash is undone.
//! 3. Every target is compared with its former digest again, then `N.new` is renamed over it; folders are synced.
//! 4. The caller's check runs on the new files. If it fails, everything is undone.
//! 5. `prepared` is renamed to `committed` and the folder synced: the transaction is committed. Then `.loom/tx/` is
//!    removed.
//!
//! Recovery finds nothing; temporary files without a journal (removed); `prepared` (undone); or `committed` (every target
//! is durable already: only temporary files are removed). Undoing restores a file only if its bytes are the former or the
//! new ones; other bytes are an edit by somebody else, and recovery stops with [`StoreError::Conflict`].
//!
//! An editor that takes no lock could save between the comparison of step 3 and the rename; no portable operation
//! prevents that.

use std::io;

use serde::{Deserialize, Serialize};

use super::disk::Disk;
use super::disk::parent;
use crate::foundation::base::Digest;

/// The folder of internal files: lock, transaction in progress, caches.
pub const LOOM_DIR: &str = ".loom";
const TX: &str = ".loom/tx";
const PREPARED: &str = ".loom/tx/prepared";
const COMMITTED: &str = ".loom/tx/committed";

/// The change of one file; `None` means that the file does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// The file, relative to the disk's root.
    pub path: String,
    /// Expected current content.
    pub before: Option<Vec<u8>>,
    /// New content.
    pub after: Option<Vec<u8>>,
}

/// Errors of transactions.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An I/O error.
    #[error("cannot {action} `{path}`: {source}")]
    Io {
        /// The operation.
        action: &'static str,
        /// The file.
        path: String,
        /// The error.
        source: io::Error,
    },
    /// A file changed during the operation; nothing was written.
    #[error("`{0}` was edited during this command; nothing was changed, run the command again")]
    Edited(String),
    /// A file of an interrupted transaction was edited since; it is not changed.
    #[error(
        "`{0}` was edited after an interrupted change: move your version elsewhere, run the command again, then merge it"
    )]
    Conflict(String),
    /// The caller's check failed; everything was undone.
    #[error("the check after writing failed, everything was undone: {0}")]
    Refused(String),
}

/// What [`recover`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// No transaction was in progress.
    Clean,
    /// A transaction was undone.
    Undone,
    /// A transaction was committed already; its temporary files were removed.
    Completed,
}

/// The result of a committed transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Number of changed files.
    pub files: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    path: String,
    before: Option<Digest>,
    after: Option<Digest>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Journal {
    entries: Vec<Entry>,
    /// Folders that it created, outermost first.
    made: Vec<String>,
}

trait IoContext<T> {
    fn at(self, action: &'static str, path: &str) -> Result<T, StoreError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &str) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Io { action, path: path.to_owned(), source })
    }
}

/// Changes that are made atomically, in order.
#[derive(Debug, Default)]
pub struct Transaction {
    changes: Vec<FileChange>,
}

impl Transaction {
    /// A transaction of these changes; those with equal contents are dropped.
    pub fn new(changes: impl IntoIterator<Item = FileChange>) -> Self {
        Self { changes: changes.into_iter().filter(|change| change.before != change.after).collect() }
    }

    /// Commits all changes or none. The caller holds the lock and has called [`recover`]. `check` runs when every file has
    /// its new content; an error from it undoes everything.
    ///
    /// # Errors
    /// After [`StoreError::Edited`] and [`StoreError::Refused`] the files are unchanged. After an I/O error the next
    /// [`recover`] completes or undoes the transaction.
    pub fn commit(
        self,
        disk: &dyn Disk,
        check: impl FnOnce(&dyn Disk) -> Result<(), String>,
    ) -> Result<Committed, StoreError> {
        let entries: Vec<_> = self
            .changes
            .iter()
            .map(|change| Entry {
                path: change.path.clone(),
                before: change.before.as_ref().map(Digest::of),
                after: change.after.as_ref().map(Digest::of),
            })
            .collect();
        let committed = Committed { files: entries.len() };
        if entries.is_empty() {
            return Ok(committed);
        }
        for entry in &entries {
            ensure_unchanged(disk, entry)?;
        }
        let journal = Journal { made: missing_dirs(disk, &entries), entries };
        self.prepare(disk, &journal)?;
        let mut made = 0;
        let done = apply(disk, &journal, &mut made).and_then(|()| check(disk).map_err(StoreError::Refused));
        if let Err(error) = done {
            // A file that was edited before it was replaced stays as it is; only replaced files are restored.
            if matches!(error, StoreError::Refused(_) | StoreError::Edited(_)) {
                undo(disk, &journal, made)?;
            }
            return Err(error);
        }
        disk.rename(PREPARED, COMMITTED).at("commit", COMMITTED)?;
        disk.sync_dir(TX).at("sync", TX)?;
        remove_temporaries(disk)?;
        Ok(committed)
    }

    fn prepare(&self, disk: &dyn Disk, journal: &Journal) -> Result<(), StoreError> {
        disk.make_dir(TX).at("create", TX)?;
        for (number, change) in self.changes.iter().enumerate() {
            for (bytes, kind) in [(&change.after, "new"), (&change.before, "old")] {
                if let Some(bytes) = bytes {
                    put(disk, &scratch(number, kind), bytes)?;
                }
            }
        }
        let text = serde_json::to_string(journal).map_err(io::Error::other).at("write", PREPARED)?;
        let temporary = format!("{TX}/journal.tmp");
        put(disk, &temporary, format!("{}\n{text}", Digest::of(&text)).as_bytes())?;
        disk.sync_dir(TX).at("sync", TX)?;
        disk.sync_dir(LOOM_DIR).at("sync", LOOM_DIR)?;
        // LOOM_DIR itself may be new.
        disk.sync_dir(parent(LOOM_DIR)).at("sync", LOOM_DIR)?;
        disk.rename(&temporary, PREPARED).at("prepare", PREPARED)?;
        disk.sync_dir(TX).at("sync", TX)
    }
}

/// Applies the changes; `made` counts those applied.
fn apply(disk: &dyn Disk, journal: &Journal, made: &mut usize) -> Result<(), StoreError> {
    for dir in &journal.made {
        disk.make_dir(dir).at("create", dir)?;
        disk.sync_dir(parent(dir)).at("sync", parent(dir))?;
    }
    // Undoing later changes may rely on earlier ones, so each folder is synced before the next one is changed.
    let mut open: Option<&str> = None;
    for (number, entry) in journal.entries.iter().enumerate() {
        let dir = parent(&entry.path);
        if let Some(previous) = open.filter(|previous| *previous != dir) {
            disk.sync_dir(previous).at("sync", previous)?;
        }
        ensure_unchanged(disk, entry)?;
        match entry.after {
            Some(_) => disk.rename(&scratch(number, "new"), &entry.path).at("replace", &entry.path)?,
            None => disk.remove(&entry.path).at("remove", &entry.path)?,
        }
        *made += 1;
        open = Some(dir);
    }
    open.map_or(Ok(()), |dir| disk.sync_dir(dir).at("sync", dir))
}

/// Completes or undoes an interrupted transaction. The caller holds the exclusive lock.
///
/// # Errors
/// [`StoreError::Conflict`] if a file was edited since; it is not changed.
pub fn recover(disk: &dyn Disk) -> Result<Recovery, StoreError> {
    if !disk.is_dir(TX) {
        return Ok(Recovery::Clean);
    }
    if let Some(journal) = read_journal(disk)? {
        undo(disk, &journal, journal.entries.len())?;
        return Ok(Recovery::Undone);
    }
    let completed = disk.read(COMMITTED).at("read", COMMITTED)?.is_some();
    remove_temporaries(disk)?;
    Ok(if completed { Recovery::Completed } else { Recovery::Clean })
}

fn read_journal(disk: &dyn Disk) -> Result<Option<Journal>, StoreError> {
    let Some(bytes) = disk.read(PREPARED).at("read", PREPARED)? else { return Ok(None) };
    let damaged = || StoreError::Io {
        action: "read",
        path: PREPARED.to_owned(),
        source: io::Error::new(
            io::ErrorKind::InvalidData,
            "its digest does not match: the disk is faulty or the file was edited",
        ),
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| damaged())?;
    let (sum, text) = text.split_once('\n').ok_or_else(damaged)?;
    if sum != Digest::of(text).to_string() {
        return Err(damaged());
    }
    serde_json::from_str(text).map(Some).map_err(|_| damaged())
}

/// Restores the former bytes of the first `made` changes, last change first, then removes the transaction.
fn undo(disk: &dyn Disk, journal: &Journal, made: usize) -> Result<(), StoreError> {
    for entry in journal.entries.iter().take(made) {
        let now = digest(disk, &entry.path)?;
        if now.is_some() && now != entry.before && now != entry.after {
            return Err(StoreError::Conflict(entry.path.clone()));
        }
    }
    for (number, entry) in journal.entries.iter().enumerate().take(made).rev() {
        if digest(disk, &entry.path)? == entry.before {
            continue;
        }
        if entry.before.is_some() {
            let old = scratch(number, "old");
            let bytes = disk.read(&old).at("read", &old)?.filter(|bytes| Some(Digest::of(bytes)) == entry.before);
            let bytes = bytes.ok_or_else(|| StoreError::Conflict(old.clone()))?;
            let back = scratch(number, "back");
            put(disk, &back, &bytes)?;
            disk.rename(&back, &entry.path).at("restore", &entry.path)?;
        } else {
            disk.remove(&entry.path).at("remove", &entry.path)?;
        }
    }
    // Restored names may not be durable yet, also those of an earlier recovery: sync every folder.
    let mut dirs: Vec<_> =
        journal.entries.iter().map(|entry| parent(&entry.path)).filter(|dir| disk.is_dir(dir)).collect();
    dirs.dedup();
    for dir in dirs {
        disk.sync_dir(dir).at("sync", dir)?;
    }
    for dir in journal.made.iter().rev() {
        // The folder may contain files of others.
        let empty = disk.list(dir).is_ok_and(|(files, dirs)| files.is_empty() && dirs.is_empty());
        if empty {
            disk.remove_dir(dir).at("remove", dir)?;
        }
    }
    disk.remove(PREPARED).at("remove", PREPARED)?;
    disk.sync_dir(TX).at("sync", TX)?;
    remove_temporaries(disk)
}

/// Removes the transaction's folder.
fn remove_temporaries(disk: &dyn Disk) -> Result<(), StoreError> {
    let (files, _) = disk.list(TX).at("list", TX)?;
    for name in files {
        let path = format!("{TX}/{name}");
        disk.remove(&path).at("remove", &path)?;
    }
    disk.remove_dir(TX).at("remove", TX)
}

/// Replaces one file atomically; a single rename needs no journal. The caller holds the lock.
///
/// # Errors
/// [`StoreError::Edited`] if the content of the file is not `change.before`.
pub fn replace(disk: &dyn Disk, change: &FileChange) -> Result<(), StoreError> {
    let Some(after) = &change.after else {
        return Transaction::new([change.clone()]).commit(disk, |_| Ok(())).map(|_| ());
    };
    let entry = Entry { path: change.path.clone(), before: change.before.as_ref().map(Digest::of), after: None };
    disk.make_dir(TX).at("create", TX)?;
    let new = scratch(0, "new");
    put(disk, &new, after)?;
    ensure_unchanged(disk, &entry)?;
    disk.rename(&new, &change.path).at("replace", &change.path)?;
    disk.sync_dir(parent(&change.path)).at("sync", &change.path)?;
    disk.remove_dir(TX).at("remove", TX)
}

fn put(disk: &dyn Disk, path: &str, bytes: &[u8]) -> Result<(), StoreError> {
    disk.write(path, bytes).at("write", path)?;
    disk.sync(path).at("sync", path)
}

fn ensure_unchanged(disk: &dyn Disk, entry: &Entry) -> Result<(), StoreError> {
    if digest(disk, &entry.path)? == entry.before { Ok(()) } else { Err(StoreError::Edited(entry.path.clone())) }
}

fn digest(disk: &dyn Disk, path: &str) -> Result<Option<Digest>, StoreError> {
    Ok(disk.read(path).at("read", path)?.map(Digest::of))
}

fn scratch(number: usize, kind: &str) -> String {
    format!("{TX}/{number}.{kind}")
}

/// Missing folders of the new files, outermost first.
fn missing_dirs(disk: &dyn Disk, entries: &[Entry]) -> Vec<String> {
    let mut missing = std::collections::BTreeSet::new();
    for entry in entries.iter().filter(|entry| entry.after.is_some()) {
        let mut dir = parent(&entry.path);
        while !dir.is_empty() && !disk.is_dir(dir) && missing.insert(dir.to_owned()) {
            dir = parent(dir);
        }
    }
    missing.into_iter().collect()
}

#[cfg(test)]
mod tests;
