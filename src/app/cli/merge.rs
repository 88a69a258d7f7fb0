//! `loom merge`: the shares of a sweep, put together.

use std::io::Write;
use std::path::PathBuf;

use super::sweep::failure;
use super::{Exit, Failure, Terminal};
use crate::studies::sweep::{SweepReport, merge};

/// Put the shares of a sweep together
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom merge part1 part2 part3 --output results/sweep
  loom merge results/sweep --output results/sweep  all wrote into one folder

The report is the one that a single process would have written. Exit code 1: cells are missing, or two parts differ.")]
pub(super) struct Args {
    /// Folders that `loom sweep --shard` wrote
    #[arg(value_name = "PART", required = true)]
    parts: Vec<PathBuf>,
    /// The folder to write
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
