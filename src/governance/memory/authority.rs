//! Which part of the program may write which file (Mind Mem 1.0.3, §7). Every write goes through a [`WriteSet`], which
//! belongs to one writer and rejects files that the writer does not own.

use std::collections::BTreeMap;
use std::marker::PhantomData;

/// A part of the workspace with its own write rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkspaceArea {
    /// `decisions/*.md`.
    Decisions,
    /// `tasks/*.md`.
    Tasks,
    /// `entities/*.md`.
    Entities,
    /// `memory/*.md`: the daily logs.
    DailyLogs,
    /// `memory/intel-state.json`.
    IntelState,
    /// `intelligence/CONTRADICTIONS.md`.
    Contradictions,
    /// `intelligence/DRIFT.md`.
    Drift,
    /// `intelligence/SIGNALS.md`.
    Signals,
    /// `intelligence/IMPACT.md`.
    DecisionImpact,
    /// `intelligence/AUDIT.md`.
    Audit,
    /// `intelligence/SCAN_LOG.md`.
    ScanLog,
    /// `intelligence/proposed/*.md`.
    Proposed,
    /// `intelligence/state/snapshots/*`.
    Snapshots,
    /// `intelligence/applied/*/*`.
    Applied,
    /// `mind-mem.json`.
    MemoryConfig,
    /// `maintenance/*`.
    Maintenance,
    /// Everything else that `init` creates.
    Other,
}

impl WorkspaceArea {
    /// All areas.
    pub const ALL: [Self; 17] = [
        Self::Decisions,
        Self::Tasks,
        Self::Entities,
        Self::DailyLogs,
        Self::IntelState,
        Self::Contradictions,
        Self::Drift,
        Self::Signals,
        Self::DecisionImpact,
        Self::Audit,
        Self::ScanLog,
        Self::Proposed,
        Self::Snapshots,
        Self::Applied,
        Self::MemoryConfig,
        Self::Maintenance,
        Self::Other,
    ];

    /// The area of `path`; `None` where nothing may be written: absolute paths, `..`, hidden folders.
    pub fn of(path: &str) -> Option<Self> {
        if path.is_empty()
            || path.contains('\\')
            || path.split('/').any(|part| part.is_empty() || part == "." || part == "..")
        {
            return None;
        }
        let markdown = super::texts::is_markdown(path);
        Some(match path {
            "memory/intel-state.json" => Self::IntelState,
            "intelligence/CONTRADICTIONS.md" => Self::Contradictions,
            "intelligence/DRIFT.md" => Self::Drift,
            "intelligence/SIGNALS.md" => Self::Signals,
            "intelligence/IMPACT.md" => Self::DecisionImpact,
            "intelligence/AUDIT.md" => Self::Audit,
            "intelligence/SCAN_LOG.md" => Self::ScanLog,
            "mind-mem.json" => Self::MemoryConfig,
            _ => match path.split_once('/') {
                Some(("decisions", _)) if markdown => Self::Decisions,
                Some(("tasks", _)) if markdown => Self::Tasks,
                Some(("entities", _)) if markdown => Self::Entities,
                Some(("memory", _)) if markdown => Self::DailyLogs,
                Some(("maintenance", _)) => Self::Maintenance,
                Some(("intelligence", rest)) if rest.starts_with("proposed/") && markdown => Self::Proposed,
                Some(("intelligence", rest)) if rest.starts_with("state/snapshots/") => Self::Snapshots,
                Some(("intelligence", rest)) if rest.starts_with("applied/") => Self::Applied,
                Some((folder, _)) if folder.starts_with('.') => return None,
                _ => Self::Other,
            },
        })
    }
}

/// A writer. It is a type so that a [`WriteSet`] can be bound to it.
pub trait Writer {
    /// The name used in messages.
    const NAME: &'static str;
    /// The areas it may write.
    const AREAS: &'static [WorkspaceArea];
    /// Whether it may only create new files.
    const CREATES_ONLY: bool = false;
    /// Whether it may only append to existing files.
    const APPENDS_ONLY: bool = false;
}

/// The scan.
#[derive(Debug)]
pub struct ScanWriter;
impl Writer for ScanWriter {
    const NAME: &'static str = "scan";
    const AREAS: &'static [WorkspaceArea] = &[
        WorkspaceArea::IntelState,
        WorkspaceArea::Contradictions,
        WorkspaceArea::Drift,
        WorkspaceArea::DecisionImpact,
        WorkspaceArea::ScanLog,
        WorkspaceArea::Proposed,
        WorkspaceArea::Snapshots,
    ];
}

/// Applying proposals, and a person's decisions on proposals, signals and the mode.
#[derive(Debug)]
pub struct ApplyWriter;
impl Writer for ApplyWriter {
    const NAME: &'static str = "apply";
    const AREAS: &'static [WorkspaceArea] = &[
        WorkspaceArea::Decisions,
        WorkspaceArea::Tasks,
        WorkspaceArea::Entities,
        WorkspaceArea::IntelState,
        WorkspaceArea::Signals,
        WorkspaceArea::Audit,
        WorkspaceArea::Proposed,
        WorkspaceArea::Snapshots,
        WorkspaceArea::Applied,
    ];
}

/// Capturing signals: writes one file only (M4).
#[derive(Debug)]
pub struct CaptureWriter;
impl Writer for CaptureWriter {
    const NAME: &'static str = "capture";
    const AREAS: &'static [WorkspaceArea] = &[WorkspaceArea::Signals];
}

/// Creating a workspace or completing one: never overwrites a file (O5).
#[derive(Debug)]
pub struct InitWriter;
impl Writer for InitWriter {
    const NAME: &'static str = "init";
    const AREAS: &'static [WorkspaceArea] = &WorkspaceArea::ALL;
    const CREATES_ONLY: bool = true;
}

/// Validation: writes its report.
#[derive(Debug)]
pub struct ValidateWriter;
impl Writer for ValidateWriter {
    const NAME: &'static str = "validate";
    const AREAS: &'static [WorkspaceArea] = &[WorkspaceArea::Maintenance];
}

/// The daily log: append only (S8).
#[derive(Debug)]
pub struct LogWriter;
impl Writer for LogWriter {
    const NAME: &'static str = "log";
    const AREAS: &'static [WorkspaceArea] = &[WorkspaceArea::DailyLogs];
    const APPENDS_ONLY: bool = true;
}

/// A writer tried to write a file that it does not own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{writer} may not write `{path}`: {reason}")]
pub struct WriteForbidden {
    /// The writer.
    pub writer: &'static str,
    /// The path.
    pub path: String,
    /// Why it was rejected.
    pub reason: &'static str,
}

/// The files that one writer wants written. [`super::workspace::Workspace`] commits nothing else.
#[derive(Debug)]
pub struct WriteSet<W> {
    files: BTreeMap<String, String>,
    copies: BTreeMap<String, Vec<u8>>,
    writer: PhantomData<W>,
}

impl<W: Writer> Default for WriteSet<W> {
    fn default() -> Self {
        Self { files: BTreeMap::new(), copies: BTreeMap::new(), writer: PhantomData }
    }
}

impl<W: Writer> WriteSet<W> {
    /// Records that `path` is to contain `text`; `before` is its present text, `None` if the file does not exist.
    ///
    /// # Errors
    /// If the writer may not write there.
    pub fn write(&mut self, path: &str, before: Option<&str>, text: impl Into<String>) -> Result<(), WriteForbidden> {
        let text = text.into();
        let refuse = |reason| Err(WriteForbidden { writer: W::NAME, path: path.to_owned(), reason });
        match WorkspaceArea::of(path) {
            None => refuse("no writer may write there"),
            Some(place) if !W::AREAS.contains(&place) => refuse("it belongs to other writers"),
            _ if W::CREATES_ONLY && before.is_some() => refuse("it is there already"),
            _ if W::APPENDS_ONLY && !text.starts_with(before.unwrap_or_default()) => refuse("what is there must stay"),
            _ => {
                self.files.insert(path.to_owned(), text);
                Ok(())
            }
        }
    }

    /// The text recorded so far for `path`, or else `before`.
    pub fn draft<'t>(&'t self, path: &str, before: &'t str) -> &'t str {
        self.files.get(path).map_or(before, String::as_str)
    }

    /// The recorded texts and copies.
    pub(super) fn into_files(self) -> (BTreeMap<String, String>, BTreeMap<String, Vec<u8>>) {
        (self.files, self.copies)
    }
}

impl WriteSet<ApplyWriter> {
    /// Records that a snapshot is to contain `bytes` at `path`, which must not exist yet.
    ///
    /// # Errors
    /// If the path is not inside a snapshot.
    pub fn keep(&mut self, path: String, bytes: Vec<u8>) -> Result<(), WriteForbidden> {
        if WorkspaceArea::of(&path) != Some(WorkspaceArea::Applied) {
            return Err(WriteForbidden { writer: ApplyWriter::NAME, path, reason: "copies belong in a snapshot" });
        }
        self.copies.insert(path, bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One path per area.
    fn example(place: WorkspaceArea) -> &'static str {
        match place {
            WorkspaceArea::Decisions => "decisions/DECISIONS.md",
            WorkspaceArea::Tasks => "tasks/TASKS.md",
            WorkspaceArea::Entities => "entities/people.md",
            WorkspaceArea::DailyLogs => "memory/2026-02-20.md",
            WorkspaceArea::IntelState => "memory/intel-state.json",
            WorkspaceArea::Contradictions => "intelligence/CONTRADICTIONS.md",
            WorkspaceArea::Drift => "intelligence/DRIFT.md",
            WorkspaceArea::Signals => "intelligence/SIGNALS.md",
            WorkspaceArea::DecisionImpact => "intelligence/IMPACT.md",
            WorkspaceArea::Audit => "intelligence/AUDIT.md",
            WorkspaceArea::ScanLog => "intelligence/SCAN_LOG.md",
            WorkspaceArea::Proposed => "intelligence/proposed/EDITS_PROPOSED.md",
            WorkspaceArea::Snapshots => "intelligence/state/snapshots/S-2026-02-20.json",
            WorkspaceArea::Applied => "intelligence/applied/20260220-120000/APPLY_RECEIPT.md",
            WorkspaceArea::MemoryConfig => "mind-mem.json",
            WorkspaceArea::Maintenance => "maintenance/validation-report.txt",
            WorkspaceArea::Other => "MEMORY.md",
        }
    }

    fn row<W: Writer>(before: Option<&str>) -> String {
        let may = |place: &WorkspaceArea| {
            assert_eq!(WorkspaceArea::of(example(*place)), Some(*place));
            WriteSet::<W>::default().write(example(*place), before, "old and new").is_ok()
        };
        WorkspaceArea::ALL.iter().map(|place| if may(place) { 'W' } else { '-' }).collect()
    }

    #[test]
    fn every_pair_of_writer_and_place_is_as_section_7_has_it() {
        // Decisions Tasks Entities Logs State | Contradictions Drift Signals Impact Audit ScanLog | Proposed Snapshots
        // Applied Config Maintenance Other
        assert_eq!(row::<ScanWriter>(Some("old")), "----WWW-W-WWW----");
        assert_eq!(row::<ApplyWriter>(Some("old")), "WWW-W--W-W-WWW---");
        assert_eq!(row::<CaptureWriter>(Some("old")), "-------W---------");
        assert_eq!(row::<ValidateWriter>(Some("old")), "---------------W-");
        assert_eq!(row::<LogWriter>(Some("old")), "---W-------------");
        assert_eq!(row::<LogWriter>(Some("other")), "-----------------");
        assert_eq!(row::<InitWriter>(Some("old")), "-----------------");
        assert_eq!(row::<InitWriter>(None), "WWWWWWWWWWWWWWWWW");
    }

    #[test]
    fn no_path_leads_out() {
        for path in [
            "",
            "/etc/passwd",
            "../x.md",
            "decisions/../../x.md",
            "decisions//x.md",
            "decisions\\x.md",
            ".loom/lock",
            ".git/config",
            "./decisions/x.md",
        ] {
            assert!(WriteSet::<InitWriter>::default().write(path, None, "").is_err(), "{path}");
        }
        assert!(WriteSet::<ApplyWriter>::default().write("decisions/script.sh", None, "").is_err());
    }
}
