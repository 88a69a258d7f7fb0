//! Who may write what (Mind Mem 1.0.3, §7). Every write of the memory goes through a [`Pen`], a pen belongs to one
//! writer, and a pen refuses every file that is not its writer's.

use std::collections::BTreeMap;
use std::marker::PhantomData;

/// A part of the workspace that has rules of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
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
    Impact,
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
    Config,
    /// `maintenance/*`.
    Maintenance,
    /// Everything else that `init` creates.
    Other,
}

impl Place {
    /// All places.
    pub const ALL: [Self; 17] = [
        Self::Decisions,
        Self::Tasks,
        Self::Entities,
        Self::DailyLogs,
        Self::IntelState,
        Self::Contradictions,
        Self::Drift,
        Self::Signals,
        Self::Impact,
        Self::Audit,
        Self::ScanLog,
        Self::Proposed,
        Self::Snapshots,
        Self::Applied,
        Self::Config,
        Self::Maintenance,
        Self::Other,
    ];

    /// Where `path` lies; `None` for what no writer may touch: absolute paths, `..`, dotted folders.
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
            "intelligence/IMPACT.md" => Self::Impact,
            "intelligence/AUDIT.md" => Self::Audit,
            "intelligence/SCAN_LOG.md" => Self::ScanLog,
            "mind-mem.json" => Self::Config,
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

/// A writer: a type, so that a pen can carry it.
pub trait Writer {
    /// Its name in messages.
    const NAME: &'static str;
    /// Where it may write.
    const PLACES: &'static [Place];
    /// Whether it may only create what is not there.
    const CREATES_ONLY: bool = false;
    /// Whether it may only add to the end of what is there.
    const APPENDS_ONLY: bool = false;
}

/// The scan.
#[derive(Debug)]
pub struct Scan;
impl Writer for Scan {
    const NAME: &'static str = "scan";
    const PLACES: &'static [Place] = &[
        Place::IntelState,
        Place::Contradictions,
        Place::Drift,
        Place::Impact,
        Place::ScanLog,
        Place::Proposed,
        Place::Snapshots,
    ];
}

/// Applying, and a person's word on proposals, signals and the mode.
#[derive(Debug)]
pub struct Apply;
impl Writer for Apply {
    const NAME: &'static str = "apply";
    const PLACES: &'static [Place] = &[
        Place::Decisions,
        Place::Tasks,
        Place::Entities,
        Place::IntelState,
        Place::Signals,
        Place::Audit,
        Place::Proposed,
        Place::Snapshots,
        Place::Applied,
    ];
}

/// Capturing signals: one file and no other (M4).
#[derive(Debug)]
pub struct Capture;
impl Writer for Capture {
    const NAME: &'static str = "capture";
    const PLACES: &'static [Place] = &[Place::Signals];
}

/// Making a workspace, or filling an empty one: never writes over anything (O5).
#[derive(Debug)]
pub struct Init;
impl Writer for Init {
    const NAME: &'static str = "init";
    const PLACES: &'static [Place] = &Place::ALL;
    const CREATES_ONLY: bool = true;
}

/// Validating: writes its report.
#[derive(Debug)]
pub struct Validate;
impl Writer for Validate {
    const NAME: &'static str = "validate";
    const PLACES: &'static [Place] = &[Place::Maintenance];
}

/// A person's daily log: only ever grows (S8).
#[derive(Debug)]
pub struct Log;
impl Writer for Log {
    const NAME: &'static str = "log";
    const PLACES: &'static [Place] = &[Place::DailyLogs];
    const APPENDS_ONLY: bool = true;
}

/// That a writer tried what is not its own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{writer} may not write `{path}`: {reason}")]
pub struct Forbidden {
    /// Who.
    pub writer: &'static str,
    /// What.
    pub path: String,
    /// Why not.
    pub reason: &'static str,
}

/// What one writer wants written. The workspace takes nothing but pens.
#[derive(Debug)]
pub struct Pen<W> {
    files: BTreeMap<String, String>,
    copies: BTreeMap<String, Vec<u8>>,
    writer: PhantomData<W>,
}

impl<W: Writer> Default for Pen<W> {
    fn default() -> Self {
        Self { files: BTreeMap::new(), copies: BTreeMap::new(), writer: PhantomData }
    }
}

impl<W: Writer> Pen<W> {
    /// Notes that `path`, which holds `before` (`None`: there is no such file), shall hold `text`.
    ///
    /// # Errors
    /// Where the writer may not.
    pub fn write(&mut self, path: &str, before: Option<&str>, text: impl Into<String>) -> Result<(), Forbidden> {
        let text = text.into();
        let refuse = |reason| Err(Forbidden { writer: W::NAME, path: path.to_owned(), reason });
        match Place::of(path) {
            None => refuse("no writer may write there"),
            Some(place) if !W::PLACES.contains(&place) => refuse("it belongs to other writers"),
            _ if W::CREATES_ONLY && before.is_some() => refuse("it is there already"),
            _ if W::APPENDS_ONLY && !text.starts_with(before.unwrap_or_default()) => refuse("what is there must stay"),
            _ => {
                self.files.insert(path.to_owned(), text);
                Ok(())
            }
        }
    }

    /// What was noted so far for `path`, or else `before`.
    pub fn draft<'t>(&'t self, path: &str, before: &'t str) -> &'t str {
        self.files.get(path).map_or(before, String::as_str)
    }

    /// The texts and the copies that were noted.
    pub(super) fn into_files(self) -> (BTreeMap<String, String>, BTreeMap<String, Vec<u8>>) {
        (self.files, self.copies)
    }
}

impl Pen<Apply> {
    /// Notes that a snapshot shall hold `bytes` at `path`, where there is nothing yet.
    ///
    /// # Errors
    /// Where the path lies in no snapshot.
    pub fn keep(&mut self, path: String, bytes: Vec<u8>) -> Result<(), Forbidden> {
        if Place::of(&path) != Some(Place::Applied) {
            return Err(Forbidden { writer: Apply::NAME, path, reason: "copies belong in a snapshot" });
        }
        self.copies.insert(path, bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in each place.
    fn example(place: Place) -> &'static str {
        match place {
            Place::Decisions => "decisions/DECISIONS.md",
            Place::Tasks => "tasks/TASKS.md",
            Place::Entities => "entities/people.md",
            Place::DailyLogs => "memory/2026-02-20.md",
            Place::IntelState => "memory/intel-state.json",
            Place::Contradictions => "intelligence/CONTRADICTIONS.md",
            Place::Drift => "intelligence/DRIFT.md",
            Place::Signals => "intelligence/SIGNALS.md",
            Place::Impact => "intelligence/IMPACT.md",
            Place::Audit => "intelligence/AUDIT.md",
            Place::ScanLog => "intelligence/SCAN_LOG.md",
            Place::Proposed => "intelligence/proposed/EDITS_PROPOSED.md",
            Place::Snapshots => "intelligence/state/snapshots/S-2026-02-20.json",
            Place::Applied => "intelligence/applied/20260220-120000/APPLY_RECEIPT.md",
            Place::Config => "mind-mem.json",
            Place::Maintenance => "maintenance/validation-report.txt",
            Place::Other => "MEMORY.md",
        }
    }

    fn row<W: Writer>(before: Option<&str>) -> String {
        let may = |place: &Place| {
            assert_eq!(Place::of(example(*place)), Some(*place));
            Pen::<W>::default().write(example(*place), before, "old and new").is_ok()
        };
        Place::ALL.iter().map(|place| if may(place) { 'W' } else { '-' }).collect()
    }

    #[test]
    fn every_pair_of_writer_and_place_is_as_section_7_has_it() {
        // Decisions Tasks Entities Logs State | Contradictions Drift Signals Impact Audit ScanLog | Proposed Snapshots
        // Applied Config Maintenance Other
        assert_eq!(row::<Scan>(Some("old")), "----WWW-W-WWW----");
        assert_eq!(row::<Apply>(Some("old")), "WWW-W--W-W-WWW---");
        assert_eq!(row::<Capture>(Some("old")), "-------W---------");
        assert_eq!(row::<Validate>(Some("old")), "---------------W-");
        assert_eq!(row::<Log>(Some("old")), "---W-------------");
        assert_eq!(row::<Log>(Some("other")), "-----------------");
        assert_eq!(row::<Init>(Some("old")), "-----------------");
        assert_eq!(row::<Init>(None), "WWWWWWWWWWWWWWWWW");
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
            assert!(Pen::<Init>::default().write(path, None, "").is_err(), "{path}");
        }
        assert!(Pen::<Apply>::default().write("decisions/script.sh", None, "").is_err());
    }
}
