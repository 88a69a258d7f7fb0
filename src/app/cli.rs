//! The command line: one file per command, no logic. A command is a clap `Args` struct with
//! `run(&self, &mut Terminal) -> Result<Exit, Failure>`. To add one, add its file and name it in [`Command`] and in
//! [`Command::run`]. Print through the [`Terminal`], so that a closed pipe ends the program without an error.

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
mod likelihood;
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
mod proxy;
mod receipts;
mod regulate;
mod regulator_args;
mod remote;
mod report;
mod run;
mod safe_writer;
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

use crate::foundation::base::is_caught;
use crate::foundation::chat::ModelSpecError;
use crate::inference::providers;

pub use terminal::{Exit, Failure, Terminal};

/// Persona simulations on local models: run, monitor, govern and measure them token by token.
#[derive(Debug, Parser)]
#[command(
    name = "loom",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  loom examples --copy my-configs  copy the example configs
  loom new anna                    write anna.yaml, a commented config
  loom validate anna.yaml          check it; problems are shown with their lines
  loom dry-run anna.yaml           show its prompts without opening a model
  loom run anna.yaml               run a conversation
  loom view results/DIR            read the transcripts

Exit codes: 0 ok, 1 a check failed, 2 usage, or a file or the output cannot be read or written, 3 invalid config, 4 denied,
5 a model failed, 70 a bug in loom, 130 interrupted.
`loom help COMMAND` shows the help of a command."
)]
pub struct Cli {
    /// When to use colours in the output.
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
    Proxy(Box<proxy::Args>),
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
            Self::Proxy(args) => args.run(terminal),
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
        if is_caught() {
            return;
        }
        eprintln!("loom has a bug: {panic}\nPlease report it together with the command that you ran.");
    }));
    // The hook has printed the panic; only the exit code is left.
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(Exit::Bug).into()
}

fn run() -> Exit {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(mut error) => {
            suggest_model(&mut error);
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Ok };
            return match error.print() {
                // A closed pipe while printing help is not an error.
                Err(failed) if failed.kind() != std::io::ErrorKind::BrokenPipe => Exit::Usage,
                _ => exit,
            };
        }
    };
    let mut terminal = Terminal::stdout(cli.color);
    let outcome = cli.command.run(&mut terminal);
    terminal.finish(outcome)
}

/// Adds a tip to the error about a bare model name: the spec that was probably meant.
fn suggest_model(error: &mut clap::Error) {
    use clap::error::{ContextKind, ContextValue};
    let is_spec =
        std::error::Error::source(error).is_some_and(|source| source.downcast_ref::<ModelSpecError>().is_some());
    let Some(ContextValue::String(text)) = error.get(ContextKind::InvalidValue).filter(|_| is_spec) else { return };
    if let Some(spec) = providers::similar_spec(text) {
        let tip = format!("did you mean `{spec}`?").into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
}

/// A clap parser for numbers of at least 1.
fn at_least_one(text: &str) -> Result<usize, String> {
    match whole(text)? {
        0 => Err("must be at least 1".to_owned()),
        number => Ok(number),
    }
}

/// A clap parser for whole numbers, with an example in the error message.
fn whole<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| "write a whole number, such as 4".to_owned())
}
