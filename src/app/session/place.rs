//! Where a session lives, what it is begun with, where it stands, and why it does not go on.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::course::Mismatch;
use super::outcome::Conclusion;
use super::tools::ToolError;
use crate::app::watch::WatchError;
use crate::foundation::base::{Clock, Digest};
use crate::foundation::chat::{ModelChain, ModelError};
use crate::foundation::config::ConfigErrors;
use crate::foundation::gate::{LedgerError, Refusal};
use crate::foundation::store::Disk;
use crate::foundation::store::receipts::{Key, LogError};
use crate::governance::mood::{self, Counter, Mood};
use crate::governance::statechart::hope::Engagement;
use crate::inference::providers::{self, OpenOptions};
use crate::simulation::persona::AdversaryKind;
use crate::simulation::report::ReportError;
use crate::simulation::rollout::{FileError, RunError};

/// What a session is begun with; kept in its log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// How densely to ask; asked where it is not said.
    pub engagement: Option<Engagement>,
    /// The session's own model, which answers questions and lends the experts its voice.
    pub model: ModelChain,
    /// The persona's.
    pub persona_model: ModelChain,
    /// The other side's.
    pub target: ModelChain,
    /// Who judges; the session's own model where it passed its test, if not named.
    #[serde(default)]
    pub judge: Option<ModelChain>,
    /// Who is asked where the session's own model was unsure again and again.
    #[serde(default)]
    pub strong: Option<ModelChain>,
    /// Experts who are not heard, by name.
    #[serde(default)]
    pub blocked: Vec<String>,
    /// A memory to search for what bears on the need, and to propose the verdict to.
    #[serde(default)]
    pub memory: Option<PathBuf>,
    /// The persona: the name of a config that comes with the program, or of the one in [`config`](Self::config).
    pub persona: Option<String>,
    /// The user's own config, its text by digest.
    pub config: Option<Digest>,
    /// Profiles of moods that the user narrowed, their texts by digest.
    #[serde(default)]
    pub moods: Vec<Digest>,
    /// Turns of a rollout.
    pub turns: Option<usize>,
    /// Rollouts.
    pub rollouts: Option<usize>,
    /// Who the persona talks with.
    pub other: Option<AdversaryKind>,
    /// Where all draws come from.
    pub seed: u64,
    /// Rollouts at the same time.
    pub parallel: usize,
    /// Longest reply that is budgeted for, tokens.
    pub reply_tokens_max: u64,
}

impl Settings {
    /// The hosts of the models that the user named: naming one is the grant for it.
    pub(super) fn hosts(&self) -> Vec<String> {
        let chains = [&self.model, &self.persona_model, &self.target];
        chains
            .into_iter()
            .chain(&self.judge)
            .chain(&self.strong)
            .flat_map(ModelChain::specs)
            .filter_map(providers::host)
            .collect()
    }
}

/// Texts of the user's own that a session is begun with.
#[derive(Debug, Clone, Default)]
pub struct Texts<'a> {
    /// The persona's config.
    pub config: Option<&'a str>,
    /// Profiles of moods, which may only narrow those that come with the program.
    pub moods: Vec<String>,
}

/// Where a session lives and what it is given.
pub struct Place {
    /// Its folder.
    pub folder: PathBuf,
    /// The same as a disk: the log goes through it.
    pub disk: Arc<dyn Disk>,
    /// What signs the log.
    pub key: Arc<Key>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// How models are opened.
    pub options: OpenOptions,
}

/// Why a session does not go on. Every message says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log could not be written while the session ran.
    #[error("the log could not be written: {0}; go on with `loom session resume`")]
    Ledger(#[from] LedgerError),
    /// The gate said no.
    #[error("{0}")]
    Refused(Refusal),
    /// The receipts beside a run's results.
    #[error(transparent)]
    Watch(WatchError),
    /// A tool.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A run's files.
    #[error(transparent)]
    File(#[from] FileError),
    /// A run's report.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A config.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The log does not replay.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The moods of the log do not replay.
    #[error(transparent)]
    Moods(#[from] mood::ReplayError),
    /// The operating system.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// Anything else, told in full.
    #[error("{0}")]
    Told(String),
}

impl SessionError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Io { action, path: path.clone(), source }
    }

    #[expect(clippy::needless_pass_by_value, reason = "the form that `map_err` takes")]
    pub(super) fn json(error: serde_json::Error) -> Self {
        Self::Told(error.to_string())
    }
}

/// Where a session stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// The chart's active leaves.
    pub leaves: Vec<String>,
    /// The stage of the work.
    pub stage: String,
    /// The mood.
    pub mood: Mood,
    /// The counter of the moods that ran out, if one did: then nothing goes on.
    pub halted: Option<Counter>,
    /// Whether it waits for the user.
    pub waiting: bool,
    /// How it ended, if it did.
    pub conclusion: Option<Conclusion>,
    /// The last footer.
    pub footer: Option<String>,
    /// What is waited for, as it was put to the user.
    pub asked: Option<String>,
    /// The name of the report's file, once the work is over.
    pub file: Option<String>,
    /// What was found, as text: equal for equal work.
    pub report: String,
}

impl From<Refusal> for SessionError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
