//! One file, whole or not at all: for files that stand alone and have one writer. [`replace`](super::replace) also checks
//! what it replaces.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes `bytes` beside `path`, makes them durable and gives them its name: a crash at any point leaves the old file or
/// the new one. A file that is there keeps its permissions; a symbolic link keeps pointing, and what it points at is
/// replaced.
///
/// # Errors
/// What the file system says; nothing is left beside `path` then.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = &target(path);
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".new");
    let beside = path.with_file_name(name);
    let written = write_beside(&beside, path, bytes);
    if written.is_err() {
        // The first error is the one to tell.
        let _gone = fs::remove_file(&beside);
    }
    written
}

fn write_beside(beside: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(beside)?;
    if let Ok(there) = fs::metadata(path) {
        file.set_permissions(there.permissions())?;
    }
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(beside, path)?;
    sync_names(path)
}

fn target(path: &Path) -> PathBuf {
    let link = fs::symlink_metadata(path).is_ok_and(|there| there.is_symlink());
    if link { fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()) } else { path.to_owned() }
}

/// Makes the name of `path` durable in its folder.
///
/// # Errors
/// What the file system says.
pub fn sync_names(path: &Path) -> io::Result<()> {
    // Windows opens no folder as a file, and needs none synced.
    if cfg!(windows) {
        return Ok(());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        write_whole(&path, b"one").unwrap();
        write_whole(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert!(write_whole(folder.path(), b"a folder is there").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn permissions_and_links_are_kept() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("real"), folder.path().join("link"));
        write_whole(&path, b"one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&path, &link).unwrap();
        write_whole(&link, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
