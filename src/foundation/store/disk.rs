//! The few operations on files that crash safety is made of, as a trait, and the operating system's own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::lock::FileLock;
use crate::foundation::base::limits;

/// A lock that is held until it is dropped.
pub trait Lock: Send {}

/// What a file looks like from outside: two looks that agree, the first of them settled, saw the same content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Its length.
    pub bytes: u64,
    /// When it was last written to, where that is known.
    pub modified: Option<SystemTime>,
    /// Which file it is under its name; a rename over the name changes it.
    pub file: u64,
    /// It was written long enough before this look that another write would show in `modified`.
    pub settled: bool,
}

impl Stamp {
    /// Whether the content is what it was at `self`, as `now` shows.
    pub fn still(&self, now: &Self) -> bool {
        self.settled && (self.bytes, self.modified, self.file) == (now.bytes, now.modified, now.file)
    }
}

/// How much coarser than a nanosecond file times may be, with room: FAT's two seconds are the worst.
const FILE_TIME_STEP: Duration = Duration::from_secs(3);

/// A folder tree. Paths are relative to its root, with `/` between names, and never leave it.
///
/// What [`write`](Self::write), [`append`](Self::append), [`rename`](Self::rename), [`remove`](Self::remove) and
/// [`make_dir`](Self::make_dir) did is durable only after [`sync`](Self::sync) of the file, for its content, and
/// [`sync_dir`](Self::sync_dir) of the folder, for its name.
pub trait Disk: Send + Sync {
    /// The content of a file; `None` where there is none.
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>>;
    /// What a file looks like from outside; `None` where there is none.
    fn stamp(&self, path: &str) -> io::Result<Option<Stamp>>;
    /// Creates or overwrites a file.
    fn write(&self, path: &str, bytes: &[u8]) -> io::Result<()>;
    /// Adds to the end of a file, which is created if need be. What was durable of it before stays so.
    fn append(&self, path: &str, bytes: &[u8]) -> io::Result<()>;
    /// Makes a file's content durable.
    fn sync(&self, path: &str) -> io::Result<()>;
    /// Makes the names in a folder durable; `""` is the root.
    fn sync_dir(&self, path: &str) -> io::Result<()>;
    /// Gives a file another name, replacing what had it, at once.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file; no error where there is none.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Creates a folder whose parent exists; no error where it is there.
    fn make_dir(&self, path: &str) -> io::Result<()>;
    /// Removes an empty folder; no error where there is none.
    fn remove_dir(&self, path: &str) -> io::Result<()>;
    /// The files and the folders in a folder, each sorted by name; both empty where there is no such folder.
    fn list(&self, path: &str) -> io::Result<(Vec<String>, Vec<String>)>;
    /// Whether a folder is there.
    fn is_dir(&self, path: &str) -> bool;
    /// Waits for the lock on `path`, a file that is created if need be and never removed. A lock that is shared needs only
    /// leave to read the file; where there is none, and none can be made, the error is of the kind `NotFound`.
    fn lock(&self, path: &str, exclusive: bool) -> io::Result<Box<dyn Lock>>;
}

/// The operating system's files below one folder.
#[derive(Debug, Clone)]
pub struct RealDisk {
    root: PathBuf,
}

impl RealDisk {
    /// The tree below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Its root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn at(&self, path: &str) -> io::Result<PathBuf> {
        if path.starts_with('/') || path.contains('\\') || path.split('/').any(|part| part == "..") {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("`{path}` leaves its folder")));
        }
        Ok(self.root.join(path))
    }
}

impl Lock for FileLock {}

impl Disk for RealDisk {
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        absent(fs::read(self.at(path)?).map(Some))
    }

    fn stamp(&self, path: &str) -> io::Result<Option<Stamp>> {
        let stamp = |seen: fs::Metadata| {
            let modified = seen.modified().ok();
            let settled = modified.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > FILE_TIME_STEP);
            Stamp { bytes: seen.len(), modified, file: inode(&seen), settled }
        };
        absent(fs::metadata(self.at(path)?).map(|seen| Some(stamp(seen))))
    }

    fn write(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        fs::write(self.at(path)?, bytes)
    }

    fn append(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        OpenOptions::new().create(true).append(true).open(self.at(path)?)?.write_all(bytes)
    }

    fn sync(&self, path: &str) -> io::Result<()> {
        // Data and size; times may come later.
        OpenOptions::new().write(true).open(self.at(path)?)?.sync_data()
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        // Windows opens no folder as a file, and needs none synced.
        if cfg!(windows) { Ok(()) } else { File::open(self.at(path)?)?.sync_all() }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.at(from)?, self.at(to)?);
        if let Ok(there) = fs::symlink_metadata(&to) {
            if there.is_symlink() {
                let message = "it is a symbolic link, which replacing would break: put the file itself there";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
            // Whom its owner lets read and write it stays the owner's word.
            fs::set_permissions(&from, there.permissions())?;
        }
        fs::rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        absent(fs::remove_file(self.at(path)?))
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        match fs::create_dir(self.at(path)?) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            done => done,
        }
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        absent(fs::remove_dir(self.at(path)?))
    }

    fn list(&self, path: &str) -> io::Result<(Vec<String>, Vec<String>)> {
        let (mut files, mut dirs) = (Vec::new(), Vec::new());
        let at = self.at(path)?;
        if !at.is_dir() {
            return Ok((files, dirs));
        }
        for entry in fs::read_dir(at)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if entry.path().is_dir() { dirs.push(name) } else { files.push(name) }
        }
        files.sort_unstable();
        dirs.sort_unstable();
        Ok((files, dirs))
    }

    fn is_dir(&self, path: &str) -> bool {
        self.at(path).is_ok_and(|path| path.is_dir())
    }

    fn lock(&self, path: &str, exclusive: bool) -> io::Result<Box<dyn Lock>> {
        let at = self.at(path)?;
        let open = || match OpenOptions::new().create(true).truncate(false).write(true).read(true).open(&at) {
            Err(error) if !exclusive && is_denied(&error) => File::open(&at),
            opened => opened,
        };
        let begun = Instant::now();
        let mut pause = Duration::from_micros(200);
        loop {
            let file = open()?;
            if let Some(lock) = if exclusive { FileLock::exclusive(file)? } else { FileLock::shared(file)? } {
                return Ok(Box::new(lock));
            }
            if begun.elapsed() > limits::LOCK_WAIT_MAX {
                let message = format!("another process has held `{path}` for over {:?}", limits::LOCK_WAIT_MAX);
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }
}

fn is_denied(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

#[cfg(unix)]
fn inode(seen: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(seen)
}

/// Elsewhere length and time must do.
#[cfg(not(unix))]
fn inode(_: &fs::Metadata) -> u64 {
    0
}

fn absent<T: Default>(result: io::Result<T>) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        other => other,
    }
}
