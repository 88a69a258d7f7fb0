//! `loom compare`: compares two results folders.

use std::io::Write;
use std::path::PathBuf;

use clap::ValueEnum;

use super::report::{failure, write_file};
use super::{Exit, Failure, Terminal};
use crate::simulation::report::Comparison;

/// Compare two results folders, score by score
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom compare results/plain results/modulated
  loom compare results/a results/b --format json | jq .scores
  loom compare results/a results/b --output comparison.md

The difference is B minus A. Its 95 % interval is a bootstrap over rollouts and needs at least three in each folder.")]
pub(super) struct Args {
    /// Results folder of `loom run`, or one of its transcripts
    #[arg(value_name = "A")]
    a: PathBuf,
    /// The folder or transcript to compare with
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Output format
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    format: Format,
    /// Write this file instead of printing
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Format {
    /// Markdown
    #[default]
    Md,
    /// JSON
    Json,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let comparison = Comparison::of(&self.a, &self.b).map_err(|error| failure(&error))?;
        let text = match self.format {
            Format::Md => comparison.markdown(),
            Format::Json => comparison.json().map_err(|error| failure(&error))?,
        };
        match &self.output {
            Some(path) => {
                write_file(path, &text)?;
                writeln!(terminal.out, "{}", path.display())?;
            }
            None => write!(terminal.out, "{text}")?,
        }
        Ok(Exit::Ok)
    }
}
