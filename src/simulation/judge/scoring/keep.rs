//! What was found out about judges, kept so that a judge is tested once: one file per model and calibration set.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::foundation::base::Digest;
use crate::simulation::judge::judged::{Check, Judge, calibration_digest};
use crate::simulation::rollout::{FileError, write_json};

/// Where the tests of judges are kept: `loom/judges` in the user's cache folder, as `variable` tells of it.
pub fn checks_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(cache.join("loom").join("judges"))
}

/// The place of one judge's test.
#[derive(Debug, Clone)]
pub struct CheckFile(PathBuf);

impl CheckFile {
    /// The place of `judge`'s test in `folder`. A model without a digest goes by its name.
    pub fn of(folder: &Path, judge: &Judge) -> Self {
        let model = judge.info().digest.unwrap_or_else(|| Digest::of(&judge.info().name));
        Self(folder.join(format!("{}-{}.json", model.short(), calibration_digest(judge).short())))
    }

    /// What is known; nothing if the file is not there or not whole.
    pub fn read(&self, judge: &Judge) -> Option<Check> {
        let check: Check = serde_json::from_str(&std::fs::read_to_string(&self.0).ok()?).ok()?;
        let of = (&check.model, check.digest, check.method, check.calibration);
        (of == (&judge.info().name, judge.info().digest, judge.method(), calibration_digest(judge))).then_some(check)
    }

    /// Keeps `check`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, check: &Check) -> Result<(), FileError> {
        if let Some(folder) = self.0.parent() {
            std::fs::create_dir_all(folder).map_err(|source| FileError::Io { path: folder.to_owned(), source })?;
        }
        write_json(&self.0, check)
    }
}
