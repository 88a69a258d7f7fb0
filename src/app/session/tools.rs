//! Tools with effects outside the program. Each tool describes an effect ([`Effect`]) and performs it with a [`Permit`]
//! for exactly that.

use std::io::{ErrorKind, Write as _};
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use jiff::Timestamp;

use crate::foundation::base::Digest;
use crate::foundation::gate::{Budget, Category, Effect, Permit, Refusal, Scope};
use crate::governance::memory::search::{SearchHit, SearchQuery};
use crate::governance::memory::workspace::{MemoryError, Workspace};

/// Maximum number of hits in the memory.
const HITS_MAX: usize = 5;

/// Why a tool failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The permit is for another effect, or has expired.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The path leaves the folder: by `..`, as an absolute path, or through a link.
    #[error("`{path}` is outside the opened folder: {source}")]
    Outside {
        /// The path.
        path: String,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A file system error.
    #[error("cannot write `{path}`: {source}")]
    Io {
        /// Its path.
        path: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The memory's error.
    #[error("the memory failed: {0}")]
    Memory(#[from] MemoryError),
}

/// Files inside one folder that was opened once. Every path is resolved from the open folder, step by step (cap-std), so that
/// neither `..`, nor an absolute path, nor a link created meanwhile leads out of it.
#[derive(Debug)]
pub(super) struct Files {
    dir: Dir,
    scope: Scope,
}

impl Files {
    /// Opens `folder`, whose files belong to `scope`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(super) fn open(folder: &Path, scope: Scope) -> std::io::Result<Self> {
        Ok(Self { dir: Dir::open_ambient_dir(folder, ambient_authority())?, scope })
    }

    /// The effect of writing this text to `path`.
    pub(super) fn writing(&self, path: &str, text: &str) -> Effect {
        let arguments = format!("{path}\0{}", Digest::of(text));
        let cost = Budget { files: 1, diff_lines: text.lines().count() as u64, ..Budget::NOTHING };
        Effect::new(Category::Write, arguments).writing(self.scope).costing(cost)
    }

    /// Writes a file atomically: to a temporary file that then replaces it. A link at the path is replaced, not
    /// followed.
    ///
    /// # Errors
    /// If the permit is for another effect, the path leads out of the folder, or writing fails.
    pub(super) fn write(&self, permit: Permit, path: &str, text: &str, now: Timestamp) -> Result<Digest, ToolError> {
        let _spent = permit.spend(&self.writing(path, text), now)?;
        let temporary = format!("{path}.tmp");
        // A link at the temporary name must not be followed.
        match self.dir.remove_file(&temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(io_error(path)(error)),
            _ => {}
        }
        let mut options = cap_std::fs::OpenOptions::new();
        let mut file = self.dir.open_with(&temporary, options.write(true).create_new(true)).map_err(io_error(path))?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_data()).map_err(io_error(path))?;
        self.dir.rename(&temporary, &self.dir, path).map_err(io_error(path))?;
        Ok(Digest::of(text))
    }
}

fn io_error(path: &str) -> impl Fn(std::io::Error) -> ToolError {
    let path = path.to_owned();
    move |source| {
        let path = path.clone();
        // cap-std reports an escape from the folder with this kind.
        if source.kind() == ErrorKind::PermissionDenied {
            return ToolError::Outside { path, source };
        }
        ToolError::Io { path, source }
    }
}

/// The effect of searching a memory for these words.
pub(super) fn searching(text: &str) -> Effect {
    Effect::new(Category::MemoryRead, text).reading(Scope::Knowledge)
}

/// Searches a memory.
///
/// # Errors
/// If the permit is for another search, or the memory cannot be read.
pub(super) fn search(
    memory: &Workspace,
    permit: Permit,
    text: &str,
    now: Timestamp,
) -> Result<Vec<SearchHit>, ToolError> {
    let _spent = permit.spend(&searching(text), now)?;
    let query = SearchQuery { text: text.to_owned(), limit: HITS_MAX, ..SearchQuery::default() };
    Ok(memory.search(&query)?)
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    use jiff::SignedDuration;

    use super::*;
    use crate::foundation::gate::{
        Budget, Categories, Category, Effect, EffectRequest, Gate, LeaseId, LeaseTerms, Ledger, LedgerEntry,
        LedgerError, Permit, Principal, Rights, Scope, Scopes,
    };
    use crate::foundation::store::{Disk as _, RealDisk};

    struct NullLedger;

    impl Ledger for NullLedger {
        fn record(&mut self, _: Timestamp, entries: &[LedgerEntry]) -> Result<Vec<Digest>, LedgerError> {
            Ok(entries.iter().map(|entry| Digest::of(&entry.kind)).collect())
        }
    }

    /// Grants every effect that is not privileged.
    struct TestGate {
        gate: Gate<NullLedger>,
        lease: LeaseId,
        now: Timestamp,
    }

    impl TestGate {
        #[expect(clippy::unwrap_used, reason = "a helper of the tests")]
        fn new() -> Self {
            let now = Timestamp::UNIX_EPOCH;
            let budget = Budget {
                money_micros: 0,
                tokens: 1_000,
                wall_ms: 600_000,
                calls: 1_000,
                files: 100,
                diff_lines: 1_000,
            };
            let rights = Rights {
                uses: Categories::of(Category::ALL),
                reads: Scopes::of(Scope::ALL),
                writes: Scopes::of(Scope::ALL),
                budget,
                ..Rights::NONE
            };
            let hour = SignedDuration::from_hours(1);
            let terms = LeaseTerms { rights, expires: now + hour, idle: hour };
            let (gate, lease) = Gate::open(NullLedger, Principal::new("test", "test", "calm"), terms, now).unwrap();
            Self { gate, lease, now }
        }

        #[expect(clippy::unwrap_used, reason = "a helper of the tests")]
        fn permit(&mut self, effect: &Effect) -> Permit {
            self.gate.ask(&EffectRequest { lease: self.lease, effect: effect.clone() }, self.now).unwrap()
        }
    }

    #[test]
    fn no_path_leads_out_of_the_folder() {
        let root = tempfile::tempdir().unwrap();
        let inside = root.path().join("inside");
        fs::create_dir(&inside).unwrap();
        fs::write(root.path().join("secret"), "s").unwrap();
        symlink(root.path().join("secret"), inside.join("link")).unwrap();
        symlink(root.path(), inside.join("up")).unwrap();
        let files = Files::open(&inside, Scope::Notes).unwrap();
        let mut gate = TestGate::new();
        let mut write = |path: &str| files.write(gate.permit(&files.writing(path, "x")), path, "x", gate.now);
        for path in ["../new", "/tmp/loom-outside", "up/new", "./../inside/../new"] {
            assert!(matches!(write(path), Err(ToolError::Outside { .. })), "{path}");
        }
        // A link at the path is replaced, not followed; the same for the temporary file.
        symlink(root.path().join("secret"), inside.join("note2.tmp")).unwrap();
        write("link").unwrap();
        write("note2").unwrap();
        assert_eq!(fs::read_to_string(root.path().join("secret")).unwrap(), "s");
        assert_eq!(fs::read_to_string(inside.join("link")).unwrap(), "x");
    }

    #[test]
    fn a_folder_replaced_by_a_link_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let inside = root.path().join("inside");
        fs::create_dir_all(inside.join("sub")).unwrap();
        fs::create_dir(root.path().join("elsewhere")).unwrap();
        let files = Files::open(&inside, Scope::Notes).unwrap();
        let mut gate = TestGate::new();
        let permit = gate.permit(&files.writing("sub/f", "x"));
        // Between the permit and the write.
        fs::remove_dir(inside.join("sub")).unwrap();
        symlink(root.path().join("elsewhere"), inside.join("sub")).unwrap();
        assert!(matches!(files.write(permit, "sub/f", "x", gate.now), Err(ToolError::Outside { .. })));
        assert_eq!(fs::read_dir(root.path().join("elsewhere")).unwrap().count(), 0);
    }

    #[test]
    fn a_permit_is_for_one_path_and_one_text() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::open(folder.path(), Scope::Notes).unwrap();
        let mut gate = TestGate::new();
        let permit = gate.permit(&files.writing("a", "x"));
        assert!(matches!(files.write(permit, "b", "x", gate.now), Err(ToolError::Refused(_))));
        let permit = gate.permit(&files.writing("a", "x"));
        assert!(matches!(files.write(permit, "a", "y", gate.now), Err(ToolError::Refused(_))));
        let permit = gate.permit(&searching("a"));
        assert!(matches!(files.write(permit, "a", "x", gate.now), Err(ToolError::Refused(_))));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_search_of_the_memory_needs_its_permit() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Arc::new(RealDisk::new(folder.path()));
        let memory = Workspace::on(Arc::clone(&disk) as _, "memory", Timestamp::UNIX_EPOCH);
        memory.init().unwrap();
        disk.write(
            "decisions/DECISIONS.md",
            b"[D-20260101-001]\nDate: 2026-01-01\nStatus: active\nStatement: Use SQLite\n",
        )
        .unwrap();
        let mut gate = TestGate::new();
        let permit = gate.permit(&searching("nothing here"));
        assert_eq!(search(&memory, permit, "nothing here", gate.now).unwrap(), []);
        let permit = gate.permit(&searching("sqlite"));
        let found = search(&memory, permit, "sqlite", gate.now).unwrap();
        assert_eq!(found.iter().map(|hit| hit.id.as_str()).collect::<Vec<_>>(), ["D-20260101-001"]);
        let permit = gate.permit(&searching("one thing"));
        assert!(matches!(search(&memory, permit, "another", gate.now), Err(ToolError::Refused(_))));
    }
}
