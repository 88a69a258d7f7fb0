//! Files that the command line wants written after long work: that they can be is seen before it.

use std::path::{Path, PathBuf};

use super::Failure;

/// Nothing, if each file has a folder to lie in and is none itself.
pub(super) fn demand_place<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), Failure> {
    for file in files {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            return Err(Failure::usage(format!(
                "{}: there is no folder {}: make it first",
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
