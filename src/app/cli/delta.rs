//! `loom delta`: effects of gains on a Mamba's Δ.

mod calibrate;
mod sweep;

use super::{Exit, Failure, Terminal};
use crate::studies::delta::DeltaStudyError;

/// Measure the effects of gains on a Mamba's Δ, and fit gains
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Sweep(sweep::Args),
    Calibrate(calibrate::Args),
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        match &self.action {
            Action::Sweep(args) => args.run(terminal),
            Action::Calibrate(args) => args.run(terminal),
        }
    }
}

impl From<DeltaStudyError> for Failure {
    fn from(error: DeltaStudyError) -> Self {
        match error {
            DeltaStudyError::Model(error) => error.into(),
            error => Self::usage(error.to_string()),
        }
    }
}
