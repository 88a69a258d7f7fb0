//! `loom judge check`: how far a judge can be relied on.

use std::io::Write;

use clap::ValueEnum;

use super::{Exit, Failure, Terminal, remote};
use crate::app::watch::Watch;
use crate::foundation::chat::{ModelChain, ModelError, ModelSpec};
use crate::governance::mood::Mood;
use crate::inference::providers::OpenOptions;
use crate::simulation::judge::judged::{Check, Judge, Rubric, check};
use crate::simulation::judge::scoring::{CheckFile, checks_folder};
use crate::simulation::rollout::{Reliability, ScoreMethod};

/// Test models that judge
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Check(CheckArgs),
}

/// Test a judge on windows whose order is known
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom judge check  the bundled model, which is no good judge
  loom judge check --judge-model local:qwen2.5-3b
  loom judge check --judge-model openai/gpt-4.1 --format json

The result is kept in the user's cache folder, by the model's digest, and goes with the scores that the judge takes.

Exit codes: 0 its scores can be read, 1 on some rubric they cannot (agreement below 0.7), 5 it cannot be asked.")]
struct CheckArgs {
    /// The model that judges
    #[arg(long, value_name = "MODEL")]
    judge_model: Option<ModelChain>,
    /// Test it again although the result is known
    #[arg(long)]
    again: bool,
    /// How to tell the result
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    format: Format,
    /// Threads for the arithmetic; all cores if not given
    #[arg(long, value_name = "N", value_parser = super::at_least_one)]
    threads: Option<usize>,
    #[command(flatten)]
    remote: remote::Flags,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Format {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let Command::Check(args) = &self.command;
        args.run(terminal)
    }
}

impl CheckArgs {
    fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let mut options = OpenOptions::new(self.threads, None);
        self.remote.set(&mut options);
        let chain = self.judge_model.clone().unwrap_or_else(|| ModelSpec::Bundled.into());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let check = runtime.block_on(async {
            let watch = Watch::models("judge check", Mood::Skeptical, &[&chain], None)?;
            let judge = Judge::new(watch.model(&chain, &options)?).await?;
            let check = check_of(&judge, false, self.again).await?;
            check.ok_or_else(|| Failure::usage("the judge was not tested"))
        })?;
        match self.format {
            Format::Json => {
                let text = serde_json::to_string_pretty(&check).map_err(std::io::Error::from)?;
                writeln!(terminal.out, "{text}")?;
            }
            Format::Text => tell(terminal, &check)?,
        }
        let good = Rubric::ALL.iter().all(|rubric| check.rubrics.get(rubric).is_some_and(Reliability::is_reliable));
        Ok(if good { Exit::Ok } else { Exit::CheckFailed })
    }
}

/// What is known of `judge`; if nothing is, or `again`, it is tested and the result kept, unless `only_known`.
pub(super) async fn check_of(judge: &Judge, only_known: bool, again: bool) -> Result<Option<Check>, Failure> {
    let file = checks_folder(|name| std::env::var_os(name)).map(|folder| CheckFile::of(&folder, judge));
    let known = file.as_ref().filter(|_| !again).and_then(|file| file.read(judge));
    if known.is_some() || only_known {
        return Ok(known);
    }
    let check = check(judge).await.map_err(|error| {
        Failure::Model(ModelError::Failed { model: judge.info().name.clone(), why: error.to_string() })
    })?;
    // A machine without a home for caches tests again next time.
    if let Some(file) = file {
        file.write(&check).map_err(|error| Failure::usage(error.to_string()))?;
    }
    Ok(Some(check))
}

/// Says so where a judge's scores should not be read.
pub(super) fn warn(terminal: &mut Terminal, check: &Check) -> Result<(), Failure> {
    let doubtful = Rubric::ALL.iter().filter(|rubric| !check.rubrics.get(rubric).is_some_and(Reliability::is_reliable));
    let doubtful: Vec<&str> = doubtful.map(|rubric| rubric.name()).collect();
    if !doubtful.is_empty() {
        let model = &check.model;
        writeln!(terminal.err, "The judge `{model}` is unreliable on {}: loom judge check", doubtful.join(", "))?;
    }
    Ok(())
}

fn tell(terminal: &mut Terminal, check: &Check) -> Result<(), Failure> {
    let out = &mut terminal.out;
    let how = match check.method {
        ScoreMethod::LogprobRating => "by log-probability",
        ScoreMethod::TopLogprobRating => "by the log-probabilities of its likeliest answers",
        _ => "in writing",
    };
    writeln!(out, "{} rates {how}", check.model)?;
    writeln!(out, "\nrubric              agreement  95 %         pairs")?;
    for rubric in Rubric::ALL {
        match check.rubrics.get(&rubric) {
            Some(reliability) => {
                let Reliability { agreement, interval, pairs } = reliability;
                let interval = interval.map_or_else(String::new, |i| format!("{:.2} to {:.2}", i.low, i.high));
                let mark = if reliability.is_reliable() { "" } else { "  unreliable" };
                writeln!(out, "{:<18}  {agreement:<9.2}  {interval:<12} {pairs:>5}{mark}", rubric.name())?;
            }
            None => writeln!(out, "{:<18}  none", rubric.name())?,
        }
    }
    let signed = |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:+.2}"));
    writeln!(out, "\nleans to the first of two   {}  (0 is even-handed, ±0.5 is all)", signed(check.position_bias))?;
    writeln!(out, "leans to the longer of two  {}  (0 is even-handed, ±1 is all)", signed(check.verbosity_bias))?;
    if let Some(mass) = check.mass {
        match check.top {
            Some(top) => writeln!(out, "probability on the scale    at least {mass:.3}, among the {top} likeliest")?,
            None => writeln!(out, "probability on the scale    {mass:.3}")?,
        }
    }
    for why in &check.unrated {
        writeln!(out, "not rated: {why}")?;
    }
    Ok(())
}
