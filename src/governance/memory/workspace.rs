//! The one part of the memory that touches a disk: it locks, recovers, reads the texts, lets the pure parts decide, and
//! has what their pens hold written all at once.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use super::authority::{Forbidden, Pen, Place, Writer};
use super::edit::EditError;
use super::mode::ModeError;
use super::plan::Refusal;
use super::state::{CONFIG, Config, STATE, State};
use super::texts::Texts;
use crate::foundation::base::limits;
use crate::foundation::chat::ModelError;
use crate::foundation::store::{Change, Disk, HOME, Lock, RealDisk, StoreError, Transaction, recover, replace};

mod act;
mod apply;
mod finder;
mod found;
#[cfg(test)]
pub(super) mod permitted;
mod review;
mod transfer;

pub use apply::Applied;
pub use finder::Finder;
pub use found::Created;
pub use review::{Request, Review};
pub use transfer::{Imported, Record};

const LOCK: &str = ".loom/lock";
/// Where `validate` writes what it finds.
pub const VALIDATION: &str = "maintenance/validation-report.txt";
/// One line for every change of truth.
pub const AUDIT: &str = "intelligence/AUDIT.md";

/// What can go wrong with a memory.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// There is no workspace.
    #[error("`{0}` is no memory workspace: make one with `loom memory init`")]
    NoWorkspace(String),
    /// A file cannot be read as text.
    #[error("`{0}` is not UTF-8 text: save it as UTF-8")]
    NotText(String),
    /// A file is too large.
    #[error("`{path}` is larger than {} bytes", limits::MEMORY_BYTES_MAX)]
    TooLarge {
        /// Which.
        path: String,
    },
    /// The settings cannot be read.
    #[error("`{CONFIG}` cannot be read: {0}")]
    Config(serde_json::Error),
    /// Something about files.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A proposal is not to be applied.
    #[error(transparent)]
    Refusal(#[from] Refusal),
    /// The mode is against it.
    #[error(transparent)]
    Mode(#[from] ModeError),
    /// A writer tried what is not its own.
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    /// An edit does not fit.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The gate is against it.
    #[error(transparent)]
    Denied(#[from] crate::foundation::gate::Refusal),
    /// The embedder of a search by meaning failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Something asked for is not there, or not as it must be.
    #[error("{0}")]
    Request(String),
}

impl MemoryError {
    /// Whether a mode or a rule of authority said no, rather than anything being wrong.
    pub const fn is_denial(&self) -> bool {
        matches!(self, Self::Mode(_) | Self::Forbidden(_) | Self::Denied(_) | Self::Refusal(Refusal::Mode(_)))
    }
}

type Result<T, E = MemoryError> = std::result::Result<T, E>;

/// A memory in a folder, at a moment.
#[derive(Clone)]
pub struct Workspace {
    disk: Arc<dyn Disk>,
    name: String,
    now: Zoned,
}

/// Texts, as read under a lock that is held as long as this lives.
struct Held {
    texts: Texts,
    /// Files that are no text, or of no interest as one; a snapshot takes them too.
    others: BTreeMap<String, Vec<u8>>,
    _lock: Option<Box<dyn Lock>>,
}

/// What of the workspace to read.
#[derive(Clone, Copy)]
enum Reach<'r> {
    /// Everything but applied snapshots and reports.
    All,
    /// These files.
    Files(&'r [&'r str]),
}

impl Workspace {
    /// The memory in the folder `path`, at the time `now`; days are UTC days.
    ///
    /// # Errors
    /// Where there is no such folder.
    pub fn at(path: &std::path::Path, now: Timestamp) -> Result<Self> {
        if !path.is_dir() {
            return Err(MemoryError::NoWorkspace(path.display().to_string()));
        }
        Ok(Self::on(Arc::new(RealDisk::new(path)), path.display().to_string(), now))
    }

    /// The memory on a disk; `name` is what messages call it.
    pub fn on(disk: Arc<dyn Disk>, name: impl Into<String>, now: Timestamp) -> Self {
        Self { disk, name: name.into(), now: now.to_zoned(TimeZone::UTC) }
    }

    /// The texts as they are now, for looking.
    ///
    /// # Errors
    /// Where the workspace or a file in it cannot be read.
    pub fn texts(&self) -> Result<Texts> {
        Ok(self.read(Reach::All)?.texts)
    }

    /// The day.
    pub fn today(&self) -> jiff::civil::Date {
        self.now.date()
    }

    /// ISO time with zone, to the second.
    fn stamp(&self) -> String {
        self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    fn config(texts: &Texts) -> Result<Config> {
        Config::read(texts.get(CONFIG)).map_err(MemoryError::Config)
    }

    fn state(texts: &Texts) -> State {
        State::read(texts.get(STATE))
    }

    fn is_workspace(&self) -> bool {
        self.disk.is_dir("decisions") && self.disk.is_dir("intelligence")
    }

    /// Nothing, if there is a workspace.
    ///
    /// # Errors
    /// [`MemoryError::NoWorkspace`].
    pub fn demand_workspace(&self) -> Result<()> {
        if self.is_workspace() { Ok(()) } else { Err(MemoryError::NoWorkspace(self.name.clone())) }
    }

    /// Reads for looking: with others who look, but not while somebody writes. What a crash left is put right first.
    fn read(&self, reach: Reach<'_>) -> Result<Held> {
        self.demand_workspace()?;
        if self.prepare_home().is_err() {
            // A folder that may not be written to: nobody else can be writing here either.
            return self.load(reach, None);
        }
        let shared = match self.disk.lock(LOCK, false) {
            Ok(lock) => lock,
            // Nobody ever wrote here through a lock, and none can be made: the folder may not be written to.
            Err(error) if error.kind() == ErrorKind::NotFound => return self.load(reach, None),
            Err(source) => return Err(StoreError::Io { action: "lock", path: LOCK.to_owned(), source }.into()),
        };
        if !self.disk.is_dir(".loom/tx") {
            return self.load(reach, Some(shared));
        }
        drop(shared);
        self.hold(reach)
    }

    /// Reads for writing: alone.
    fn hold(&self, reach: Reach<'_>) -> Result<Held> {
        self.demand_workspace()?;
        self.hold_any(reach)
    }

    fn hold_any(&self, reach: Reach<'_>) -> Result<Held> {
        let io = |source| StoreError::Io { action: "create", path: HOME.to_owned(), source };
        self.prepare_home().map_err(io)?;
        let io = |source| StoreError::Io { action: "lock", path: LOCK.to_owned(), source };
        let lock = self.disk.lock(LOCK, true).map_err(io)?;
        recover(self.disk.as_ref())?;
        self.load(reach, Some(lock))
    }

    fn prepare_home(&self) -> std::io::Result<()> {
        const IGNORE: &str = ".loom/.gitignore";
        if !self.disk.is_dir(HOME) {
            self.disk.make_dir(HOME)?;
            self.disk.write(IGNORE, b"*\n")?;
        }
        Ok(())
    }

    fn load(&self, reach: Reach<'_>, lock: Option<Box<dyn Lock>>) -> Result<Held> {
        let mut held = Held { texts: Texts::default(), others: BTreeMap::new(), _lock: lock };
        match reach {
            Reach::Files(paths) => {
                for path in paths {
                    self.load_file(path, &mut held)?;
                }
            }
            Reach::All => {
                let (files, _) = self.list("")?;
                let root = files.iter().filter(|file| super::texts::is_markdown(file) || *file == CONFIG);
                for file in root {
                    self.load_file(file, &mut held)?;
                }
                for folder in ["decisions", "tasks", "entities", "summaries", "memory", "intelligence"] {
                    self.load_folder(folder, &mut held)?;
                }
            }
        }
        Ok(held)
    }

    fn load_folder(&self, folder: &str, held: &mut Held) -> Result<()> {
        let (files, folders) = self.list(folder)?;
        for file in files {
            self.load_file(&format!("{folder}/{file}"), held)?;
        }
        for inner in folders {
            let path = format!("{folder}/{inner}");
            if path != "intelligence/applied" && !inner.starts_with('.') {
                self.load_folder(&path, held)?;
            }
        }
        Ok(())
    }

    fn load_file(&self, path: &str, held: &mut Held) -> Result<()> {
        let Some(bytes) = self.bytes(path)? else { return Ok(()) };
        if !(matches!(super::texts::extension(path), "md" | "json")) {
            held.others.insert(path.to_owned(), bytes);
            return Ok(());
        }
        let text = String::from_utf8(bytes).map_err(|_| MemoryError::NotText(path.to_owned()))?;
        held.texts.set(path, text);
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

    /// Writes what a pen holds, all or nothing. New snapshots come first, so that nothing of what they keep is changed
    /// before they are there.
    fn commit<W: Writer>(&self, held: &Held, pen: Pen<W>) -> Result<usize> {
        let before = |path: &str| held.texts.get(path).map(|text| text.as_bytes().to_vec());
        let (files, copies) = pen.into_files();
        let copies = copies.into_iter().map(|(path, bytes)| Change { before: None, path, after: Some(bytes) });
        let texts = files.into_iter().map(|(path, text)| Change {
            before: before(&path),
            path,
            after: Some(text.into_bytes()),
        });
        let mut changes: Vec<_> = copies.chain(texts).filter(|change| change.before != change.after).collect();
        changes.sort_by_key(|change| Place::of(&change.path) != Some(Place::Applied));
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
