//! Reads a results folder and writes the report's files.

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::data::Report;
use super::load::{LoadedRollout, ReportError, load};
use crate::foundation::base::limits::RESULT_BYTES_MAX;
use crate::foundation::store::{read_limited, write_atomic, write_inside};

/// The figure's file, next to the Markdown.
const CURVES: &str = "curves.svg";

/// The part of `run.json` that a report needs.
#[derive(Deserialize)]
struct Planned {
    rollouts: usize,
}

impl Report {
    /// The report on the results folder, or the single transcript, at `path`.
    ///
    /// # Errors
    /// If there is no transcript, or one cannot be read.
    pub fn on(path: &Path) -> Result<Self, ReportError> {
        Ok(Self::with_conversations(path)?.0)
    }

    /// The report on `path`, with the loaded conversations.
    ///
    /// # Errors
    /// If there is no transcript, or one cannot be read.
    pub fn with_conversations(path: &Path) -> Result<(Self, Vec<LoadedRollout>), ReportError> {
        let loaded = load(path)?;
        // A missing manifest is allowed; an unreadable one is reported.
        let manifest = path.join("run.json");
        let planned = manifest.is_file().then(|| -> Result<Planned, String> {
            let bytes = read_limited(&manifest, RESULT_BYTES_MAX).map_err(|error| error.to_string())?;
            serde_json::from_slice(&bytes).map_err(|error| error.to_string())
        });
        let (planned, unread) = match planned.transpose() {
            Ok(planned) => (planned, None),
            Err(why) => (None, Some(format!("how many rollouts were planned: run.json cannot be read: {why}"))),
        };
        let mut report = Self::new(&loaded, planned.map(|Planned { rollouts }| rollouts))?;
        report.missing.extend(unread);
        Ok((report, loaded))
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// If it cannot be serialised.
    pub fn json(&self) -> Result<String, ReportError> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Writes `report.json`, `report.html`, `report.md` and `curves.svg` into `folder`; returns the path of `report.md`.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write_to(&self, folder: &Path, conversations: &[LoadedRollout]) -> Result<PathBuf, ReportError> {
        write(write_inside, &folder.join("report.json"), &self.json()?)?;
        write(write_inside, &folder.join("report.html"), &self.html(conversations)?)?;
        let path = folder.join("report.md");
        write(write_inside, &folder.join(CURVES), &self.curves()?)?;
        write(write_inside, &path, &self.markdown(Some(CURVES))?)?;
        Ok(path)
    }

    /// Writes the Markdown at `path`, and `curves.svg` next to it.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write_markdown(&self, path: &Path) -> Result<(), ReportError> {
        write(write_inside, &path.with_file_name(CURVES), &self.curves()?)?;
        write(write_atomic, path, &self.markdown(Some(CURVES))?)
    }

    /// Writes the HTML page at `path`.
    ///
    /// # Errors
    /// If it cannot be rendered or written.
    pub fn write_html(&self, path: &Path, conversations: &[LoadedRollout]) -> Result<(), ReportError> {
        write(write_atomic, path, &self.html(conversations)?)
    }

    /// Writes the JSON at `path`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_json(&self, path: &Path) -> Result<(), ReportError> {
        write(write_atomic, path, &self.json()?)
    }
}

/// Writes with `how`: a path that the user named may be a link, a name inside the folder may not.
fn write(how: fn(&Path, &[u8]) -> io::Result<()>, path: &Path, text: &str) -> Result<(), ReportError> {
    how(path, text.as_bytes()).map_err(|source| ReportError::Io { path: path.to_owned(), source })
}
