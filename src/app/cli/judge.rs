//! `loom judge check`: measures the reliability of a judge.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::input::read_file;
use super::output::OutputFormat;
use super::{Exit, Failure, Terminal, remote};
use crate::foundation::chat::{ModelChain, ModelError, ModelSpec};
use crate::governance::mood::Mood;
use crate::inference::providers::OpenOptions;
use crate::simulation::authorizer::Authorizer;
use crate::simulation::judge::judged::{Judge, JudgeCheck, Rubric, check_judge};
use crate::simulation::judge::labels::{LabelAgreement, compare_labels, parse_labels};
use crate::simulation::judge::scoring::{JudgeCheckFile, judge_checks_folder};
use crate::simulation::rollout::{Reliability, ScoreMethod};

/// Test judge models
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Check(CheckArgs),
}

/// Test a judge on conversation windows whose order is known
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom judge check  the bundled model, which is a poor judge
  loom judge check --judge-model local:qwen2.5-3b
  loom judge check --judge-model openai/gpt-4.1 --format json

The result is stored in the user's cache folder by the model's digest, and recorded with the judge's scores.

Exit codes: 0 reliable on all rubrics, 1 unreliable on some (agreement below 0.7), 5 the judge cannot be called.")]
struct CheckArgs {
    /// The judge model [default: bundled]
    #[arg(long, value_name = "MODEL")]
    judge_model: Option<ModelChain>,
    /// Test again even if a result is stored
    #[arg(long)]
    again: bool,
    /// Also compare with people's ratings in this CSV file: transcript, turn, rubric, rating (1 to 5), dimension, rater
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Output format
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    format: OutputFormat,
    /// Compute threads [default: all cores]
    #[arg(long, value_name = "N", value_parser = super::at_least_one)]
    threads: Option<usize>,
    #[command(flatten)]
    remote: remote::RemoteArgs,
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
        self.remote.apply(&mut options);
        let chain = self.judge_model.clone().unwrap_or_else(|| ModelSpec::Bundled.into());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let labels = self.labels.as_ref().map(|path| {
            let folder = path.parent().unwrap_or(Path::new(""));
            let invalid = |why: String| Failure::usage(format!("{}: {why}", path.display()));
            parse_labels(&read_file(path)?, folder).map_err(invalid)
        });
        let labels = labels.transpose()?;
        let (check, agreement) = runtime.block_on(async {
            let gate = Authorizer::for_models("judge check", Mood::Skeptical, &[&chain], None)?;
            let judge = Judge::new(gate.open_model(&chain, &options.naming(&chain))?).await?;
            let check = load_or_run_check(&judge, false, self.again).await?;
            let check = check.ok_or_else(|| Failure::usage("the judge was not tested"))?;
            let agreement = match &labels {
                Some(labels) => compare_labels(&judge, labels, Rubric::shipped()).await.map_err(Failure::usage)?,
                None => Vec::new(),
            };
            Ok::<_, Failure>((check, agreement))
        })?;
        match self.format {
            OutputFormat::Json => {
                let mut value = serde_json::to_value(&check).map_err(std::io::Error::from)?;
                if let (Some(object), false) = (value.as_object_mut(), agreement.is_empty()) {
                    object.insert("labels".to_owned(), serde_json::to_value(&agreement).map_err(std::io::Error::from)?);
                }
                let text = serde_json::to_string_pretty(&value).map_err(std::io::Error::from)?;
                writeln!(terminal.out, "{text}")?;
            }
            OutputFormat::Text => {
                print(terminal, &check)?;
                print_agreement(terminal, &agreement)?;
            }
        }
        let good =
            Rubric::standard().all(|rubric| check.rubrics.get(&rubric.name).is_some_and(Reliability::is_reliable));
        Ok(if good { Exit::Ok } else { Exit::CheckFailed })
    }
}

/// The stored result of `judge`. If there is none, or with `again`, the judge is tested and the result stored, unless
/// `only_stored`.
pub(super) async fn load_or_run_check(
    judge: &Judge,
    only_stored: bool,
    again: bool,
) -> Result<Option<JudgeCheck>, Failure> {
    let file = judge_checks_folder(|name| std::env::var_os(name)).map(|folder| JudgeCheckFile::of(&folder, judge));
    let stored = file.as_ref().filter(|_| !again).and_then(|file| file.read(judge));
    if stored.is_some() || only_stored {
        return Ok(stored);
    }
    let check = check_judge(judge).await.map_err(|error| {
        Failure::Model(ModelError::Failed { model: judge.info().name.clone(), why: error.to_string() })
    })?;
    // Without a cache folder the result is not stored.
    if let Some(file) = file {
        file.write(&check).map_err(|error| Failure::usage(error.to_string()))?;
    }
    Ok(Some(check))
}

/// Prints a warning if the judge is unreliable on some rubric.
pub(super) fn warn(terminal: &mut Terminal, check: &JudgeCheck) -> Result<(), Failure> {
    let doubtful =
        Rubric::standard().filter(|rubric| !check.rubrics.get(&rubric.name).is_some_and(Reliability::is_reliable));
    let doubtful: Vec<&str> = doubtful.map(|rubric| rubric.name.as_str()).collect();
    if !doubtful.is_empty() {
        let model = &check.model;
        writeln!(terminal.err, "The judge `{model}` is unreliable on {}: loom judge check", doubtful.join(", "))?;
    }
    Ok(())
}

fn print_agreement(terminal: &mut Terminal, agreement: &[LabelAgreement]) -> Result<(), Failure> {
    let out = &mut terminal.out;
    if agreement.is_empty() {
        return Ok(());
    }
    let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"));
    writeln!(out, "\nagreement with people\nrubric              messages  distance  spearman  auroc  alpha  people")?;
    for row in agreement {
        writeln!(
            out,
            "{:<18}  {:>8}  {:>8}  {:>8}  {:>5}  {:>5}  {:>6}",
            row.rubric,
            row.messages,
            shown(row.distance),
            shown(row.spearman),
            shown(row.auroc),
            shown(row.alpha),
            shown(row.alpha_people)
        )?;
        for why in &row.unrated {
            writeln!(out, "not rated: {why}")?;
        }
    }
    Ok(())
}

fn print(terminal: &mut Terminal, check: &JudgeCheck) -> Result<(), Failure> {
    let out = &mut terminal.out;
    let how = match check.method {
        ScoreMethod::LogprobRating => "by log-probability",
        ScoreMethod::TopLogprobRating => "by the top log-probabilities",
        _ => "by written answers",
    };
    writeln!(out, "{} rates {how}", check.model)?;
    writeln!(out, "\nrubric              agreement  95 %         pairs")?;
    for rubric in Rubric::standard() {
        match check.rubrics.get(&rubric.name) {
            Some(reliability) => {
                let Reliability { agreement, interval, pairs } = reliability;
                let interval = interval.map_or_else(String::new, |i| format!("{:.2} to {:.2}", i.low, i.high));
                let mark = if reliability.is_reliable() { "" } else { "  unreliable" };
                writeln!(out, "{:<18}  {agreement:<9.2}  {interval:<12} {pairs:>5}{mark}", rubric.name)?;
            }
            None => writeln!(out, "{:<18}  none", rubric.name)?,
        }
    }
    let signed = |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:+.2}"));
    writeln!(out, "\nposition bias              {}  (0 is none, +0.5 always the first)", signed(check.position_bias))?;
    writeln!(out, "verbosity bias             {}  (0 is none, +1 always the longer)", signed(check.verbosity_bias))?;
    if let Some(mass) = check.mass {
        match check.top {
            Some(top) => writeln!(out, "probability on the scale   at least {mass:.3}, over the top {top}")?,
            None => writeln!(out, "probability on the scale   {mass:.3}")?,
        }
    }
    for why in &check.unrated {
        writeln!(out, "not rated: {why}")?;
    }
    Ok(())
}
