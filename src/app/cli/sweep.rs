//! `loom sweep`: many runs as one.

use std::io::Write;
use std::path::PathBuf;

use serde_json::json;

use super::device::DeviceArg;
use super::run::{count, failure as run_failure, headline, play};
use super::terminal::quoted;
use super::{Exit, Failure, Terminal, remote};
use crate::app::watch::Watch;
use crate::foundation::chat::ModelChain;
use crate::foundation::gate::{Category, Effect};
use crate::governance::mood::Mood;
use crate::inference::providers::OpenOptions;
use crate::simulation::report::Report;
use crate::simulation::rollout::Outcome;
use crate::studies::sweep::{Cell, Shard, Sweep, SweepError, SweepReport};

/// Run every combination of configs, models, adversaries, Δ policies and seeds
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom sweep sweep.yaml --list                      every cell; nothing is run
  loom sweep sweep.yaml --output results/sweep      all; again to go on
  loom sweep sweep.yaml --shard 2/3 --output part2  one of three shares
  loom merge part1 part2 part3 --output results/sweep

docs/SWEEPS.md shows a sweep's file, a Slurm array and a Kubernetes Job.

Exit codes: 0 all cells of the share are complete, 1 the regulator ended a rollout (`regulator: {policy: enforce}` in a \
config), 5 a model failed, 130 interrupted.")]
pub(super) struct Args {
    /// The sweep's file
    #[arg(value_name = "SWEEP")]
    file: PathBuf,
    /// The folder to write, or to go on in
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    output: Option<PathBuf>,
    /// Only share K of N
    #[arg(long, value_name = "K/N", default_value_t = Shard::ALL)]
    shard: Shard,
    /// Show the cells of the share and run nothing
    #[arg(long)]
    list: bool,
    /// How many rollouts of a cell at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = super::at_least_one)]
    parallel: usize,
    /// Threads for the arithmetic; all cores if not given
    #[arg(long, value_name = "N", value_parser = super::at_least_one)]
    threads: Option<usize>,
    #[command(flatten)]
    device: DeviceArg,
    /// Neither score nor report
    #[arg(long)]
    no_score: bool,
    #[command(flatten)]
    remote: remote::Flags,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let sweep = Sweep::read(&self.file).map_err(failure)?;
        let cells: Vec<&Cell> = sweep.share(self.shard).collect();
        let (true, Some(folder)) = (!self.list, &self.output) else {
            for cell in &cells {
                writeln!(terminal.out, "{}", described(cell))?;
            }
            return Ok(Exit::Ok);
        };
        sweep.begin(folder).map_err(failure)?;
        let named: Vec<ModelChain> = cells
            .iter()
            .flat_map(|cell| [&cell.persona_model, &cell.interlocutor_model])
            .filter_map(|spec| spec.parse().ok())
            .collect();
        let watch = Watch::models("sweep", Mood::Bold, &named.iter().collect::<Vec<_>>(), Some(folder))?;
        let mut options = OpenOptions::new(self.threads, None);
        self.remote.set(&mut options);
        options.device = self.device.decide(terminal)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let mut exit = Exit::Ok;
        for (number, cell) in cells.iter().enumerate() {
            watch.allow(&Effect::new(Category::Rollout, described(cell)))?;
            let run = sweep.run(folder, cell, &options).map_err(failure)?;
            writeln!(terminal.err, "[{}/{}] cell {}: {}", number + 1, cells.len(), cell.cell, headline(&run))?;
            let (played, interrupted) = runtime.block_on(play(&run, self.parallel, terminal))?;
            let go_on = || format!("What is finished is kept; the same command goes on in {}", quoted(folder));
            let summaries = match played {
                Ok(summaries) => summaries,
                Err(error) => {
                    writeln!(terminal.err, "{}", go_on())?;
                    return Err(run_failure(error));
                }
            };
            for one in &summaries {
                // A model that failed is the graver of the two.
                match one.outcome {
                    Outcome::Stopped { circuit_break: false, .. } => exit = Exit::ModelFailed,
                    Outcome::Stopped { circuit_break: true, .. } if exit == Exit::Ok => exit = Exit::CheckFailed,
                    _ => {}
                }
            }
            watch.note(
                "sweep.played",
                json!({"cell": cell.cell, "rollouts": summaries.len(), "interrupted": interrupted}),
            )?;
            if interrupted {
                watch.close()?;
                writeln!(terminal.out, "Interrupted. {}", go_on())?;
                return Ok(Exit::Interrupted);
            }
            if !self.no_score {
                let wrong = |source| failure(SweepError::Report { cell: cell.cell, source });
                let (report, conversations) = Report::with_conversations(run.path()).map_err(wrong)?;
                report.write_to(run.path(), &conversations).map_err(wrong)?;
            }
        }
        watch.close()?;
        writeln!(
            terminal.out,
            "{} of {} complete: {}",
            count(cells.len(), "cell"),
            sweep.manifest().cells.len(),
            folder.display()
        )?;
        if !self.no_score && SweepReport::possible(folder, sweep.manifest()) {
            SweepReport::on(folder, sweep.manifest()).and_then(|report| report.write_to(folder)).map_err(failure)?;
            writeln!(terminal.out, "Report: {}", folder.join("sweep_report.md").display())?;
        }
        Ok(exit)
    }
}

/// One line on a cell.
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
            Failure::Told { message, exit } => Failure::Told { message: format!("cell {cell}: {message}"), exit },
            other => other,
        },
        SweepError::Incomplete { .. } | SweepError::Differs { .. } | SweepError::Scores { .. } => {
            Failure::Told { message: error.to_string(), exit: Exit::CheckFailed }
        }
        error => Failure::usage(error.to_string()),
    }
}
