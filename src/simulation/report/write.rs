//! From a results folder to the report's files.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::data::Report;
use super::load::{Loaded, ReportError, load};

/// The figure's file, beside the Markdown.
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
    /// When there is no transcript, or one cannot be read.
    pub fn on(path: &Path) -> Result<Self, ReportError> {
        Ok(Self::with_conversations(path)?.0)
    }

    /// The report on `path`, and the conversations that it is on.
    ///
    /// # Errors
    /// When there is no transcript, or one cannot be read.
    pub fn with_conversations(path: &Path) -> Result<(Self, Vec<Loaded>), ReportError> {
        let loaded = load(path)?;
        // Without a manifest the transcripts say what they can; one that cannot be read is told.
        let manifest = path.join("run.json");
        let planned = manifest.is_file().then(|| -> Result<Planned, String> {
            let bytes = fs::read(&manifest).map_err(|error| error.to_string())?;
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
    /// When it cannot be JSON.
    pub fn json(&self) -> Result<String, ReportError> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Writes `report.json`, `report.html`, `report.md` and `curves.svg` into `folder`; gives the path of `report.md`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write_to(&self, folder: &Path, conversations: &[Loaded]) -> Result<PathBuf, ReportError> {
        write(&folder.join("report.json"), &self.json()?)?;
        write(&folder.join("report.html"), &self.html(conversations)?)?;
        let path = folder.join("report.md");
        self.write_markdown(&path)?;
        Ok(path)
    }

    /// Writes the Markdown at `path`, and `curves.svg` beside it.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write_markdown(&self, path: &Path) -> Result<(), ReportError> {
        write(&path.with_file_name(CURVES), &self.curves()?)?;
        write(path, &self.markdown(Some(CURVES)))
    }

    /// Writes the HTML page at `path`.
    ///
    /// # Errors
    /// When it cannot be rendered or written.
    pub fn write_html(&self, path: &Path, conversations: &[Loaded]) -> Result<(), ReportError> {
        write(path, &self.html(conversations)?)
    }

    /// Writes the JSON at `path`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_json(&self, path: &Path) -> Result<(), ReportError> {
        write(path, &self.json()?)
    }
}

/// A report can be made again from the transcripts at any time, so it is written plainly.
fn write(path: &Path, text: &str) -> Result<(), ReportError> {
    fs::write(path, text).map_err(|source| ReportError::Io { path: path.to_owned(), source })
}
