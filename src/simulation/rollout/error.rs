//! Why a run cannot be executed.

use super::delta::DeltaError;
use super::files::FileError;
use super::plan::PlanError;
use crate::foundation::chat::ModelError;
use crate::foundation::gate::Refusal;
use crate::governance::regulator::CalibrationError;
use crate::simulation::authorizer::AuthorizerError;
use crate::simulation::persona::{AssembleError, ConfigErrors};

/// Why a run cannot start, continue, or finish. Every message says what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The plan is incomplete or out of bounds.
    #[error(transparent)]
    Plan(PlanError),
    /// Prompts cannot be assembled.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// The Δ policy cannot be carried out.
    #[error(transparent)]
    Delta(#[from] DeltaError),
    /// The calibration was fitted for another model or template.
    #[error(transparent)]
    Calibration(#[from] CalibrationError),
    /// A model cannot be opened.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A file cannot be written or read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The run cannot be resumed: something it depends on has changed.
    #[error("the run in {path} cannot be resumed: {what} has changed since it began ({was} then, {is} now); {hint}")]
    Changed {
        /// The run's folder.
        path: String,
        /// What has changed.
        what: &'static str,
        /// What it was.
        was: String,
        /// What it is.
        is: String,
        /// What to do.
        hint: &'static str,
    },
    /// The run's receipts are damaged, or in use.
    #[error("the run's receipts: {0}")]
    Receipts(String),
    /// The run's receipts cannot be read or written.
    #[error("the run's receipts: {0}")]
    ReceiptsIo(String),
    /// The gate denied a request.
    #[error("{0}")]
    Denied(Refusal),
    /// The first prompt of a role does not fit into its model's window.
    #[error(
        "the {role}'s first prompt takes {tokens} tokens, and its model `{model}` reads at most {window} with room for a \
         reply; shorten the configuration, or use a model with a longer window"
    )]
    PromptTooLong {
        /// The role.
        role: &'static str,
        /// The model's name.
        model: String,
        /// The prompt's tokens.
        tokens: usize,
        /// The model's window without room for a reply.
        window: usize,
    },
    /// The record cannot be replayed.
    #[error("rollout {rollout} cannot be resumed: {source}")]
    Replay {
        /// Which rollout.
        rollout: usize,
        /// Why.
        source: ReplayError,
    },
}

impl From<PlanError> for RunError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Config(errors) => Self::Config(errors),
            error => Self::Plan(error),
        }
    }
}

impl From<Refusal> for RunError {
    fn from(refusal: Refusal) -> Self {
        Self::Denied(refusal)
    }
}

impl From<AuthorizerError> for RunError {
    fn from(error: AuthorizerError) -> Self {
        match error {
            AuthorizerError::Denied(refusal) => Self::Denied(refusal),
            AuthorizerError::Profile(errors) => Self::Config(errors),
            error if error.is_io() => Self::ReceiptsIo(error.to_string()),
            error => Self::Receipts(error.to_string()),
        }
    }
}

/// Why a record cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// This program assembles another prompt.
    #[error(
        "turn {turn} was recorded with the prompt {recorded}, but this version of loom assembles {assembled}; resume \
         with the version that began the run"
    )]
    Prompt {
        /// The turn.
        turn: usize,
        /// The recorded prompt's digest.
        recorded: String,
        /// The digest of the one that is assembled now.
        assembled: String,
    },
    /// The persona's model cannot process its recorded reply.
    #[error("turn {turn} cannot be replayed: {source}")]
    Model {
        /// The turn.
        turn: usize,
        /// Why.
        source: ModelError,
    },
}
