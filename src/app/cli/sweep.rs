//! `loom sweep`: runs all combinations of a sweep's file.

use std::io::Write;
use std::path::PathBuf;

use serde_json::json;

use super::device::DeviceArg;
use super::run::{count, execute, failure as run_failure, headline};
use super::terminal::quoted;
use super::{Exit, Failure, Terminal, remote};
use crate::foundation::chat::ModelChain;
use crate::foundation::gate::{Category, Effect, LedgerEntry};
use crate::governance::mood::Mood;
use crate::inference::providers::OpenOptions;
use crate::simulation::authorizer::{Authorizer, AuthorizerError};
use crate::simulation::report::Report;
use crate::simulation::rollout::Outcome;
use crate::studies::sweep::{Cell, Shard, Sweep, SweepError, SweepReport};

/// Run every combination of configs, models, adversaries, Δ policies and seeds
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom sweep sweep.yaml --list                      list all cells without running them
  loom sweep sweep.yaml --output results/sweep      run all; repeat the command to resume
  loom sweep sweep.yaml --shard 2/3 --output part2  one of three shards
  loom merge part1 part2 part3 --output results/sweep

docs/SWEEPS.md shows a sweep's file, a Slurm array and a Kubernetes Job.

Exit codes: 0 all cells of the shard are complete, 1 the regulator stopped a rollout (`regulator: {policy: enforce}` in a \
config), 5 a model failed, 130 interrupted.")]
pub(super) struct Args {
    /// The sweep's file
    #[arg(value_name = "SWEEP")]
    file: PathBuf,
    /// Output folder, or the folder of a sweep to resume
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    output: Option<PathBuf>,
    /// Run only shard K of N
    #[arg(long, value_name = "K/N", default_value_t = Shard::ALL)]
    shard: Shard,
    /// List the cells of the shard without running them
    #[arg(long)]
    list: bool,
    /// Number of parallel rollouts of a cell
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = super::at_least_one)]
    parallel: usize,
    /// Compute threads [default: all cores]
    #[arg(long, value_name = "N", value_parser = super::at_least_one)]
    threads: Option<usize>,
    #[command(flatten)]
    device: DeviceArg,
    /// Skip scoring and the report
    #[arg(long)]
    no_score: bool,
    #[command(flatten)]
    remote: remote::RemoteArgs,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let sweep = Sweep::read(&self.file).map_err(failure)?;
        let cells: Vec<&Cell> = sweep.cells(self.shard).collect();
        let (true, Some(folder)) = (!self.list, &self.output) else {
            for cell in &cells {
                writeln!(terminal.out, "{}", described(cell))?;
            }
            return Ok(Exit::Ok);
        };
        sweep.prepare(folder).map_err(failure)?;
        let named: Vec<ModelChain> = cells
            .iter()
            .flat_map(|cell| [&cell.persona_model, &cell.interlocutor_model])
            .filter_map(|spec| spec.parse().ok())
            .collect();
        let receipts = Sweep::receipts(folder, self.shard).map_err(failure)?;
        let gate = Authorizer::for_models("sweep", Mood::Bold, &named.iter().collect::<Vec<_>>(), Some(&receipts))?;
        let mut options = OpenOptions::new(self.threads, None);
        self.remote.apply(&mut options);
        options.device = self.device.decide(terminal)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let mut exit = Exit::Ok;
        for (number, cell) in cells.iter().enumerate() {
            gate.allow(&Effect::new(Category::Rollout, described(cell))).map_err(AuthorizerError::from)?;
            let run = sweep.open_run(folder, cell, &options).map_err(failure)?;
            writeln!(terminal.err, "[{}/{}] cell {}: {}", number + 1, cells.len(), cell.cell, headline(&run))?;
            let (result, interrupted) = runtime.block_on(execute(&run, self.parallel, terminal))?;
            let resume = || format!("Finished turns are saved; repeat the command to resume in {}", quoted(folder));
            let summaries = match result {
                Ok(summaries) => summaries,
                Err(error) => {
                    writeln!(terminal.err, "{}", resume())?;
                    return Err(run_failure(error));
                }
            };
            for one in &summaries {
                // A failed model takes precedence.
                match one.outcome {
                    Outcome::Stopped { circuit_break: false, .. } => exit = Exit::ModelFailed,
                    Outcome::Stopped { circuit_break: true, .. } if exit == Exit::Ok => exit = Exit::CheckFailed,
                    _ => {}
                }
            }
            let body = json!({"cell": cell.cell, "rollouts": summaries.len(), "interrupted": interrupted});
            gate.record(vec![LedgerEntry::new("sweep.played", body)]).map_err(AuthorizerError::from)?;
            if interrupted {
                gate.close()?;
                writeln!(terminal.out, "Interrupted. {}", resume())?;
                return Ok(Exit::Interrupted);
            }
            if !self.no_score {
                let wrong = |source| failure(SweepError::Report { cell: cell.cell, source });
                let (report, conversations) = Report::with_conversations(run.path()).map_err(wrong)?;
                report.write_to(run.path(), &conversations).map_err(wrong)?;
            }
        }
        gate.close()?;
        writeln!(
            terminal.out,
            "{} of {} complete: {}",
            count(cells.len(), "cell"),
            sweep.manifest().cells.len(),
            folder.display()
        )?;
        if !self.no_score && SweepReport::is_ready(folder, sweep.manifest()) {
            SweepReport::on(folder, sweep.manifest()).and_then(|report| report.write_to(folder)).map_err(failure)?;
            writeln!(terminal.out, "Report: {}", folder.join("sweep_report.md").display())?;
        }
        Ok(exit)
    }
}

/// One line describing a cell.
fn described(cell: &Cell) -> String {
    let Cell { config, persona_model, interlocutor_model, adversary, delta, seed, rollouts, turns, .. } = cell;
    let delta = delta.as_ref().map_or_else(String::new, |delta| format!("  delta {delta}"));
    let adversary = format!("{adversary:?}").to_lowercase();
    format!(
        "{:>5}  {config}  {persona_model} | {interlocutor_model}  adversary {adversary}{delta}  seed {seed}  {rollouts} x {turns} turns",
        cell.cell
    )
}

pub(super) fn failure(error: SweepError) -> Failure {
    match error {
        SweepError::Config(errors) => Failure::Config(errors),
        SweepError::Run { cell, source } => match run_failure(source) {
            Failure::Message { message, exit } => Failure::Message { message: format!("cell {cell}: {message}"), exit },
            other => other,
        },
        SweepError::Incomplete { .. } | SweepError::Differs { .. } | SweepError::Scores { .. } => {
            Failure::Message { message: error.to_string(), exit: Exit::CheckFailed }
        }
        error => Failure::usage(error.to_string()),
    }
}
