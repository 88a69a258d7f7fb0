//! `loom compare`: two results folders side by side.

use std::io::Write;
use std::path::PathBuf;

use super::report::{failure, write_file};
use super::{Exit, Failure, Terminal};
use crate::simulation::report::Comparison;

/// Compare two results folders, score by score
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom compare results/plain results/modulated
  loom compare results/a results/b --json | jq '.scores[] | select(.interval.low > 0)'
  loom compare results/a results/b --output comparison.md

The difference is B less A. Its 95 % interval is a bootstrap over rollouts and needs three of them on each side.")]
pub(super) struct Args {
    /// What `loom run` wrote, or one of its transcripts
    #[arg(value_name = "A")]
    a: PathBuf,
    /// The same
    #[arg(value_name = "B")]
    b: PathBuf,
    /// JSON instead of Markdown
    #[arg(long)]
    json: bool,
    /// Write this file instead of printing
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let comparison = Comparison::of(&self.a, &self.b).map_err(|error| failure(&error))?;
        let text = if self.json { comparison.json().map_err(|error| failure(&error))? } else { comparison.markdown() };
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
