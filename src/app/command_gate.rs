//! The gate of a command: one lease, in the mood of that command. It does not depend on any command.
//!
//! A command opens its models through its gate ([`CommandGate::open_model`]); a command that changes the memory
//! requests a permit from it. Naming a hosted model grants access to its host and to no other. Commands that leave
//! results write receipts next to them; the others keep their receipts chained in memory until they end.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::json;

use crate::foundation::base::{Clock, SystemClock};
use crate::foundation::chat::{Embedder, LanguageModel, ModelChain, ModelError, ModelSpec};
use crate::foundation::config::ConfigErrors;
use crate::foundation::gate::{
    Authorizer, Budget, Categories, Category, Effect, EphemeralLedger, GateHandle, Hosts, LeaseTerms, Ledger,
    LedgerEntry, LedgerError, Permit, Principal, Refusal, Rights, Scope,
};
use crate::foundation::store::receipts::{KeyError, LogError, ReceiptKey, ReceiptLog, SharedLog};
use crate::foundation::store::{FileLock, RealDisk};
use crate::governance::mood::{Mood, MoodProfiles};
use crate::inference::providers::{self, OpenOptions};

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

/// Why a command cannot start or continue. Every message says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum CommandGateError {
    /// The gate denied an effect.
    #[error("{0}")]
    Denied(Refusal),
    /// Another process is writing receipts there.
    #[error("another loom process is using {0}: wait until it has finished")]
    Busy(String),
    /// The receipts are damaged or cannot be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A receipt could not be written.
    #[error("the receipts could not be written: {0}; free some space and start again")]
    Ledger(#[from] LedgerError),
    /// The signing key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The profile of a mood.
    #[error(transparent)]
    Profile(#[from] ConfigErrors),
    /// The folder of the receipts.
    #[error("cannot create the folder {0}: {1}")]
    Folder(String, std::io::Error),
}

impl From<Refusal> for CommandGateError {
    fn from(refusal: Refusal) -> Self {
        Self::Denied(refusal)
    }
}

/// What to do if another process is writing receipts in the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IfLocked {
    /// Wait; it takes only a moment.
    Wait,
    /// Fail; it may take hours.
    Refuse,
}

/// The gate of one command.
pub struct CommandGate {
    command: &'static str,
    handle: Arc<GateHandle<Box<dyn Ledger + Send>>>,
    log: Option<SharedLog>,
}

impl CommandGate {
    /// The gate of a command that calls these models. Receipts are written to `receipts_folder`, if given.
    pub fn for_models(
        command: &'static str,
        mood: Mood,
        models: &[&ModelChain],
        receipts_folder: Option<&Path>,
    ) -> Result<Self, CommandGateError> {
        let hosts: Vec<String> = models.iter().flat_map(|chain| chain.specs()).filter_map(providers::host).collect();
        let profiles = MoodProfiles::shipped()?;
        let lease_rights = Rights {
            uses: Categories::of(&[Category::Model, Category::Rollout]),
            model_hosts: Hosts::only(hosts),
            ..Rights::NONE
        };
        Self::open(
            command,
            mood,
            lease_rights,
            profiles.of(mood).rights().clone(),
            receipts_folder.map(|folder| (folder, IfLocked::Refuse)),
            Arc::new(SystemClock),
        )
    }

    /// The gate of a command that connects to one host.
    pub fn for_network(command: &'static str, host: &str) -> Result<Self, CommandGateError> {
        let profiles = MoodProfiles::shipped()?;
        let lease_rights = Rights { uses: Category::Network.into(), hosts: Hosts::only([host]), ..Rights::NONE };
        let rights = profiles.of(Mood::Curious).rights().clone();
        Self::open(command, Mood::Curious, lease_rights, rights, None, Arc::new(SystemClock))
    }

    /// The gate of a command that captures or proposes something in the memory in `folder`, in CALM.
    ///
    /// # Errors
    /// If the receipts in the folder are damaged or cannot be written.
    pub fn for_memory_proposals(
        command: &'static str,
        folder: &Path,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, CommandGateError> {
        let uses = Category::MemoryPropose.into();
        let lease_rights = Rights { uses, reads: Scope::Knowledge.into(), ..Rights::NONE };
        let rights = MoodProfiles::shipped()?.of(Mood::Calm).rights().clone();
        let receipts = folder.join(MEMORY_RECEIPTS);
        Self::open(command, Mood::Calm, lease_rights, rights, Some((&receipts, IfLocked::Wait)), clock)
    }

    /// The gate of a command that changes decisions in the memory in `folder`: in PARANOID, where a person's approval
    /// of these exact arguments permits what the mood alone does not.
    ///
    /// # Errors
    /// As [`for_memory_proposals`](Self::for_memory_proposals).
    pub fn for_memory_changes(
        command: &'static str,
        folder: &Path,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, CommandGateError> {
        let rights = MoodProfiles::shipped()?.of(Mood::Paranoid).opened(Category::MemoryApply);
        let memory = Scope::Knowledge.into();
        let lease_rights = Rights { uses: Category::MemoryApply.into(), reads: memory, writes: memory, ..Rights::NONE };
        let receipts = folder.join(MEMORY_RECEIPTS);
        Self::open(command, Mood::Paranoid, lease_rights, rights, Some((&receipts, IfLocked::Wait)), clock)
    }

    fn open(
        command: &'static str,
        mood: Mood,
        lease_rights: Rights,
        mood_rights: Rights,
        receipts_folder: Option<(&Path, IfLocked)>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, CommandGateError> {
        let (log, ledger): (_, Box<dyn Ledger + Send>) = match receipts_folder {
            None => (None, Box::new(EphemeralLedger::default())),
            Some((folder, if_locked)) => {
                let log = open_log(folder, if_locked, clock.as_ref())?;
                (Some(log.clone()), Box::new(log))
            }
        };
        let now = clock.now();
        let lease_rights = Rights { budget: BUDGET, ..lease_rights };
        let terms = LeaseTerms {
            rights: lease_rights,
            expires: now.saturating_add(LEASE_DURATION).unwrap_or(now),
            idle: LEASE_DURATION,
        };
        if let Some(log) = &log {
            let begun = json!({"command": command, "mood": mood.name(), "loom": env!("CARGO_PKG_VERSION")});
            log.record(now, &[LedgerEntry::new("command.begun", begun)])?;
        }
        let principal = Principal::new(command, "user", mood.name());
        let handle = GateHandle::open(ledger, principal, terms, mood_rights, clock)?;
        Ok(Self { command, handle: Arc::new(handle), log })
    }

    /// These options with this gate checked before every model call.
    #[must_use]
    pub fn guarded_options(&self, options: OpenOptions) -> OpenOptions {
        options.with_guard(Arc::clone(&self.handle) as Arc<dyn Authorizer>)
    }

    /// Opens a model whose calls are checked by this gate.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open_model(&self, chain: &ModelChain, options: &OpenOptions) -> Result<Arc<dyn LanguageModel>, ModelError> {
        providers::open(chain, &self.guarded_options(options.clone()))
    }

    /// Opens a sentence embedder whose calls are checked by this gate.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open_embedder(&self, spec: &ModelSpec, options: &OpenOptions) -> Result<Arc<dyn Embedder>, ModelError> {
        providers::open_embedder(spec, &self.guarded_options(options.clone()))
    }

    /// Checks an effect that is performed immediately.
    pub fn allow(&self, effect: &Effect) -> Result<(), CommandGateError> {
        Ok(self.handle.allow(effect)?)
    }

    /// Requests a permit for an effect.
    pub fn permit(&self, effect: &Effect) -> Result<Permit, Refusal> {
        self.handle.ask(effect)
    }

    /// Requests a permit with a person's approval, described by `by`, that is valid for this effect only.
    ///
    /// # Errors
    /// The reason of the denial.
    pub fn permit_approved(&self, by: &str, effect: &Effect) -> Result<Permit, Refusal> {
        self.handle.approve(effect, by)?;
        self.handle.ask(effect)
    }

    /// Writes a receipt of an effect's result.
    pub fn record(&self, kind: &str, body: serde_json::Value) -> Result<(), CommandGateError> {
        self.handle.note(LedgerEntry::new(kind, body))?;
        Ok(())
    }

    /// Ends the work: writes the totals of the model calls and signs the receipts.
    pub fn close(self) -> Result<(), CommandGateError> {
        let Some(log) = self.log else { return Ok(()) };
        let body = json!({"command": self.command, "models": self.handle.usage()});
        self.handle.note(LedgerEntry::new("command.handed_off", body))?;
        log.log().seal()?;
        Ok(())
    }
}

/// Opens the log in a folder.
fn open_log(folder: &Path, if_locked: IfLocked, clock: &dyn Clock) -> Result<SharedLog, CommandGateError> {
    std::fs::create_dir_all(folder).map_err(|error| CommandGateError::Folder(folder.display().to_string(), error))?;
    if if_locked == IfLocked::Refuse
        && let Ok(lock) = File::open(folder.join(LOCK))
        && let Ok(None) = FileLock::shared(lock)
    {
        return Err(CommandGateError::Busy(folder.display().to_string()));
    }
    let key = Arc::new(ReceiptKey::open(&ReceiptKey::path()?)?);
    let (log, _) = ReceiptLog::open(Arc::new(RealDisk::new(folder)), key, clock.now())?;
    Ok(SharedLog::new(log))
}
