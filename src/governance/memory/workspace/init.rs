//! Creates a workspace: decisions, settings and state, each if it is missing. Existing files are never overwritten; every
//! other file of the specification is created when something is written to it.

use serde::Serialize;

use super::{MemoryError, ReadScope, Result, Workspace};
use crate::governance::memory::authority::{InitWriter, WriteSet};
use crate::governance::memory::state::{CONFIG_FILE, STATE_FILE};
use crate::governance::memory::texts::DECISIONS_FILE;

/// The result of `init`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InitReport {
    /// The new files.
    pub files: Vec<String>,
}

const SETTINGS: &str = r#"{
  "version": "1.0.3",
  "proposal_budget": {
    "per_run": 3,
    "per_day": 6,
    "backlog_limit": 30
  },
  "proposal_ttl_days": 30,
  "stalled_after_days": 14,
  "auto_approve": [],
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
        let files = [(DECISIONS_FILE, "# Decisions\n"), (CONFIG_FILE, SETTINGS), (STATE_FILE, FIRST_STATE)];
        let loaded = self.lock_and_read_any(ReadScope::Files(&[]))?;
        let mut writes = WriteSet::<InitWriter>::default();
        let mut created = Vec::new();
        for (path, text) in files {
            if self.bytes(path)?.is_none() {
                writes.write(path, None, text)?;
                created.push(path.to_owned());
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
