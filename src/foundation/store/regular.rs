//! Reads files with a limit, and refuses what is not a file where a file is expected: a FIFO, a socket, a device, as a
//! stranger's folder may hold one under an expected name. Every file that is read as a whole is read here.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

/// Opens a regular file for reading. Standard input and inherited pipes stay possible under their own names
/// (`/dev/stdin`, `/dev/fd/N`, `/proc/self/fd/N`).
///
/// # Errors
/// An I/O error; [`io::ErrorKind::InvalidInput`] if it is something else than a file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    if is_inherited(path) {
        return File::open(path);
    }
    let mut options = OpenOptions::new();
    options.read(true);
    // A FIFO without a writer would block.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(path)?;
    let kind = file.metadata()?.file_type();
    let what = match () {
        () if kind.is_file() => return Ok(file),
        () if kind.is_dir() => return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder")),
        #[cfg(unix)]
        () if std::os::unix::fs::FileTypeExt::is_fifo(&kind) => "a FIFO",
        () => "a device or a socket",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, not a file")))
}

/// Whether the user named a stream that the program inherits.
fn is_inherited(path: &Path) -> bool {
    let numbered = |folder: &str| {
        let number = path.strip_prefix(folder).ok().and_then(|rest| rest.to_str());
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    path == Path::new("/dev/stdin") || numbered("/dev/fd") || numbered("/proc/self/fd")
}

/// The bytes of a file of at most `most` bytes.
///
/// # Errors
/// As [`open_regular`]; [`io::ErrorKind::FileTooLarge`] for a larger file.
pub fn read_limited(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_from(open_regular(path)?, most)
}

/// The bytes of `source`, at most `most`.
///
/// # Errors
/// An I/O error; [`io::ErrorKind::FileTooLarge`] if there are more.
pub fn read_from(source: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than allowed tells a source that is too large from one that just fits.
    source.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {most} bytes")));
    }
    Ok(bytes)
}

/// The text of a file of at most `most` bytes.
///
/// # Errors
/// As [`read_limited`]; [`io::ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text");
    String::from_utf8(read_limited(path, most)?).map_err(not_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "four").unwrap();
        assert_eq!(read_text(&path, 4).unwrap(), "four");
        assert_eq!(read_limited(&path, 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path, 4).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(read_text(folder.path(), 4).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(read_text(&folder.path().join("b"), 4).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[cfg(unix)]
    #[test]
    fn devices_fifos_and_sockets_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (zero, fifo, socket) =
            (folder.path().join("zero"), folder.path().join("fifo"), folder.path().join("socket"));
        std::os::unix::fs::symlink("/dev/zero", &zero).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [&zero, &fifo] {
            let error = read_text(path, 1 << 40).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path:?}: {error}");
        }
        assert!(read_text(&socket, 1).is_err());
    }
}
