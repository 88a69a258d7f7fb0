//! The inputs of a session, its status, and its errors.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::need::StatedPlan;
use super::outcome::Conclusion;
use super::question::StudyQuestion;
use super::state::Mismatch;
use super::tools::ToolError;
use crate::foundation::base::{Clock, Digest};
use crate::foundation::chat::{ModelChain, ModelError};
use crate::foundation::config::ConfigErrors;
use crate::foundation::gate::{LedgerError, Refusal};
use crate::foundation::store::Disk;
use crate::foundation::store::receipts::{LogError, ReceiptKey};
use crate::governance::mood::{self, Mood, TransitionCounter};
use crate::governance::statechart::hope::Engagement;
use crate::inference::providers::{self, OpenOptions};
use crate::simulation::authorizer::AuthorizerError;
use crate::simulation::persona::AdversaryKind;
use crate::simulation::report::ReportError;
use crate::simulation::rollout::{FileError, RunError};

/// The settings of a session, stored in its log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionSettings {
    /// How many questions to ask; the user is asked if absent.
    pub engagement: Option<Engagement>,
    /// The session's model, which answers questions, also in the roles of the experts.
    pub model: ModelChain,
    /// The persona's model.
    pub persona_model: ModelChain,
    /// The interlocutor's model.
    pub target: ModelChain,
    /// What is to be found out, if it is not left to the need.
    #[serde(default)]
    pub question: Option<StudyQuestion>,
    /// The other target, for [`StudyQuestion::Targets`].
    #[serde(default)]
    pub other_target: Option<ModelChain>,
    /// The other config, name and digest, for [`StudyQuestion::Prompts`]. The digest is set when the session starts.
    #[serde(default)]
    pub other_config: Option<(String, Digest)>,
    /// The id of the score that decides.
    #[serde(default)]
    pub measure: Option<String>,
    /// Its threshold, or that of its difference.
    #[serde(default)]
    pub threshold: Option<f64>,
    /// The judge; if absent, the session's model, provided that it passed `loom judge check`.
    #[serde(default)]
    pub judge: Option<ModelChain>,
    /// A stronger model, asked after repeated unsure answers.
    #[serde(default)]
    pub strong: Option<ModelChain>,
    /// Names of excluded experts.
    #[serde(default)]
    pub blocked: Vec<String>,
    /// A memory to search for entries about the need, and to propose the verdict to.
    #[serde(default)]
    pub memory: Option<PathBuf>,
    /// The persona: the name of a built-in config, or of the one in [`config`](Self::config).
    pub persona: Option<String>,
    /// The digest of the user's own config.
    pub config: Option<Digest>,
    /// Digests of mood profiles narrowed by the user.
    #[serde(default)]
    pub moods: Vec<Digest>,
    /// Turns per rollout.
    pub turns: Option<usize>,
    /// Number of rollouts.
    pub rollouts: Option<usize>,
    /// The interlocutor.
    pub other: Option<AdversaryKind>,
    /// The seed of all random draws.
    pub seed: u64,
    /// Maximum number of concurrent rollouts.
    pub parallel: usize,
    /// Tokens budgeted per reply.
    pub reply_tokens_max: u64,
}

impl SessionSettings {
    /// The parts of the plan given on the command line.
    pub(super) fn stated_plan(&self) -> StatedPlan {
        let Self { persona, turns, rollouts, other, question, measure, threshold, .. } = self;
        StatedPlan {
            question: *question,
            measure: measure.clone(),
            threshold: *threshold,
            judged: self.judge.is_some(),
            persona: persona.clone(),
            turns: *turns,
            rollouts: *rollouts,
            other: *other,
        }
    }

    /// The hosts of the named models: naming a model grants access to its host.
    pub(super) fn hosts(&self) -> Vec<String> {
        let chains = [&self.model, &self.persona_model, &self.target];
        chains
            .into_iter()
            .chain(&self.judge)
            .chain(&self.other_target)
            .chain(&self.strong)
            .flat_map(ModelChain::specs)
            .filter_map(providers::host)
            .collect()
    }
}

/// The user's own texts for a new session.
#[derive(Debug, Clone, Default)]
pub struct SessionTexts<'a> {
    /// The persona's config.
    pub config: Option<&'a str>,
    /// The other config: name and text.
    pub other_config: Option<(String, &'a str)>,
    /// Mood profiles, which may only narrow the built-in ones.
    pub moods: Vec<String>,
}

/// The environment of a session.
pub struct SessionEnv {
    /// Its folder.
    pub folder: PathBuf,
    /// The folder as a disk, used by the log.
    pub disk: Arc<dyn Disk>,
    /// The key that signs the log.
    pub key: Arc<ReceiptKey>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The options for opening models.
    pub options: OpenOptions,
}

/// Why a session does not continue. Every message says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The log cannot be opened.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log could not be written while the session ran.
    #[error("the log could not be written: {0}; continue with `loom session resume`")]
    Ledger(#[from] LedgerError),
    /// The gate denied an effect.
    #[error("{0}")]
    Refused(Refusal),
    /// The receipts of a run.
    #[error(transparent)]
    Receipts(AuthorizerError),
    /// A tool failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A run's files are unusable.
    #[error(transparent)]
    File(#[from] FileError),
    /// A run's report could not be made.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A config is invalid.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The log does not replay.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The moods of the log do not replay.
    #[error(transparent)]
    Moods(#[from] mood::ReplayError),
    /// A file system error.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// The attempted operation.
        action: &'static str,
        /// Its path.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// Any other error, as a message.
    #[error("{0}")]
    Message(String),
}

impl SessionError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Io { action, path: path.clone(), source }
    }

    #[expect(clippy::needless_pass_by_value, reason = "the form that `map_err` takes")]
    pub(super) fn json(error: serde_json::Error) -> Self {
        Self::Message(error.to_string())
    }
}

/// The status of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionStatus {
    /// The chart's active leaf states.
    pub leaves: Vec<String>,
    /// The stage of the work.
    pub stage: String,
    /// The mood.
    pub mood: Mood,
    /// The exhausted mood counter, if any: then the session cannot continue.
    pub halted: Option<TransitionCounter>,
    /// Whether it waits for the user.
    pub waiting: bool,
    /// The conclusion, once it is over.
    pub conclusion: Option<Conclusion>,
    /// The last footer.
    pub footer: Option<String>,
    /// The question to the user, if there is one.
    pub question: Option<String>,
    /// The name of the report's file, once the work is over.
    pub file: Option<String>,
    /// The report as text; equal for equal work.
    pub report: String,
}

impl From<AuthorizerError> for SessionError {
    fn from(error: AuthorizerError) -> Self {
        match error {
            AuthorizerError::Denied(refusal) => Self::Refused(refusal),
            AuthorizerError::Ledger(error) => Self::Ledger(error),
            AuthorizerError::Log(error) => Self::Log(error),
            error => Self::Receipts(error),
        }
    }
}

impl From<Refusal> for SessionError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
