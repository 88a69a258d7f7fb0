//! The memory: searched and proposed to. Applying what was proposed is a person's act and no tool.

use jiff::Timestamp;

use super::ToolError;
use crate::foundation::gate::{Category, Effect, Permit, Scope};
use crate::governance::memory::search::{Hit, Query};
use crate::governance::memory::workspace::{MemoryError, Request, Workspace};

/// Most blocks that a search gives.
const HITS_MAX: usize = 5;

/// A memory.
pub struct Memory {
    workspace: Workspace,
}

impl Memory {
    /// The memory in a workspace.
    pub const fn new(workspace: Workspace) -> Self {
        Self { workspace }
    }

    /// That it is searched for these words.
    pub fn searching(&self, text: &str) -> Effect {
        Effect::new(Category::MemoryRead, text).reading(Scope::Knowledge)
    }

    /// That this is proposed.
    pub fn proposing(request: &Request) -> Effect {
        Workspace::proposing(request)
    }

    /// Searches.
    ///
    /// # Errors
    /// When the permit is not for these words, or the memory cannot be read.
    pub fn search(&self, permit: Permit, text: &str, now: Timestamp) -> Result<Vec<Hit>, ToolError> {
        let _spent = permit.spend(&self.searching(text), now)?;
        let query = Query { text: text.to_owned(), limit: HITS_MAX, ..Query::default() };
        self.workspace.search(&query).map_err(|error| ToolError::Memory(error.to_string()))
    }

    /// Proposes a change; it waits for a person. Gives its id.
    ///
    /// # Errors
    /// When the permit is not for it, or the memory takes no such proposal.
    pub fn propose(&self, permit: Permit, request: Request) -> Result<String, ToolError> {
        self.workspace.propose(permit, request).map_err(|error| match error {
            MemoryError::Denied(refusal) => ToolError::Refused(refusal),
            error => ToolError::Memory(error.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tests::Keeper;
    use super::*;
    use crate::foundation::store::{Disk as _, RealDisk};

    #[test]
    fn the_memory_is_searched_and_proposed_to_with_permits_alone() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Arc::new(RealDisk::new(folder.path()));
        let workspace = Workspace::on(Arc::clone(&disk) as _, "memory", Timestamp::UNIX_EPOCH);
        workspace.init().unwrap();
        disk.write(
            "decisions/DECISIONS.md",
            b"[D-20260101-001]\nDate: 2026-01-01\nStatus: active\nStatement: Use SQLite\n",
        )
        .unwrap();
        let memory = Memory::new(workspace);
        let mut keeper = Keeper::new();
        let permit = keeper.permit(&memory.searching("nothing here"));
        assert_eq!(memory.search(permit, "nothing here", keeper.now).unwrap(), []);
        let permit = keeper.permit(&memory.searching("sqlite"));
        let found = memory.search(permit, "sqlite", keeper.now).unwrap();
        assert_eq!(found.iter().map(|hit| hit.id.as_str()).collect::<Vec<_>>(), ["D-20260101-001"]);
        let permit = keeper.permit(&memory.searching("one thing"));
        assert!(matches!(memory.search(permit, "another", keeper.now), Err(ToolError::Refused(_))));
        let request = || Request { ops: Vec::new(), risk: "low".to_owned(), evidence: Vec::new(), sources: Vec::new() };
        let permit = keeper.permit(&memory.searching("one thing"));
        assert!(matches!(memory.propose(permit, request()), Err(ToolError::Refused(_))));
        // A proposal of nothing is refused by the memory itself.
        let permit = keeper.permit(&Memory::proposing(&request()));
        assert!(matches!(memory.propose(permit, request()), Err(ToolError::Memory(_))));
        assert!(disk.is_dir(""));
    }
}
