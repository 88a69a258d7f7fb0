//! The authorizer of a command: one lease, in the mood of that command. Commands that leave results write receipts next to
//! them; the others keep their receipts chained in memory until they end.

use std::path::Path;
use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::json;

use super::{Authorizer, AuthorizerError, AuthorizerSetup, RootMood};
use crate::foundation::base::{Clock, SystemClock};
use crate::foundation::chat::ModelChain;
use crate::foundation::gate::{Budget, Categories, Category, Hosts, LedgerEntry, Rights, Scope};
use crate::foundation::store::receipts::{Head, Receipt, ReceiptKey, ReceiptLog, SharedLog};
use crate::foundation::store::{FileLock, RealDisk, open_regular};
use crate::governance::memory::approval::ApprovalKey;
use crate::governance::mood::{Mood, MoodEvent, MoodFacts, MoodProfiles, MoodState, begin_entry, step, step_entry};
use crate::inference::providers;

/// Duration of a command's lease; a server runs at most this long.
const LEASE_DURATION: SignedDuration = SignedDuration::from_hours(24 * 365);
/// Budget of a whole command; its mood has a budget per visit.
const BUDGET: Budget = Budget {
    money_micros: 0,
    tokens: 1_000_000_000_000,
    wall_ms: 0,
    calls: 1_000_000_000,
    files: 1_000_000,
    diff_lines: 1_000_000_000,
};
const LOCK: &str = "receipts.lock";
/// The folder of a memory's receipts.
const MEMORY_RECEIPTS: &str = ".loom/receipts";

/// What to do if another process is writing receipts in the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IfLocked {
    /// Wait; it takes only a moment.
    Wait,
    /// Fail; it may take hours.
    Refuse,
}

impl Authorizer {
    /// The authorizer of a command that calls these models. Receipts are written to `receipts_folder`, if given.
    ///
    /// # Errors
    /// If the receipts in the folder are damaged or cannot be written.
    pub fn for_models(
        command: &'static str,
        mood: Mood,
        models: &[&ModelChain],
        receipts_folder: Option<&Path>,
    ) -> Result<Self, AuthorizerError> {
        let hosts: Vec<String> = models.iter().flat_map(|chain| chain.specs()).filter_map(providers::host).collect();
        let uses = Categories::of(&[Category::Model, Category::Rollout]);
        let rights = Rights { uses, model_hosts: Hosts::only(hosts), ..Rights::NONE };
        let receipts = receipts_folder.map(|folder| (folder, IfLocked::Refuse));
        Self::of_command(command, mood, rights, None, receipts, Arc::new(SystemClock))
    }

    /// The authorizer of a command that connects to one host.
    ///
    /// # Errors
    /// None, unless a shipped profile is damaged.
    pub fn for_network(command: &'static str, host: &str) -> Result<Self, AuthorizerError> {
        let rights = Rights { uses: Category::Network.into(), hosts: Hosts::only([host]), ..Rights::NONE };
        Self::of_command(command, Mood::Curious, rights, None, None, Arc::new(SystemClock))
    }

    /// The authorizer of a command that captures or proposes something in the memory in `folder`, in CALM.
    ///
    /// # Errors
    /// If the receipts in the folder are damaged or cannot be written.
    pub fn for_memory_proposals(
        command: &'static str,
        folder: &Path,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, AuthorizerError> {
        let uses = Category::MemoryPropose.into();
        let rights = Rights { uses, reads: Scope::Knowledge.into(), ..Rights::NONE };
        let receipts = folder.join(MEMORY_RECEIPTS);
        Self::of_command(command, Mood::Calm, rights, None, Some((&receipts, IfLocked::Wait)), clock)
    }

    /// The authorizer of a command that changes decisions in the memory in `folder`: in PARANOID, where a person's approval
    /// of these exact arguments permits what the mood alone does not.
    ///
    /// # Errors
    /// As [`for_memory_proposals`](Self::for_memory_proposals).
    pub fn for_memory_changes(
        command: &'static str,
        folder: &Path,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, AuthorizerError> {
        let memory = Scope::Knowledge.into();
        let rights = Rights { uses: Category::MemoryApply.into(), reads: memory, writes: memory, ..Rights::NONE };
        let receipts = folder.join(MEMORY_RECEIPTS);
        let opened = Some(Category::MemoryApply);
        Self::of_command(command, Mood::Paranoid, rights, opened, Some((&receipts, IfLocked::Wait)), clock)
    }

    /// `opened` is a category that a person's approval adds to the mood's.
    fn of_command(
        command: &'static str,
        mood: Mood,
        rights: Rights,
        opened: Option<Category>,
        receipts: Option<(&Path, IfLocked)>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, AuthorizerError> {
        let profiles = MoodProfiles::shipped()?;
        let profile = profiles.of(mood);
        let of_mood = opened.map_or_else(|| profile.rights().clone(), |category| profile.opened(category));
        let log = receipts.map(|(folder, if_locked)| open_log(folder, if_locked, clock.as_ref())).transpose()?;
        let mut state = MoodState::begin(mood);
        let log = match log {
            None => None,
            Some((log, clean)) => {
                let begun = json!({"command": command, "mood": mood.name(), "loom": env!("CARGO_PKG_VERSION")});
                let mut entries = vec![LedgerEntry::new("command.begun", begun)];
                if !clean {
                    // The command before was killed. Its receipts have just been verified.
                    let begun = MoodState::within(mood, MoodFacts::NONE);
                    entries.push(begin_entry(&begun));
                    state = begun.state;
                    for event in [MoodEvent::Restarted, MoodEvent::Projected { consistent: true }] {
                        let after = step(&state, &event);
                        entries.push(step_entry(Some(&event), MoodFacts::NONE, &after));
                        state = after.state;
                    }
                }
                log.record(clock.now(), &entries)?;
                Some(log)
            }
        };
        Self::open(AuthorizerSetup {
            work: command,
            log,
            mood: state,
            root_mood: RootMood::Renewed(of_mood),
            rights: Rights { budget: BUDGET, ..rights },
            lasts: LEASE_DURATION,
            idle: LEASE_DURATION,
            profiles,
            clock,
        })
    }

    /// Ends a command: writes the totals of the model calls and signs the receipts. Returns the head of their log.
    ///
    /// # Errors
    /// If they may not be durable.
    pub fn close(self) -> Result<Option<Head>, AuthorizerError> {
        let body = json!({"command": self.work, "models": self.usage()});
        self.hand_off(LedgerEntry::new("command.handed_off", body))
    }
}

/// The user's key for approvals of memory changes, derived from the key that signs receipts.
///
/// # Errors
/// If the key cannot be read or created.
pub fn approval_key() -> Result<ApprovalKey, AuthorizerError> {
    Ok(ApprovalKey::derive(ReceiptKey::open(&ReceiptKey::path()?)?.sign(b"loom memory approvals").as_bytes()))
}

/// How tokens name the workspace in `folder`: by its canonical path.
pub fn workspace_identity(folder: &Path) -> String {
    std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned()).display().to_string()
}

/// Opens the log in a folder, and says whether the last command there ended cleanly.
fn open_log(folder: &Path, if_locked: IfLocked, clock: &dyn Clock) -> Result<(SharedLog, bool), AuthorizerError> {
    std::fs::create_dir_all(folder).map_err(|error| AuthorizerError::Folder(folder.display().to_string(), error))?;
    if if_locked == IfLocked::Refuse
        && let Ok(lock) = open_regular(&folder.join(LOCK))
        && let Ok(None) = FileLock::shared(lock)
    {
        return Err(AuthorizerError::Busy(folder.display().to_string()));
    }
    let key = Arc::new(ReceiptKey::open(&ReceiptKey::path()?)?);
    let (log, opened) = ReceiptLog::open(Arc::new(RealDisk::new(folder)), key, clock.now())?;
    let own = |receipt: &&Receipt| !["log.opened", "content.erased"].contains(&receipt.entry.kind.as_str());
    let last = opened.receipts.iter().rfind(own);
    // A run or a session keeps the moods of its own log.
    let shared = opened.receipts.iter().any(|one| matches!(one.entry.kind.as_str(), "run.begun" | "session.begun"));
    let clean = shared || last.is_none_or(|last| last.entry.kind.ends_with(".handed_off"));
    Ok((SharedLog::new(log), clean))
}
