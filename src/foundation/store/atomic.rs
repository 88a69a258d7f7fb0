//! Atomic replacement of single files that have one writer. [`replace`](super::replace) also checks the old content.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes `bytes` durably to a temporary file next to `path` and renames it to `path`: a crash at any point leaves the old
/// or the new file. Permissions of an existing file are kept; of a symbolic link the target is replaced.
///
/// # Errors
/// An I/O error; the temporary file is then removed.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = &target(path);
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".new");
    let temporary = path.with_file_name(name);
    let written = write_temporary(&temporary, path, bytes);
    if written.is_err() {
        // The first error is returned.
        let _gone = fs::remove_file(&temporary);
    }
    written
}

fn write_temporary(temporary: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(temporary)?;
    if let Ok(there) = fs::metadata(path) {
        file.set_permissions(there.permissions())?;
    }
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(temporary, path)?;
    sync_parent(path)
}

fn target(path: &Path) -> PathBuf {
    let link = fs::symlink_metadata(path).is_ok_and(|there| there.is_symlink());
    if link { fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()) } else { path.to_owned() }
}

/// Makes the name of `path` durable by syncing its folder.
///
/// # Errors
/// An I/O error.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    // Windows cannot open a folder as a file and needs no sync.
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
        write_atomic(&path, b"one").unwrap();
        write_atomic(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert!(write_atomic(folder.path(), b"a folder is there").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn permissions_and_links_are_kept() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("real"), folder.path().join("link"));
        write_atomic(&path, b"one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&path, &link).unwrap();
        write_atomic(&link, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
