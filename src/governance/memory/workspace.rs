//! The only part of the memory that accesses the disk: it locks, recovers, reads the texts, calls the pure parts, and
//! commits the resulting [`WriteSet`] atomically.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use super::approval::ApprovalError;
use super::authority::{WorkspaceArea, WriteForbidden, WriteSet, Writer};
use super::edit::EditError;
use super::mode::ModeError;
use super::plan::ApplyRefusal;
use super::state::{CONFIG_FILE, MemoryConfig, MemoryState, STATE_FILE};
use super::texts::WorkspaceTexts;
use crate::foundation::base::limits;
use crate::foundation::chat::ModelError;
use crate::foundation::store::{
    Disk, DiskLock, FileChange, LOOM_DIR, RealDisk, StoreError, Transaction, recover, replace,
};

mod operations;
mod apply;
mod cached_search;
mod init;
#[cfg(test)]
pub(super) mod test_permits;
mod proposals;
mod transfer;

pub use apply::ApplyOutcome;
pub use cached_search::CachedSearch;
pub use init::InitReport;
pub use proposals::{DecisionDraft, ProposalRequest, ProposalReview};
pub use transfer::{BlockRecord, ImportReport};

const LOCK: &str = ".loom/lock";
/// The path of the validation report.
pub const VALIDATION_REPORT: &str = "maintenance/validation-report.txt";
/// The audit log: one line per change.
pub const AUDIT_FILE: &str = "intelligence/AUDIT.md";

/// An error of the memory.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// There is no workspace.
    #[error("`{0}` is no memory workspace: make one with `loom memory init`")]
    NoWorkspace(String),
    /// A file is not valid UTF-8.
    #[error("`{0}` is not UTF-8 text: save it as UTF-8")]
    NotText(String),
    /// A file is too large.
    #[error("`{path}` is larger than {} bytes", limits::MEMORY_BYTES_MAX)]
    TooLarge {
        /// The path.
        path: String,
    },
    /// The settings cannot be read.
    #[error("`{CONFIG_FILE}` cannot be read: {0}")]
    Config(serde_json::Error),
    /// A file operation failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A proposal cannot be applied.
    #[error(transparent)]
    ApplyRefusal(#[from] ApplyRefusal),
    /// The mode does not allow it.
    #[error(transparent)]
    Mode(#[from] ModeError),
    /// A writer tried to write a file that it does not own.
    #[error(transparent)]
    WriteForbidden(#[from] WriteForbidden),
    /// An edit does not fit its text.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The gate denied it.
    #[error(transparent)]
    Denied(#[from] crate::foundation::gate::Refusal),
    /// No person and no policy approved it.
    #[error(transparent)]
    NotApproved(#[from] ApprovalError),
    /// The embedder failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The request refers to something missing or is not valid.
    #[error("{0}")]
    InvalidRequest(String),
}

impl MemoryError {
    /// Whether the action was denied by the mode, the write rules or the gate.
    pub const fn is_denial(&self) -> bool {
        matches!(
            self,
            Self::Mode(_)
                | Self::WriteForbidden(_)
                | Self::Denied(_)
                | Self::NotApproved(_)
                | Self::ApplyRefusal(ApplyRefusal::Mode(_))
        )
    }
}

type Result<T, E = MemoryError> = std::result::Result<T, E>;

/// A memory in a folder at a point in time.
#[derive(Clone)]
pub struct Workspace {
    disk: Arc<dyn Disk>,
    name: String,
    now: Zoned,
}

/// Files, read under a lock that is held as long as this value lives.
struct LoadedFiles {
    texts: WorkspaceTexts,
    /// Files that are not read as text; they are part of snapshots.
    others: BTreeMap<String, Vec<u8>>,
    _lock: Option<Box<dyn DiskLock>>,
}

/// Which files to read.
#[derive(Clone, Copy)]
enum ReadScope<'r> {
    /// All files except applied snapshots and reports.
    All,
    /// These files.
    Files(&'r [&'r str]),
}

impl Workspace {
    /// The memory in the folder `path`, at the time `now`; dates are in UTC.
    ///
    /// # Errors
    /// If there is no such folder.
    pub fn at(path: &std::path::Path, now: Timestamp) -> Result<Self> {
        if !path.is_dir() {
            return Err(MemoryError::NoWorkspace(path.display().to_string()));
        }
        Ok(Self::on(Arc::new(RealDisk::new(path)), path.display().to_string(), now))
    }

    /// The memory on a disk; `name` is used in messages.
    pub fn on(disk: Arc<dyn Disk>, name: impl Into<String>, now: Timestamp) -> Self {
        Self { disk, name: name.into(), now: now.to_zoned(TimeZone::UTC) }
    }

    /// The present texts, read-only.
    ///
    /// # Errors
    /// If the workspace or a file in it cannot be read.
    pub fn texts(&self) -> Result<WorkspaceTexts> {
        Ok(self.read(ReadScope::All)?.texts)
    }

    /// The date.
    pub fn today(&self) -> jiff::civil::Date {
        self.now.date()
    }

    /// ISO time with zone, to the second.
    fn stamp(&self) -> String {
        self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    fn config(texts: &WorkspaceTexts) -> Result<MemoryConfig> {
        MemoryConfig::read(texts.get(CONFIG_FILE)).map_err(MemoryError::Config)
    }

    fn state(texts: &WorkspaceTexts) -> MemoryState {
        MemoryState::read(texts.get(STATE_FILE))
    }

    fn is_workspace(&self) -> bool {
        self.disk.is_dir("decisions")
            && (self.disk.is_dir("intelligence") || self.disk.read(STATE_FILE).is_ok_and(|bytes| bytes.is_some()))
    }

    /// Checks that the folder contains a workspace.
    ///
    /// # Errors
    /// [`MemoryError::NoWorkspace`].
    pub fn demand_workspace(&self) -> Result<()> {
        if self.is_workspace() { Ok(()) } else { Err(MemoryError::NoWorkspace(self.name.clone())) }
    }

    /// Reads under a shared lock, after recovering from an interrupted transaction.
    fn read(&self, reach: ReadScope<'_>) -> Result<LoadedFiles> {
        self.demand_workspace()?;
        if self.prepare_home().is_err() {
            // The folder is read-only: no process can be writing.
            return self.load(reach, None);
        }
        let shared = match self.disk.lock(LOCK, false) {
            Ok(lock) => lock,
            // No lock file exists and none can be created: the folder is read-only.
            Err(error) if error.kind() == ErrorKind::NotFound => return self.load(reach, None),
            Err(source) => return Err(StoreError::Io { action: "lock", path: LOCK.to_owned(), source }.into()),
        };
        if !self.disk.is_dir(".loom/tx") {
            return self.load(reach, Some(shared));
        }
        drop(shared);
        self.lock_and_read(reach)
    }

    /// Reads under an exclusive lock, for writing.
    fn lock_and_read(&self, reach: ReadScope<'_>) -> Result<LoadedFiles> {
        self.demand_workspace()?;
        self.lock_and_read_any(reach)
    }

    fn lock_and_read_any(&self, reach: ReadScope<'_>) -> Result<LoadedFiles> {
        let io = |source| StoreError::Io { action: "create", path: LOOM_DIR.to_owned(), source };
        self.prepare_home().map_err(io)?;
        let io = |source| StoreError::Io { action: "lock", path: LOCK.to_owned(), source };
        let lock = self.disk.lock(LOCK, true).map_err(io)?;
        recover(self.disk.as_ref())?;
        self.load(reach, Some(lock))
    }

    fn prepare_home(&self) -> std::io::Result<()> {
        const IGNORE: &str = ".loom/.gitignore";
        if !self.disk.is_dir(LOOM_DIR) {
            self.disk.make_dir(LOOM_DIR)?;
            self.disk.write(IGNORE, b"*\n")?;
        }
        Ok(())
    }

    fn load(&self, reach: ReadScope<'_>, lock: Option<Box<dyn DiskLock>>) -> Result<LoadedFiles> {
        let mut loaded = LoadedFiles { texts: WorkspaceTexts::default(), others: BTreeMap::new(), _lock: lock };
        match reach {
            ReadScope::Files(paths) => {
                for path in paths {
                    self.load_file(path, &mut loaded)?;
                }
            }
            ReadScope::All => {
                let (files, _) = self.list("")?;
                let root = files.iter().filter(|file| super::texts::is_markdown(file) || *file == CONFIG_FILE);
                for file in root {
                    self.load_file(file, &mut loaded)?;
                }
                for folder in ["decisions", "tasks", "entities", "summaries", "memory", "intelligence"] {
                    self.load_folder(folder, &mut loaded)?;
                }
            }
        }
        Ok(loaded)
    }

    fn load_folder(&self, folder: &str, loaded: &mut LoadedFiles) -> Result<()> {
        let (files, folders) = self.list(folder)?;
        for file in files {
            self.load_file(&format!("{folder}/{file}"), loaded)?;
        }
        for inner in folders {
            let path = format!("{folder}/{inner}");
            if path != "intelligence/applied" && !inner.starts_with('.') {
                self.load_folder(&path, loaded)?;
            }
        }
        Ok(())
    }

    /// The Markdown files below the folder that are not part of the memory. Hidden folders, files that are not text and
    /// files beyond the size limit are left out.
    ///
    /// # Errors
    /// If a folder cannot be listed or a file cannot be read.
    pub fn notes(&self) -> Result<WorkspaceTexts> {
        let mut notes = WorkspaceTexts::default();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let join = |name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            let (files, inner) = self.list(&folder)?;
            for path in files.iter().filter(|file| super::texts::is_markdown(file)).map(|file| join(file)) {
                match self.bytes(&path) {
                    Ok(Some(bytes)) => {
                        if let Ok(text) = String::from_utf8(bytes) {
                            notes.set(path, text);
                        }
                    }
                    Ok(None) | Err(MemoryError::TooLarge { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            let own = |path: &str| matches!(path, "decisions" | "tasks" | "entities" | "intelligence" | "maintenance");
            folders
                .extend(inner.iter().filter(|name| !name.starts_with('.')).map(|name| join(name)).filter(|p| !own(p)));
        }
        Ok(notes)
    }

    fn load_file(&self, path: &str, loaded: &mut LoadedFiles) -> Result<()> {
        let Some(bytes) = self.bytes(path)? else { return Ok(()) };
        if !(matches!(super::texts::extension(path), "md" | "json")) {
            loaded.others.insert(path.to_owned(), bytes);
            return Ok(());
        }
        let text = String::from_utf8(bytes).map_err(|_| MemoryError::NotText(path.to_owned()))?;
        loaded.texts.set(path, text);
        Ok(())
    }

    fn bytes(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let io = |source| StoreError::Io { action: "read", path: path.to_owned(), source };
        let bytes = self.disk.read(path).map_err(io)?;
        if bytes.as_ref().is_some_and(|bytes| bytes.len() as u64 > limits::MEMORY_BYTES_MAX) {
            return Err(MemoryError::TooLarge { path: path.to_owned() });
        }
        Ok(bytes)
    }

    fn list(&self, path: &str) -> Result<(Vec<String>, Vec<String>)> {
        let io = |source| StoreError::Io { action: "list", path: path.to_owned(), source };
        Ok(self.disk.list(path).map_err(io)?)
    }

    /// Commits a write set atomically. New snapshots are written first, so that no file changes before its copy exists.
    fn commit<W: Writer>(&self, loaded: &LoadedFiles, writes: WriteSet<W>) -> Result<usize> {
        let before = |path: &str| loaded.texts.get(path).map(|text| text.as_bytes().to_vec());
        let (files, copies) = writes.into_files();
        let copies = copies.into_iter().map(|(path, bytes)| FileChange { before: None, path, after: Some(bytes) });
        let texts = files.into_iter().map(|(path, text)| FileChange {
            before: before(&path),
            path,
            after: Some(text.into_bytes()),
        });
        let mut changes: Vec<_> = copies.chain(texts).filter(|change| change.before != change.after).collect();
        changes.sort_by_key(|change| WorkspaceArea::of(&change.path) != Some(WorkspaceArea::Applied));
        if let [change] = changes.as_slice()
            && change.path.rsplit_once('/').is_none_or(|(folder, _)| self.disk.is_dir(folder))
        {
            replace(self.disk.as_ref(), change)?;
            return Ok(1);
        }
        let expected: Vec<_> = changes.iter().map(|change| (change.path.clone(), change.after.clone())).collect();
        let check = |disk: &dyn Disk| {
            let wrong = expected.iter().find(|(path, bytes)| disk.read(path).is_ok_and(|now| now != *bytes));
            wrong.map_or(Ok(()), |(path, _)| Err(format!("`{path}` does not hold what was written")))
        };
        Ok(Transaction::new(changes).commit(self.disk.as_ref(), check)?.files)
    }
}
