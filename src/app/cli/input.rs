//! Reads files named on the command line, with size limits.

use std::io::{self, Read};
use std::path::Path;

use super::Failure;
use crate::foundation::base::limits::TEXT_BYTES_MAX;
use crate::foundation::store::{open_regular, read_from};

/// The text of a file.
pub(super) fn read_file(path: &Path) -> Result<String, Failure> {
    read_file_limited(path, TEXT_BYTES_MAX)
}

/// The text of a file, or of standard input for `-`.
pub(super) fn read_text(path: &Path) -> Result<String, Failure> {
    read_text_limited(path, TEXT_BYTES_MAX)
}

/// The text of a file of at most `most` bytes.
pub(super) fn read_file_limited(path: &Path, most: u64) -> Result<String, Failure> {
    text(&path.display().to_string(), read_bytes_limited(path, most)?)
}

/// The bytes of a file of at most `most` bytes.
pub(super) fn read_bytes_limited(path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    read(&path.display().to_string(), open_regular(path), most)
}

/// The text of a file, or of standard input for `-`, of at most `most` bytes.
pub(super) fn read_text_limited(path: &Path, most: u64) -> Result<String, Failure> {
    if path == Path::new("-") {
        let name = "standard input";
        text(name, read(name, Ok(io::stdin().lock()), most)?)
    } else {
        read_file_limited(path, most)
    }
}

fn read(name: &str, source: io::Result<impl Read>, most: u64) -> Result<Vec<u8>, Failure> {
    source.and_then(|source| read_from(source, most)).map_err(|error| {
        Failure::usage(match error.kind() {
            io::ErrorKind::FileTooLarge => {
                format!("{name} is larger than the limit of {most} bytes: is it the right file?")
            }
            _ => format!("{name} cannot be read: {error}"),
        })
    })
}

fn text(name: &str, bytes: Vec<u8>) -> Result<String, Failure> {
    String::from_utf8(bytes).map_err(|_| Failure::usage(format!("{name} is not UTF-8 text: save it as UTF-8")))
}
