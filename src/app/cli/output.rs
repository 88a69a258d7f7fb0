//! The output format, and checks of output paths before long computations.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::Failure;

/// The output format of most commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// Checks that each file's folder exists and that the path is not a folder.
pub(super) fn require_writable_path<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), Failure> {
    for file in files {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            return Err(Failure::usage(format!(
                "{}: the folder {} does not exist: create it first",
                file.display(),
                folder.display()
            )));
        }
        if file.is_dir() {
            return Err(Failure::usage(format!("{} is a folder: name a file in it", file.display())));
        }
    }
    Ok(())
}
