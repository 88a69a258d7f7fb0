//! Texts that the command line names.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::Failure;
use crate::foundation::base::limits::TEXT_BYTES_MAX;

/// The text of a file.
pub(super) fn read_file(path: &Path) -> Result<String, Failure> {
    read(&path.display().to_string(), File::open(path))
}

/// The text of a file; `-` is standard input.
pub(super) fn read_text(path: &Path) -> Result<String, Failure> {
    if path == Path::new("-") { read("standard input", Ok(io::stdin().lock())) } else { read_file(path) }
}

fn read(name: &str, source: io::Result<impl Read>) -> Result<String, Failure> {
    let mut text = String::new();
    let length = source.and_then(|source| source.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text));
    let length = length.map_err(|error| Failure::usage(format!("{name} cannot be read: {error}")))?;
    if length as u64 > TEXT_BYTES_MAX {
        return Err(Failure::usage(format!("{name} is larger than the {TEXT_BYTES_MAX} bytes that are read")));
    }
    Ok(text)
}
