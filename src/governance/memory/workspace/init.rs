//! Creates a workspace: every folder and file that is missing; existing files are never overwritten.

use serde::Serialize;

use super::{MemoryError, ReadScope, Result, Workspace};
use crate::governance::memory::authority::{InitWriter, WriteSet};
use crate::governance::memory::proposal::TYPES;
use crate::governance::memory::state::{CONFIG_FILE, STATE_FILE};

/// The result of `init`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InitReport {
    /// The new files.
    pub files: Vec<String>,
}

const PROTOCOL: &str = "# Memory\n\nThis folder is a governed memory (Mind Mem 1.0.3). What has been decided stands in `decisions/`, what is to be done\nin `tasks/`, who and what there is in `entities/`. These change by proposals only: `loom memory propose`, `review`,\n`apply`. Signals wait in `intelligence/SIGNALS.md`. `memory/` holds daily logs, which only grow.\n";

const SETTINGS: &str = r#"{
  "version": "1.0.3",
  "proposal_budget": {
    "per_run": 3,
    "per_day": 6,
    "backlog_limit": 30
  },
  "proposal_ttl_days": 30,
  "stalled_after_days": 14,
  "allow_enforce": false
}
"#;

const FIRST_STATE: &str = r#"{
  "governance_mode": "detect_only",
  "flip_gate_week1_clean": false,
  "defer_cooldown_days": 7,
  "last_apply_ts": null,
  "counters": {}
}
"#;

impl Workspace {
    /// Creates the missing files.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn init(&self) -> Result<InitReport> {
        let titles = [
            ("decisions/DECISIONS.md", "Decisions"),
            ("tasks/TASKS.md", "Tasks"),
            ("entities/projects.md", "Projects"),
            ("entities/people.md", "People"),
            ("entities/tools.md", "Tools"),
            ("entities/incidents.md", "Incidents"),
            ("intelligence/CONTRADICTIONS.md", "Contradictions"),
            ("intelligence/DRIFT.md", "Drift"),
            ("intelligence/IMPACT.md", "Impact"),
            ("intelligence/BRIEFINGS.md", "Briefings"),
            ("intelligence/AUDIT.md", "Audit"),
            ("intelligence/SIGNALS.md", "Signals"),
            ("intelligence/SCAN_LOG.md", "Scan log"),
            (TYPES[0].1, "Proposed decisions"),
            (TYPES[1].1, "Proposed tasks"),
            (TYPES[2].1, "Proposed edits"),
        ];
        let mut files: Vec<(String, String)> =
            titles.iter().map(|(path, title)| ((*path).to_owned(), format!("# {title}\n"))).collect();
        files.extend([
            ("MEMORY.md".to_owned(), PROTOCOL.to_owned()),
            (CONFIG_FILE.to_owned(), SETTINGS.to_owned()),
            (STATE_FILE.to_owned(), FIRST_STATE.to_owned()),
        ]);
        for folder in ["maintenance", "summaries/weekly", "intelligence/applied", "intelligence/state/snapshots"] {
            files.push((format!("{folder}/.gitkeep"), String::new()));
        }
        let loaded = self.lock_and_read_any(ReadScope::Files(&[]))?;
        let mut writes = WriteSet::<InitWriter>::default();
        let mut created = Vec::new();
        for (path, text) in files {
            if self.bytes(&path)?.is_none() {
                writes.write(&path, None, text)?;
                created.push(path);
            }
        }
        self.commit(&loaded, writes)?;
        if self.is_workspace() {
            Ok(InitReport { files: created })
        } else {
            Err(MemoryError::NoWorkspace(self.name.clone()))
        }
    }
}
