//! What stands between a command and the world: a gate with one lease, in the mood of that command. It knows no command.
//!
//! A command that calls a model opens it through its watch ([`Watch::over`]); one that changes the memory asks its watch for
//! the permit. Naming a hosted model is the grant for its host, and for no other. What leaves results has receipts beside
//! them; what leaves none keeps its answers chained in memory until it ends.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::json;

use crate::foundation::base::{Clock, SystemClock};
use crate::foundation::chat::{Embedder, LanguageModel, ModelChain, ModelError, ModelSpec};
use crate::foundation::config::ConfigErrors;
use crate::foundation::gate::{
    Budget, Categories, Category, Effect, Entry, Guard, Hosts, Ledger, LedgerError, Passing, Permit, Principal,
    Refusal, Rights, Scope, Terms, Warden,
};
use crate::foundation::store::receipts::{Key, KeyError, LogError, ReceiptLog, SharedLog};
use crate::foundation::store::{FileLock, RealDisk};
use crate::governance::mood::{Mood, Profiles};
use crate::inference::providers::{self, OpenOptions};

/// How long a command may work: a server until it is stopped, or for a year.
const LASTS: SignedDuration = SignedDuration::from_hours(24 * 365);
/// What a command may spend in all; its mood says what in one visit.
const BUDGET: Budget = Budget {
    money_micros: 0,
    tokens: 1_000_000_000_000,
    wall_ms: 0,
    calls: 1_000_000_000,
    files: 1_000_000,
    diff_lines: 1_000_000_000,
};
const LOCK: &str = "receipts.lock";
/// Where a memory keeps the receipts of what was done to it.
const OF_MEMORY: &str = ".loom/receipts";

/// Why a command may not begin, or not go on. Every message says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The gate said no.
    #[error("{0}")]
    Refused(Refusal),
    /// Somebody else writes receipts there.
    #[error("another loom is at work in {0}: wait until it is done")]
    Busy(String),
    /// The receipts are not as they were written, or cannot be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// An answer could not be written down.
    #[error("the receipts could not be written: {0}; free some space, then begin again")]
    Ledger(#[from] LedgerError),
    /// The key that signs them.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A mood's profile.
    #[error(transparent)]
    Profile(#[from] ConfigErrors),
    /// The folder for them.
    #[error("cannot make the folder {0}: {1}")]
    Folder(String, std::io::Error),
}

impl From<Refusal> for WatchError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// What to do where another one writes receipts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Busy {
    /// It is done in a moment.
    Wait,
    /// It may take hours.
    Refuse,
}

/// A command's gate.
pub struct Watch {
    command: &'static str,
    warden: Arc<Warden<Box<dyn Ledger + Send>>>,
    log: Option<SharedLog>,
}

impl Watch {
    /// The watch of a command that calls these models. `beside` is the folder that its results are in, if it leaves any.
    pub fn models(
        command: &'static str,
        mood: Mood,
        models: &[&ModelChain],
        beside: Option<&Path>,
    ) -> Result<Self, WatchError> {
        let hosts: Vec<String> = models.iter().flat_map(|chain| chain.specs()).filter_map(providers::host).collect();
        let profiles = Profiles::shipped()?;
        let own = Rights {
            uses: Categories::of(&[Category::Model, Category::Rollout]),
            model_hosts: Hosts::only(hosts),
            ..Rights::NONE
        };
        Self::open(
            command,
            mood,
            own,
            profiles.of(mood).rights().clone(),
            beside.map(|folder| (folder, Busy::Refuse)),
            Arc::new(SystemClock),
        )
    }

    /// The watch of a command that fetches from one host.
    pub fn network(command: &'static str, host: &str) -> Result<Self, WatchError> {
        let profiles = Profiles::shipped()?;
        let own = Rights { uses: Category::Network.into(), hosts: Hosts::only([host]), ..Rights::NONE };
        let rights = profiles.of(Mood::Curious).rights().clone();
        Self::open(command, Mood::Curious, own, rights, None, Arc::new(SystemClock))
    }

    /// The watch of a command that notes something in the memory in `folder`, or proposes it: in CALM.
    ///
    /// # Errors
    /// When the receipts there are damaged, or cannot be written.
    pub fn proposing(command: &'static str, folder: &Path, clock: Arc<dyn Clock>) -> Result<Self, WatchError> {
        let uses = Category::MemoryPropose.into();
        let own = Rights { uses, reads: Scope::Knowledge.into(), ..Rights::NONE };
        let rights = Profiles::shipped()?.of(Mood::Calm).rights().clone();
        let receipts = folder.join(OF_MEMORY);
        Self::open(command, Mood::Calm, own, rights, Some((&receipts, Busy::Wait)), clock)
    }

    /// The watch of a command that changes what is true in the memory in `folder`: in PARANOID, where a person's word for
    /// these exact arguments opens what the mood itself may not.
    ///
    /// # Errors
    /// As [`proposing`](Self::proposing).
    pub fn applying(command: &'static str, folder: &Path, clock: Arc<dyn Clock>) -> Result<Self, WatchError> {
        let rights = Profiles::shipped()?.of(Mood::Paranoid).opened(Category::MemoryApply);
        let memory = Scope::Knowledge.into();
        let own = Rights { uses: Category::MemoryApply.into(), reads: memory, writes: memory, ..Rights::NONE };
        let receipts = folder.join(OF_MEMORY);
        Self::open(command, Mood::Paranoid, own, rights, Some((&receipts, Busy::Wait)), clock)
    }

    fn open(
        command: &'static str,
        mood: Mood,
        own: Rights,
        rights: Rights,
        beside: Option<(&Path, Busy)>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, WatchError> {
        let (log, ledger): (_, Box<dyn Ledger + Send>) = match beside {
            None => (None, Box::new(Passing::default())),
            Some((folder, busy)) => {
                let log = log(folder, busy, clock.as_ref())?;
                (Some(log.clone()), Box::new(log))
            }
        };
        let now = clock.now();
        let own = Rights { budget: BUDGET, ..own };
        let terms = Terms { rights: own, expires: now.saturating_add(LASTS).unwrap_or(now), idle: LASTS };
        if let Some(log) = &log {
            let begun = json!({"command": command, "mood": mood.name(), "loom": env!("CARGO_PKG_VERSION")});
            log.record(now, &[Entry::new("command.begun", begun)])?;
        }
        let principal = Principal::new(command, "user", mood.name());
        let warden = Warden::open(ledger, principal, terms, rights, clock)?;
        Ok(Self { command, warden: Arc::new(warden), log })
    }

    /// The options under which its models are opened: each asks before it is called.
    #[must_use]
    pub fn over(&self, options: OpenOptions) -> OpenOptions {
        options.guarded(Arc::clone(&self.warden) as Arc<dyn Guard>)
    }

    /// A model that asks before it is called.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn model(&self, chain: &ModelChain, options: &OpenOptions) -> Result<Arc<dyn LanguageModel>, ModelError> {
        providers::open(chain, &self.over(options.clone()))
    }

    /// A sentence embedder that asks before it is called.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn embedder(&self, spec: &ModelSpec, options: &OpenOptions) -> Result<Arc<dyn Embedder>, ModelError> {
        providers::open_embedder(spec, &self.over(options.clone()))
    }

    /// Asks for an effect that follows at once.
    pub fn allow(&self, effect: &Effect) -> Result<(), WatchError> {
        Ok(self.warden.allow(effect)?)
    }

    /// Asks for an effect whose performer takes the permit.
    pub fn ask(&self, effect: &Effect) -> Result<Permit, Refusal> {
        self.warden.ask(effect)
    }

    /// The same for one that takes a person's word, which `by` tells of: it holds for this effect and no other.
    ///
    /// # Errors
    /// Why not.
    pub fn ask_by(&self, by: &str, effect: &Effect) -> Result<Permit, Refusal> {
        self.warden.approve(effect, by)?;
        self.warden.ask(effect)
    }

    /// Notes what came of an effect.
    pub fn note(&self, kind: &str, body: serde_json::Value) -> Result<(), WatchError> {
        self.warden.note(Entry::new(kind, body))?;
        Ok(())
    }

    /// The work is over: what was called is summed up, and the receipts are signed.
    pub fn close(self) -> Result<(), WatchError> {
        let Some(log) = self.log else { return Ok(()) };
        let body = json!({"command": self.command, "models": self.warden.came()});
        self.warden.note(Entry::new("command.handed_off", body))?;
        log.log().seal()?;
        Ok(())
    }
}

/// The log in a folder, if nobody else is at work there.
fn log(folder: &Path, busy: Busy, clock: &dyn Clock) -> Result<SharedLog, WatchError> {
    std::fs::create_dir_all(folder).map_err(|error| WatchError::Folder(folder.display().to_string(), error))?;
    if busy == Busy::Refuse
        && let Ok(lock) = File::open(folder.join(LOCK))
        && let Ok(None) = FileLock::shared(lock)
    {
        return Err(WatchError::Busy(folder.display().to_string()));
    }
    let key = Arc::new(Key::open(&Key::path()?)?);
    let (log, _) = ReceiptLog::open(Arc::new(RealDisk::new(folder)), key, clock.now())?;
    Ok(SharedLog::new(log))
}
