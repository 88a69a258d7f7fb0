//! Atomic replacement of single files that have one writer. [`replace`](super::replace) also checks the old content.
//!
//! There are two kinds of paths. One that the user typed may be a link, a device or a pipe: [`write_atomic`] writes where
//! it leads. A name inside a folder that the program or a stranger filled (results, a session, a memory) must not:
//! [`write_inside`] replaces a link and never follows it, and [`create_inside`] and [`append_inside`] refuse it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes `bytes` durably to a temporary file next to `path` and renames it to `path`: a crash or a full disk leaves the
/// old or the new file. Permissions of an existing file are kept; of a symbolic link the target is replaced; a device or a
/// pipe is written to.
///
/// # Errors
/// An I/O error; the temporary file is then removed.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let kind = fs::metadata(path).map(|there| there.file_type());
    if kind.is_ok_and(|kind| !kind.is_file() && !kind.is_dir()) {
        let mut stream = OpenOptions::new().write(true).open(path)?;
        return stream.write_all(bytes).and_then(|()| stream.flush());
    }
    write_inside(&target(path), bytes)
}

/// Writes `bytes` as [`write_atomic`] does, but replaces what is at `path`, also a link.
///
/// # Errors
/// An I/O error; the temporary file is then removed.
pub fn write_inside(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_inside(path, ".new", |file| file.write_all(bytes))
}

/// Writes `bytes` as [`write_inside`] does, for a file that several processes may write at the same time.
///
/// # Errors
/// An I/O error; the temporary file is then removed.
pub fn write_shared(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let number = getrandom::u64().map_err(io::Error::other)?;
    replace_inside(path, &format!(".{number:016x}.new"), |file| file.write_all(bytes))
}

/// Copies a regular file as [`write_inside`] writes one.
///
/// # Errors
/// An I/O error.
pub fn copy_inside(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = super::open_regular(from)?;
    replace_inside(to, ".new", |file| io::copy(&mut source, file).map(drop))
}

/// Replaces the file at `path` by what `write` writes, first to the file with `ending`. A fixed ending leaves at most one such
/// file when the process is killed.
fn replace_inside(path: &Path, ending: &str, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(ending);
    let temporary = path.with_file_name(name);
    let written = write_temporary(&temporary, path, write);
    if written.is_err() {
        // The first error is returned.
        let _gone = fs::remove_file(&temporary);
    }
    written
}

fn write_temporary(temporary: &Path, path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    // A file left by a killed process, or a link that was put there.
    match fs::remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(temporary)?;
    if let Ok(there) = fs::symlink_metadata(path)
        && there.is_file()
    {
        file.set_permissions(there.permissions())?;
    }
    write(&mut file)?;
    file.sync_all()?;
    fs::rename(temporary, path)?;
    sync_parent(path)
}

/// Creates a file, or empties it. A link is refused.
///
/// # Errors
/// An I/O error; [`io::ErrorKind::InvalidInput`] for a link.
pub fn create_inside(path: &Path) -> io::Result<File> {
    open_inside(path, OpenOptions::new().write(true).create(true).truncate(true))
}

/// Opens a file for appending, and creates it if needed. A link is refused.
///
/// # Errors
/// As [`create_inside`].
pub fn append_inside(path: &Path) -> io::Result<File> {
    open_inside(path, OpenOptions::new().append(true).create(true))
}

/// Opens a file with `options`, unless its name is a link or something else than a file.
pub(super) fn open_inside(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let refused = |what: &str| {
        let why = format!("{} is {what}, and is not written to: move the file itself there", path.display());
        io::Error::new(io::ErrorKind::InvalidInput, why)
    };
    if let Ok(there) = fs::symlink_metadata(path) {
        if there.is_symlink() {
            return Err(refused("a symbolic link"));
        }
        if !there.is_file() {
            return Err(refused("not a file"));
        }
    }
    // The check above gives the message; this one holds also if the name changes in between.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options.open(path)
}

/// Checks that no folder between `root`, which the user named, and `path` below it is a link.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] with the link's name.
pub fn require_no_links(root: &Path, path: &Path) -> io::Result<()> {
    let Ok(below) = path.strip_prefix(root) else { return Ok(()) };
    let mut at = root.to_owned();
    for part in below {
        at.push(part);
        if fs::symlink_metadata(&at).is_ok_and(|there| there.is_symlink()) {
            let why = format!("{} is a symbolic link, and is not written through", at.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
    }
    Ok(())
}

/// The path itself, or what it links to.
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

    #[test]
    fn processes_that_write_the_same_file_at_once_all_succeed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        std::thread::scope(|scope| {
            let writer = || (0..20).try_for_each(|_| write_shared(&path, b"the same"));
            let writers: Vec<_> = (0..8).map(|_| scope.spawn(writer)).collect();
            for one in writers {
                one.join().unwrap().unwrap();
            }
        });
        assert_eq!(fs::read(&path).unwrap(), b"the same");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn a_path_of_the_users_may_be_a_link_or_a_device() {
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
        let null = folder.path().join("null");
        symlink("/dev/null", &null).unwrap();
        write_atomic(&null, b"three").unwrap();
        assert!(fs::symlink_metadata(&null).unwrap().is_symlink());
    }

    #[cfg(unix)]
    #[test]
    fn a_name_inside_a_folder_is_never_written_through_a_link() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let (outside, inside) = (folder.path().join("outside"), folder.path().join("inside"));
        fs::write(&outside, "kept").unwrap();
        symlink(&outside, &inside).unwrap();
        assert!(append_inside(&inside).unwrap_err().to_string().contains("is a symbolic link"));
        assert!(create_inside(&inside).is_err());
        write_inside(&inside, b"new").unwrap();
        assert!(!fs::symlink_metadata(&inside).unwrap().is_symlink());
        assert_eq!((fs::read(&outside).unwrap(), fs::read(&inside).unwrap()), (b"kept".to_vec(), b"new".to_vec()));
        fs::remove_file(&inside).unwrap();
        symlink(&outside, &inside).unwrap();
        let copied = folder.path().join("copied");
        fs::write(&copied, "copy").unwrap();
        copy_inside(&copied, &inside).unwrap();
        assert_eq!(fs::read(&outside).unwrap(), b"kept");
        // A healthy file is created, emptied and appended to.
        let plain = folder.path().join("plain");
        create_inside(&plain).unwrap().write_all(b"a").unwrap();
        append_inside(&plain).unwrap().write_all(b"b").unwrap();
        assert_eq!(fs::read(&plain).unwrap(), b"ab");
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_is_a_link_is_found() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink(root.path().join("a"), root.path().join("link")).unwrap();
        assert!(require_no_links(root.path(), &root.path().join("a/b/c")).is_ok());
        assert!(require_no_links(root.path(), &root.path().join("link/b/c")).is_err());
        assert!(require_no_links(&root.path().join("link"), &root.path().join("link/b/c")).is_ok());
    }
}
