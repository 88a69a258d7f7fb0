//! Conversations between a persona and the other side.
//!
//! A [`Run`] is a folder of rollouts (`docs/FORMATS.md`) that run concurrently and can be resumed at every turn. The text
//! of a rollout depends only on the configuration, the models and the seed.
//!
//! `run` starts the rollouts, `runner` executes one turn by turn, `participant` holds what one side's model has been
//! given, `drafting` produces one message, [`monitors`] check it, and `listener` feeds a side's regulator. `authorizer`
//! requests permits from the gate, `files` stores what happened, and `replay` reconstructs a finished rollout for scoring.

mod adversary;
mod delta;
mod drafting;
mod error;
mod files;
mod length;
mod manifest;
pub mod monitors;
mod forbidden_phrases;
mod runner;
mod observation;
mod plan;
mod progress;
mod quality;
mod replay;
mod run;
mod seal;
pub mod statement;
mod participant;
mod context;
mod permits;
mod transcript;
mod listener;

pub use delta::{DeltaError, FittedGains};
pub use error::{ReplayError, RunError};
pub use files::{FileError, RunFolder, json_bytes, read_tokens, read_transcript, write_json};
pub use forbidden_phrases::{ForbiddenPhraseLogprobs, PhraseLogprob};
pub use manifest::{Manifest, RUN_FORMAT, RUN_VERSION, RunModels, RunSeal, SealedFile};
pub use observation::observe;
pub use permits::regulator_outcomes;
pub use plan::{PlanError, RunPlan, RunPlanBuilder, turn_count};
pub use progress::{Observer, Progress, StopFlag};
pub use replay::{Replay, TextReplay};
pub use run::{RolloutSummary, Run};
pub use runner::ReplayedTurn;
pub use seal::{RunCheck, SealRenewal, check_run, run_faults, written};
pub use transcript::*;
