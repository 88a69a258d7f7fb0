//! The command line: one file per command, no logic. A command is a clap `Args` struct with
//! `run(&self, &mut Terminal) -> Result<Exit, Failure>`: write it beside these, then name it in [`Command`] and in
//! [`Command::run`]. What it prints goes through the [`Terminal`], so that a closed pipe ends it quietly.

mod chart;
mod compare;
mod completions;
mod confidence;
mod delta;
mod device;
mod doctor;
mod dry_run;
mod examples;
mod export;
mod generate;
mod input;
mod judge;
mod logprobs;
mod memory;
mod merge;
mod model;
mod model_args;
mod mood;
mod new;
mod output;
mod port;
mod receipts;
mod regulate;
mod remote;
mod report;
mod run;
mod schema;
mod score;
mod serve;
mod session;
mod sweep;
mod terminal;
mod validate;
mod view;

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::process::ExitCode;

use clap::{ColorChoice, Parser, Subcommand};

pub use terminal::{Exit, Failure, Terminal};

/// Persona simulations on local models, watched token by token, governed and measured.
#[derive(Debug, Parser)]
#[command(
    name = "loom",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  loom examples --copy my-configs  copy the configs that come with loom
  loom new anna                    write anna.yaml, a commented config
  loom validate anna.yaml          check it; each problem with its line
  loom dry-run anna.yaml           show its prompts; no model is opened
  loom run anna.yaml               let it talk
  loom view results/DIR            read what was said

Exit codes: 0 ok, 1 a check said no, 2 usage, 3 bad config, 4 denied, 5 a model failed, 70 a bug in loom, 130 interrupted.
`loom help COMMAND` tells more about a command."
)]
pub struct Cli {
    /// Colours in the output.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", display_order = 900)]
    color: ColorChoice,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    New(new::Args),
    Validate(validate::Args),
    DryRun(dry_run::Args),
    Run(Box<run::Args>),
    Score(score::Args),
    Judge(judge::Args),
    Report(report::Args),
    Compare(compare::Args),
    Sweep(sweep::Args),
    Merge(merge::Args),
    Port(port::Args),
    Export(export::Args),
    View(view::Args),
    Generate(Box<generate::Args>),
    Logprobs(Box<logprobs::Args>),
    Serve(Box<serve::Args>),
    Session(Box<session::Args>),
    Examples(examples::Args),
    Chart(chart::Args),
    Regulate(regulate::Args),
    Confidence(confidence::Args),
    Delta(delta::Args),
    Schema(schema::Args),
    Memory(Box<memory::Args>),
    Model(model::Args),
    Mood(mood::Args),
    Receipts(receipts::Args),
    Doctor(doctor::Args),
    Completions(completions::Args),
}

impl Command {
    fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        match self {
            Self::New(args) => args.run(terminal),
            Self::Validate(args) => args.run(terminal),
            Self::DryRun(args) => args.run(terminal),
            Self::Run(args) => args.run(terminal),
            Self::Score(args) => args.run(terminal),
            Self::Judge(args) => args.run(terminal),
            Self::Report(args) => args.run(terminal),
            Self::Compare(args) => args.run(terminal),
            Self::Sweep(args) => args.run(terminal),
            Self::Merge(args) => args.run(terminal),
            Self::Port(args) => args.run(terminal),
            Self::Export(args) => args.run(terminal),
            Self::View(args) => args.run(terminal),
            Self::Generate(args) => args.run(terminal),
            Self::Logprobs(args) => args.run(terminal),
            Self::Serve(args) => args.run(terminal),
            Self::Session(args) => args.run(terminal),
            Self::Examples(args) => args.run(terminal),
            Self::Chart(args) => args.run(terminal),
            Self::Regulate(args) => args.run(terminal),
            Self::Confidence(args) => args.run(terminal),
            Self::Delta(args) => args.run(terminal),
            Self::Schema(args) => args.run(terminal),
            Self::Memory(args) => args.run(terminal),
            Self::Model(args) => args.run(terminal),
            Self::Mood(args) => args.run(terminal),
            Self::Receipts(args) => args.run(terminal),
            Self::Doctor(args) => args.run(terminal),
            Self::Completions(args) => args.run(terminal),
        }
    }
}

/// Runs the program with the process's arguments.
pub fn main() -> ExitCode {
    set_hook(Box::new(|panic| {
        eprintln!("loom has a bug: {panic}\nPlease report it together with the command that you ran.");
    }));
    // A panic has been told by the hook; all that is left is its exit code.
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(Exit::Bug).into()
}

fn run() -> Exit {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Ok };
            // Help that nobody reads to its end is no failure.
            let _closed_pipe = error.print();
            return exit;
        }
    };
    let mut terminal = Terminal::stdout(cli.color);
    let outcome = cli.command.run(&mut terminal);
    terminal.finish(outcome)
}

/// A number that must not be 0, for clap.
fn at_least_one(text: &str) -> Result<usize, String> {
    match whole(text)? {
        0 => Err("must be at least 1".to_owned()),
        number => Ok(number),
    }
}

/// A whole number from 0; of a wrong one it is told what would be right.
fn whole<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| "write a whole number, such as 4".to_owned())
}
