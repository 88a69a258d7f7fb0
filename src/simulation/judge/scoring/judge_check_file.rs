//! Stores the results of judge tests, so that a judge is tested once: one file per model and calibration set.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::foundation::base::Digest;
use crate::foundation::base::limits::RESULT_BYTES_MAX;
use crate::foundation::store::read_limited;
use crate::simulation::judge::judged::{Judge, JudgeCheck, calibration_digest};
use crate::simulation::rollout::{FileError, write_json};

/// The folder of the results: `loom/judges` in the user's cache folder, which `variable` (the environment) determines.
pub fn judge_checks_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(cache.join("loom").join("judges"))
}

/// The path of one judge's result.
#[derive(Debug, Clone)]
pub struct JudgeCheckFile(PathBuf);

impl JudgeCheckFile {
    /// The file for `judge` in `folder`. A model without a digest is identified by its name.
    pub fn of(folder: &Path, judge: &Judge) -> Self {
        let model = judge.info().digest.unwrap_or_else(|| Digest::of(&judge.info().name));
        Self(folder.join(format!("{}-{}.json", model.short(), calibration_digest(judge).short())))
    }

    /// Reads the result; `None` if the file does not exist, is damaged, or belongs to another judge.
    pub fn read(&self, judge: &Judge) -> Option<JudgeCheck> {
        let check: JudgeCheck = serde_json::from_slice(&read_limited(&self.0, RESULT_BYTES_MAX).ok()?).ok()?;
        let of = (&check.model, check.digest, check.method, check.calibration);
        (of == (&judge.info().name, judge.info().digest, judge.method(), calibration_digest(judge))).then_some(check)
    }

    /// Writes `check`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, check: &JudgeCheck) -> Result<(), FileError> {
        if let Some(folder) = self.0.parent() {
            std::fs::create_dir_all(folder).map_err(|source| FileError::Io { path: folder.to_owned(), source })?;
        }
        write_json(&self.0, check)
    }
}
