//! The memory as a tool: search and propose. Applying a proposal is a person's decision and not a tool.

use jiff::Timestamp;

use super::ToolError;
use crate::foundation::gate::{Category, Effect, Permit, Scope};
use crate::governance::memory::search::{SearchHit, SearchQuery};
use crate::governance::memory::workspace::{MemoryError, ProposalRequest, Workspace};

/// Maximum number of hits.
const HITS_MAX: usize = 5;

/// A memory.
pub struct Memory {
    workspace: Workspace,
}

impl Memory {
    /// The memory of a workspace.
    pub const fn new(workspace: Workspace) -> Self {
        Self { workspace }
    }

    /// The effect of searching for these words.
    pub fn searching(&self, text: &str) -> Effect {
        Effect::new(Category::MemoryRead, text).reading(Scope::Knowledge)
    }

    /// The effect of this proposal.
    pub fn proposing(request: &ProposalRequest) -> Effect {
        Workspace::propose_effect(request)
    }

    /// Searches.
    ///
    /// # Errors
    /// If the permit is for another search, or the memory cannot be read.
    pub fn search(&self, permit: Permit, text: &str, now: Timestamp) -> Result<Vec<SearchHit>, ToolError> {
        let _spent = permit.spend(&self.searching(text), now)?;
        let query = SearchQuery { text: text.to_owned(), limit: HITS_MAX, ..SearchQuery::default() };
        self.workspace.search(&query).map_err(|error| ToolError::Memory(error.to_string()))
    }

    /// Proposes a change, which a person must apply. Returns its id.
    ///
    /// # Errors
    /// If the permit is for another effect, or the memory rejects the proposal.
    pub fn propose(&self, permit: Permit, request: ProposalRequest) -> Result<String, ToolError> {
        self.workspace.propose(permit, request).map_err(|error| match error {
            MemoryError::Denied(refusal) => ToolError::Refused(refusal),
            error => ToolError::Memory(error.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tests::TestGate;
    use super::*;
    use crate::foundation::store::{Disk as _, RealDisk};

    #[test]
    fn the_memory_needs_permits() {
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
        let mut gate = TestGate::new();
        let permit = gate.permit(&memory.searching("nothing here"));
        assert_eq!(memory.search(permit, "nothing here", gate.now).unwrap(), []);
        let permit = gate.permit(&memory.searching("sqlite"));
        let found = memory.search(permit, "sqlite", gate.now).unwrap();
        assert_eq!(found.iter().map(|hit| hit.id.as_str()).collect::<Vec<_>>(), ["D-20260101-001"]);
        let permit = gate.permit(&memory.searching("one thing"));
        assert!(matches!(memory.search(permit, "another", gate.now), Err(ToolError::Refused(_))));
        let request =
            || ProposalRequest { ops: Vec::new(), risk: "low".to_owned(), evidence: Vec::new(), sources: Vec::new() };
        let permit = gate.permit(&memory.searching("one thing"));
        assert!(matches!(memory.propose(permit, request()), Err(ToolError::Refused(_))));
        // An empty proposal is rejected by the memory itself.
        let permit = gate.permit(&Memory::proposing(&request()));
        assert!(matches!(memory.propose(permit, request()), Err(ToolError::Memory(_))));
        assert!(disk.is_dir(""));
    }
}
