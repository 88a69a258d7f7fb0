//! File operations with defined durability, as a trait, and their implementation by the operating system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::atomic::{open_inside, require_no_links};
use super::lock::FileLock;
use super::regular::{open_regular, read_from};
use crate::foundation::base::limits;

/// A lock, released when it is dropped.
pub trait DiskLock: Send {
    /// Whether other processes are really kept out; `false` on a file system without locks.
    fn is_enforced(&self) -> bool {
        true
    }
}

/// File metadata for change detection: if two stamps are equal and the first is settled, the content is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    /// Length.
    pub bytes: u64,
    /// Time of the last write, if known.
    pub modified: Option<SystemTime>,
    /// The file's inode, which changes when another file is renamed over the name.
    pub file: u64,
    /// The last write is old enough that another write would change `modified`.
    pub settled: bool,
}

impl FileStamp {
    /// Whether the content at `now` is certainly that at `self`.
    pub fn still(&self, now: &Self) -> bool {
        self.settled && (self.bytes, self.modified, self.file) == (now.bytes, now.modified, now.file)
    }
}

/// Coarsest resolution of file times, with a margin: FAT has two seconds.
const FILE_TIME_STEP: Duration = Duration::from_secs(3);

/// A directory tree. Paths are relative to its root, separated by `/`, and never leave it.
///
/// The effects of [`write`](Self::write), [`append`](Self::append), [`rename`](Self::rename), [`remove`](Self::remove) and
/// [`make_dir`](Self::make_dir) are durable only after [`sync`](Self::sync) of the file (contents) and
/// [`sync_dir`](Self::sync_dir) of the folder (names).
pub trait Disk: Send + Sync {
    /// The content of a file; `None` if it does not exist.
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>>;
    /// The metadata of a file; `None` if it does not exist.
    fn stamp(&self, path: &str) -> io::Result<Option<FileStamp>>;
    /// Creates or overwrites a file.
    fn write(&self, path: &str, bytes: &[u8]) -> io::Result<()>;
    /// Appends to a file, creating it if needed. Bytes that were durable stay durable.
    fn append(&self, path: &str, bytes: &[u8]) -> io::Result<()>;
    /// Makes a file's content durable.
    fn sync(&self, path: &str) -> io::Result<()>;
    /// Makes the names in a folder durable; `""` is the root.
    fn sync_dir(&self, path: &str) -> io::Result<()>;
    /// Renames a file atomically, replacing the target.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file; no error if it does not exist.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Creates a folder whose parent exists; no error if it exists.
    fn make_dir(&self, path: &str) -> io::Result<()>;
    /// Removes an empty folder; no error if it does not exist.
    fn remove_dir(&self, path: &str) -> io::Result<()>;
    /// The files and the folders in a folder, each sorted by name; both empty if the folder does not exist.
    fn list(&self, path: &str) -> io::Result<(Vec<String>, Vec<String>)>;
    /// Whether a folder exists.
    fn is_dir(&self, path: &str) -> bool;
    /// Waits for the lock on the file `path`, which is created if needed and never removed. A shared lock needs only read
    /// permission; if the file does not exist and cannot be created, the error kind is `NotFound`.
    fn lock(&self, path: &str, exclusive: bool) -> io::Result<Box<dyn DiskLock>>;
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

    /// The root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn at(&self, path: &str) -> io::Result<PathBuf> {
        if path.starts_with('/') || path.contains('\\') || path.split('/').any(|part| part == "..") {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("`{path}` leaves its folder")));
        }
        Ok(self.root.join(path))
    }

    /// The path of a file that is written: no folder on the way is a link.
    fn to_write(&self, path: &str) -> io::Result<PathBuf> {
        let at = self.at(path)?;
        require_no_links(&self.root, at.parent().unwrap_or(&self.root))?;
        Ok(at)
    }
}

impl DiskLock for FileLock {}

impl Disk for RealDisk {
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        absent(open_regular(&self.at(path)?).and_then(|file| read_from(file, limits::STORED_BYTES_MAX)).map(Some))
    }

    fn stamp(&self, path: &str) -> io::Result<Option<FileStamp>> {
        let stamp = |seen: fs::Metadata| {
            let modified = seen.modified().ok();
            let settled = modified.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > FILE_TIME_STEP);
            FileStamp { bytes: seen.len(), modified, file: inode(&seen), settled }
        };
        absent(fs::metadata(self.at(path)?).map(|seen| Some(stamp(seen))))
    }

    fn write(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        open_inside(&self.to_write(path)?, options.write(true).create(true).truncate(true))?.write_all(bytes)
    }

    fn append(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        open_inside(&self.to_write(path)?, options.create(true).append(true))?.write_all(bytes)
    }

    fn sync(&self, path: &str) -> io::Result<()> {
        // Syncs data and size; file times need not be durable.
        open_inside(&self.to_write(path)?, OpenOptions::new().write(true))?.sync_data()
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        // Windows cannot open a folder as a file and needs no sync.
        if cfg!(windows) { Ok(()) } else { File::open(self.at(path)?)?.sync_all() }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.to_write(from)?, self.to_write(to)?);
        if let Ok(there) = fs::symlink_metadata(&to) {
            if there.is_symlink() {
                let message = "it is a symbolic link, which would be replaced: move the file itself there";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
            // The replaced file's permissions are kept.
            fs::set_permissions(&from, there.permissions())?;
        }
        fs::rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        absent(fs::remove_file(self.to_write(path)?))
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        match fs::create_dir(self.to_write(path)?) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            done => done,
        }
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        absent(fs::remove_dir(self.to_write(path)?))
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

    fn lock(&self, path: &str, exclusive: bool) -> io::Result<Box<dyn DiskLock>> {
        let at = self.to_write(path)?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).read(true);
        let open = || match open_inside(&at, &mut options.clone()) {
            Err(error) if !exclusive && is_denied(&error) => open_regular(&at),
            opened => opened,
        };
        let begun = Instant::now();
        let mut pause = Duration::from_micros(200);
        loop {
            let file = open()?;
            match if exclusive { FileLock::exclusive(file) } else { FileLock::shared(file) } {
                Ok(Some(lock)) => return Ok(Box::new(lock)),
                Ok(None) => {}
                Err(error) if lacks_locks(&error) => return Ok(Box::new(UnsupportedLock)),
                Err(error) => return Err(error),
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

/// Stands for the lock on a file system that has none, some network file systems for example.
#[derive(Debug)]
struct UnsupportedLock;

impl DiskLock for UnsupportedLock {
    fn is_enforced(&self) -> bool {
        false
    }
}

/// Whether the file system has no locks: `ENOLCK`, `ENOSYS` or `EOPNOTSUPP`.
fn lacks_locks(error: &io::Error) -> bool {
    #[cfg(target_os = "linux")]
    let codes = [37, 38, 95];
    #[cfg(not(target_os = "linux"))]
    let codes: [i32; 0] = [];
    error.kind() == io::ErrorKind::Unsupported || error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// The folder part of a path; empty at the root.
pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn is_denied(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

#[cfg(unix)]
fn inode(seen: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(seen)
}

/// Other systems have no inode; length and time must suffice.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn only_errors_of_file_systems_without_locks_count_as_such() {
        for (code, expected) in [(37, true), (38, true), (95, true), (13, false), (11, false), (28, false)] {
            assert_eq!(lacks_locks(&io::Error::from_raw_os_error(code)), expected, "{code}");
        }
    }
}
