//! Changing many files of one folder, all or none, over any crash.
//!
//! The caller holds the exclusive lock. Everything transient lives in `.loom/tx/`:
//!
//! 1. `N.new` and `N.old` (new and former bytes of change N) are written and synced, with their folder.
//! 2. The journal names each path with the digests of both, and carries a digest of itself. It is written as
//!    `journal.tmp`, synced, renamed to `prepared`, the folder synced. From here a crash is undone.
//! 3. Every target is compared with its former digest once more, then `N.new` is renamed over it; folders are synced.
//! 4. The caller's check runs on the files as they stand. If it says no, everything is undone.
//! 5. `prepared` is renamed to `committed` and the folder synced: from here the change stands. Then `.loom/tx/` goes.
//!
//! Recovery finds nothing, rubbish (no journal: removed), `prepared` (undone) or `committed` (every target is durable by
//! then: only the rubbish is removed). Undoing restores a file only where its bytes are the transaction's own; bytes
//! that are neither the former nor the new ones are somebody's edit, and recovery stops and says so.
//!
//! Between the comparison of step 3 and the rename lies a moment in which an editor that takes no lock could save
//! unseen; no portable operation closes it.

use std::io;

use serde::{Deserialize, Serialize};

use super::disk::Disk;
use super::sim::parent;
use crate::foundation::base::Digest;

/// The folder of everything that is not the user's: lock, transaction in flight, caches.
pub const HOME: &str = ".loom";
const TX: &str = ".loom/tx";
const PREPARED: &str = ".loom/tx/prepared";
const COMMITTED: &str = ".loom/tx/committed";

/// One file before and after; `None` where there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The file, relative to the disk's root.
    pub path: String,
    /// What it must hold now.
    pub before: Option<Vec<u8>>,
    /// What it shall hold.
    pub after: Option<Vec<u8>>,
}

/// What can go wrong with files.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system said no.
    #[error("cannot {action} `{path}`: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// A file changed while it was being worked on; nothing was written.
    #[error("`{0}` was edited while this ran; nothing was changed, run the command again")]
    Edited(String),
    /// A crash left a file that somebody then edited; it is not touched.
    #[error(
        "`{0}` was edited after an interrupted change: move your version aside, run the command again, then merge it"
    )]
    Conflict(String),
    /// The caller's check refused what stood on the disk; everything was undone.
    #[error("the check after writing said no, everything was undone: {0}")]
    Refused(String),
}

/// What [`recover`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// No change was in flight.
    Clean,
    /// One was; it has been undone.
    Undone,
    /// One had been completed; its rubbish has been removed.
    Completed,
}

/// That a transaction stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// How many files it changed.
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
    /// Folders that were made for it, outermost first.
    made: Vec<String>,
}

trait At<T> {
    fn at(self, action: &'static str, path: &str) -> Result<T, StoreError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &str) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Io { action, path: path.to_owned(), source })
    }
}

/// Several changes that happen together. Earlier ones are made first.
#[derive(Debug, Default)]
pub struct Transaction {
    changes: Vec<Change>,
}

impl Transaction {
    /// A transaction of these changes; those that change nothing are left out.
    pub fn new(changes: impl IntoIterator<Item = Change>) -> Self {
        Self { changes: changes.into_iter().filter(|change| change.before != change.after).collect() }
    }

    /// Makes the changes durable, or none of them. The caller holds the lock and has called [`recover`]. `check` runs
    /// on the disk when every file has its new bytes; what it answers as an error undoes everything.
    ///
    /// # Errors
    /// After [`StoreError::Edited`] and [`StoreError::Refused`] the files are as before. After an I/O error the next
    /// [`recover`] decides.
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
            still(disk, entry)?;
        }
        let journal = Journal { made: missing_dirs(disk, &entries), entries };
        self.prepare(disk, &journal)?;
        let mut made = 0;
        let done = carry_out(disk, &journal, &mut made).and_then(|()| check(disk).map_err(StoreError::Refused));
        if let Err(error) = done {
            // Whatever was edited before its turn came stays as it is; only what was replaced is put back.
            if matches!(error, StoreError::Refused(_) | StoreError::Edited(_)) {
                undo(disk, &journal, made)?;
            }
            return Err(error);
        }
        disk.rename(PREPARED, COMMITTED).at("commit", COMMITTED)?;
        disk.sync_dir(TX).at("sync", TX)?;
        sweep(disk)?;
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
        disk.sync_dir(HOME).at("sync", HOME)?;
        // In a workspace that was just cloned, HOME itself is new.
        disk.sync_dir(parent(HOME)).at("sync", HOME)?;
        disk.rename(&temporary, PREPARED).at("prepare", PREPARED)?;
        disk.sync_dir(TX).at("sync", TX)
    }
}

/// Steps through the changes; `made` counts those that are done.
fn carry_out(disk: &dyn Disk, journal: &Journal, made: &mut usize) -> Result<(), StoreError> {
    for dir in &journal.made {
        disk.make_dir(dir).at("create", dir)?;
        disk.sync_dir(parent(dir)).at("sync", parent(dir))?;
    }
    // The first change's folder may hold what undoing the others relies on, so runs of one folder are synced in order.
    let mut open: Option<&str> = None;
    for (number, entry) in journal.entries.iter().enumerate() {
        let dir = parent(&entry.path);
        if let Some(previous) = open.filter(|previous| *previous != dir) {
            disk.sync_dir(previous).at("sync", previous)?;
        }
        still(disk, entry)?;
        match entry.after {
            Some(_) => disk.rename(&scratch(number, "new"), &entry.path).at("replace", &entry.path)?,
            None => disk.remove(&entry.path).at("remove", &entry.path)?,
        }
        *made += 1;
        open = Some(dir);
    }
    open.map_or(Ok(()), |dir| disk.sync_dir(dir).at("sync", dir))
}

/// Brings the folder to rest after whatever happened before. The caller holds the exclusive lock.
///
/// # Errors
/// [`StoreError::Conflict`] where an edit came between; nothing of it is touched.
pub fn recover(disk: &dyn Disk) -> Result<Recovery, StoreError> {
    if !disk.is_dir(TX) {
        return Ok(Recovery::Clean);
    }
    if let Some(journal) = read_journal(disk)? {
        undo(disk, &journal, journal.entries.len())?;
        return Ok(Recovery::Undone);
    }
    let completed = disk.read(COMMITTED).at("read", COMMITTED)?.is_some();
    sweep(disk)?;
    Ok(if completed { Recovery::Completed } else { Recovery::Clean })
}

fn read_journal(disk: &dyn Disk) -> Result<Option<Journal>, StoreError> {
    let Some(bytes) = disk.read(PREPARED).at("read", PREPARED)? else { return Ok(None) };
    let damaged = || StoreError::Io {
        action: "read",
        path: PREPARED.to_owned(),
        source: io::Error::new(
            io::ErrorKind::InvalidData,
            "its digest does not match; it was synced before it got its name, so the disk or somebody changed it",
        ),
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| damaged())?;
    let (sum, text) = text.split_once('\n').ok_or_else(damaged)?;
    if sum != Digest::of(text).to_string() {
        return Err(damaged());
    }
    serde_json::from_str(text).map(Some).map_err(|_| damaged())
}

/// Gives the files of the first `made` changes their former bytes, last change first, then forgets the transaction.
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
    // A name may be back without having been made durable, also by an earlier recovery: sync every folder.
    let mut dirs: Vec<_> =
        journal.entries.iter().map(|entry| parent(&entry.path)).filter(|dir| disk.is_dir(dir)).collect();
    dirs.dedup();
    for dir in dirs {
        disk.sync_dir(dir).at("sync", dir)?;
    }
    for dir in journal.made.iter().rev() {
        // Somebody may have put a file there.
        let empty = disk.list(dir).is_ok_and(|(files, dirs)| files.is_empty() && dirs.is_empty());
        if empty {
            disk.remove_dir(dir).at("remove", dir)?;
        }
    }
    disk.remove(PREPARED).at("remove", PREPARED)?;
    disk.sync_dir(TX).at("sync", TX)?;
    sweep(disk)
}

/// Removes the transaction's folder; no journal is in force any more.
fn sweep(disk: &dyn Disk) -> Result<(), StoreError> {
    let (files, _) = disk.list(TX).at("list", TX)?;
    for name in files {
        let path = format!("{TX}/{name}");
        disk.remove(&path).at("remove", &path)?;
    }
    disk.remove_dir(TX).at("remove", TX)
}

/// Replaces one file atomically: no journal is needed for a single rename. The caller holds the lock.
///
/// # Errors
/// [`StoreError::Edited`] where the file does not hold `change.before`.
pub fn replace(disk: &dyn Disk, change: &Change) -> Result<(), StoreError> {
    let Some(after) = &change.after else {
        return Transaction::new([change.clone()]).commit(disk, |_| Ok(())).map(|_| ());
    };
    let entry = Entry { path: change.path.clone(), before: change.before.as_ref().map(Digest::of), after: None };
    disk.make_dir(TX).at("create", TX)?;
    let new = scratch(0, "new");
    put(disk, &new, after)?;
    still(disk, &entry)?;
    disk.rename(&new, &change.path).at("replace", &change.path)?;
    disk.sync_dir(parent(&change.path)).at("sync", &change.path)?;
    disk.remove_dir(TX).at("remove", TX)
}

fn put(disk: &dyn Disk, path: &str, bytes: &[u8]) -> Result<(), StoreError> {
    disk.write(path, bytes).at("write", path)?;
    disk.sync(path).at("sync", path)
}

fn still(disk: &dyn Disk, entry: &Entry) -> Result<(), StoreError> {
    if digest(disk, &entry.path)? == entry.before { Ok(()) } else { Err(StoreError::Edited(entry.path.clone())) }
}

fn digest(disk: &dyn Disk, path: &str) -> Result<Option<Digest>, StoreError> {
    Ok(disk.read(path).at("read", path)?.map(Digest::of))
}

fn scratch(number: usize, kind: &str) -> String {
    format!("{TX}/{number}.{kind}")
}

/// The folders that the new files need and that are not there, outermost first.
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
