//! Conversations between a persona and the other side.
//!
//! A [`Run`] is a folder of rollouts (`docs/FORMATS.md`), played side by side and resumable at every turn. What is said
//! in a rollout follows from the configuration, the models and the seed alone.

mod adversary;
mod delta;
mod drafting;
mod files;
mod length;
mod manifest;
pub mod monitors;
mod beginnings;
mod player;
mod progress;
mod quality;
mod rehearsal;
mod run;
mod side;
mod stage;
mod steward;
mod transcript;
mod watch;

pub use beginnings::{Beginning, Beginnings};
pub use delta::{DeltaError, FittedGains};
pub use files::{FileError, RunFolder, read_tokens, read_transcript, write_json};
pub use manifest::{Manifest, RUN_FORMAT, RUN_VERSION, RunModels};
pub use player::{Heard, ReplayError};
pub use progress::{Observer, Progress, StopFlag};
pub use rehearsal::Rehearsal;
pub use run::{RolloutSummary, Run, RunError, RunPlan, turns};
pub use steward::regulations;
pub use transcript::*;
