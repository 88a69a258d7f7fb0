//! `loom merge`: merges the shards of a sweep.

use std::io::Write;
use std::path::PathBuf;

use super::sweep::failure;
use super::{Exit, Failure, Terminal};
use crate::studies::sweep::{SweepReport, merge};

/// Merge the shards of a sweep
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom merge part1 part2 part3 --output results/sweep
  loom merge results/sweep --output results/sweep  all shards wrote into one folder

The report is the same as that of a single process. Exit code 1: cells are missing, or two parts differ.")]
pub(super) struct Args {
    /// Folders that `loom sweep --shard` wrote
    #[arg(value_name = "PART", required = true)]
    parts: Vec<PathBuf>,
    /// Output folder
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let manifest = merge(&self.parts, &self.output).map_err(failure)?;
        let report = SweepReport::on(&self.output, &manifest).map_err(failure)?;
        report.write_to(&self.output).map_err(failure)?;
        writeln!(terminal.out, "Report: {}", self.output.join("sweep_report.md").display())?;
        Ok(Exit::Ok)
    }
}
