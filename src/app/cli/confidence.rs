//! `loom confidence`: measures and calibrates a model's confidence.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressDrawTarget};

use super::input::read_file;
use super::output::require_writable_path;
use super::{Exit, Failure, Terminal};
use crate::foundation::base::{Clock, SystemClock};
use crate::foundation::chat::{LanguageModel, ModelChain, ModelSpec};
use crate::foundation::store::write_atomic;
use crate::governance::mood::Mood;
use crate::governance::regulator::{
    CALIBRATION_REPLIES_MIN, CalibrationProvenance, CalibrationScope, ConfidenceSettings, Estimator,
};
use crate::inference::providers::OpenOptions;
use crate::simulation::authorizer::Authorizer;
use crate::simulation::persona::examples;
use crate::simulation::resampling::SamplingPlan;
use crate::studies::confidence::{
    Alternatives, AnswerPlan, AnsweredItem, BreakPlan, Protocol, Study, StudyError, StudySubject, Task, TaskError,
    answer, breaks, breaks_table, effect, effect_table, fit, reliability_figure, table,
};

/// Measure a model's confidence against known answers, and calibrate it
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Bench(Bench),
    Fit(Fit),
    Effect(Effect),
    Breaks(Breaks),
}

/// Evaluate every estimator on a task: PRR, AUROC, Brier, ECE, AUARC, each with its interval, and the tokens spent
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom confidence bench  the bundled model on the built-in task
  loom confidence bench --task questions.jsonl --model local:mamba-130m

A task is `grammar`, `closed_facts`, `closed_facts_free`, `sums` or a file with one item per line:
  {\"sentence_good\": \"…\", \"sentence_bad\": \"…\"}  minimal pairs, as in BLiMP
  {\"statement\": \"…\", \"label\": true}               a labelled statement
  {\"question\": \"…\", \"choices\": [\"…\", \"…\"], \"answer\": 0}  multiple choice
  {\"question\": \"…\", \"answers\": [\"…\"], \"matching\": \"fuzzy\"}  free answers
It may also be a file of TriviaQA, CoQA, GSM8K or MMLU as published, or the folder of MMLU's test files.

Half of the items, chosen by the digest of their content, is held out; all metrics are computed on that half.")]
struct Bench {
    #[command(flatten)]
    what: TaskArgs,
    /// Bootstrap resamples for the intervals
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    resamples: u32,
    /// Also write all results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write each item with its answer, its samples, its estimates and their costs to this file, one JSON object per line
    #[arg(long, value_name = "FILE")]
    items_json: Option<PathBuf>,
    /// Also ask the model whether its answer is right, and sample each free answer this many times more: semantic entropy,
    /// answer frequency, self-consistency, `CoCoA`, `DeepConf`, P(True), with what each costs. Items are then answered one by one
    #[arg(long, value_name = "K")]
    samples: Option<usize>,
    /// Also let the samples vote on each free answer: self-consistency and DeepConf, with and without its early stop
    #[arg(long, requires = "samples")]
    vote: bool,
    /// Tokens in one of DeepConf's groups; default: 32
    #[arg(long, value_name = "N", value_parser = super::at_least_one)]
    group_tokens: Option<usize>,
    /// The temperature of those samples
    #[arg(long, value_name = "T", default_value_t = 1.0, requires = "samples", value_parser = temperature)]
    temperature: f32,
    /// Compare the samples' meanings by this sentence embedder, in place of the model's likelihoods
    #[arg(long, value_name = "SPEC", requires = "samples")]
    embedder: Option<ModelSpec>,
    /// Draw the reliability diagram of the best estimator, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Fit a calibration and write it for `loom run --calibration` and `loom regulate --calibration`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom confidence fit --output bundled.json
  loom run anna.yaml --calibration bundled.json

A calibration is written only if the AUROC on held-out items is above .5 with 95 % confidence, and applies to answers of the \
same kind alone: one that was fitted on choices is refused by `loom run` and `loom regulate`.

By default the estimator with the best AUROC on the fit half is used, except `choice_margin`, which only scored \
candidates have.")]
struct Fit {
    #[command(flatten)]
    what: TaskArgs,
    /// The estimator; default: the best
    #[arg(long, value_name = "NAME", value_parser = estimator)]
    estimator: Option<Estimator>,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
}

/// Run fifty conversations with the regulator observing and enforcing, and compare quality, scope compliance and cost
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom confidence effect --output effect                   the bundled model
  loom confidence effect --output effect --model scripted  no log-probabilities")]
struct Effect {
    /// The persona's model; `scripted` gives a right answer or an evasion, drawn by the seed
    #[arg(long, value_name = "MODEL", default_value = "bundled")]
    model: String,
    /// Runs of each conversation
    #[arg(long, value_name = "N", default_value_t = 4)]
    rollouts: usize,
    /// A new folder for the transcripts
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Also write all results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Threads; default: all cores
    #[arg(long, value_name = "N", value_parser = super::at_least_one)]
    threads: Option<usize>,
}

impl Effect {
    fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        require_writable_path(&self.json)?;
        let chain = match self.model.as_str() {
            "scripted" => None,
            model => Some(model.parse::<ModelChain>().map_err(|error| Failure::usage(error.to_string()))?),
        };
        let bar = bar(50);
        let mut options = OpenOptions::new(self.threads, None);
        if let Some(chain) = &chain {
            options.hosts.allow_chain(chain);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let on_progress = |done: usize| bar.set_position(done as u64);
        let found = runtime.block_on(effect(chain.as_ref(), self.rollouts, &self.output, &options, on_progress));
        bar.finish_and_clear();
        let found = found.map_err(|error| Failure::usage(error.to_string()))?;
        write!(terminal.out, "{}", effect_table(&found))?;
        if let Some(path) = &self.json {
            let json = serde_json::to_vec_pretty(&found).map_err(|error| Failure::usage(error.to_string()))?;
            write(path, &json)?;
        }
        Ok(Exit::Ok)
    }
}

/// Measure how well a model's likelihoods tell the turn in which a persona breaks character, on rollouts with planted breaks
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom confidence breaks --output breaks            the shipped personas, played and read by the bundled model
  loom confidence breaks --output breaks a.yaml b.yaml --model local:llama --turns 12

Each rollout is read as it was, with one reply replaced by a break (talk of an assistant, giving in, narration, leaked \
instructions, foreign matter, another persona's reply), and with the same reply replaced by another one in character.")]
struct Breaks {
    /// Persona configs, at least two; default: those that come with the program
    #[arg(value_name = "CONFIG")]
    configs: Vec<PathBuf>,
    /// The model that plays the personas
    #[arg(long, value_name = "MODEL", default_value = "bundled")]
    model: ModelChain,
    /// A local model that reads the replies; default: the one that plays
    #[arg(long, value_name = "MODEL")]
    reader: Option<ModelChain>,
    /// Rollouts of each persona
    #[arg(long, value_name = "N", default_value_t = 6)]
    rollouts: usize,
    /// Turns of each rollout
    #[arg(long, value_name = "N", default_value_t = 8)]
    turns: usize,
    /// The seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Bootstrap resamples for the intervals
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    resamples: u32,
    /// A new folder for the transcripts
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Also write all results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write each turn with its reply and its scores to this file, one JSON object per line
    #[arg(long, value_name = "FILE")]
    items_json: Option<PathBuf>,
    /// Threads; default: all cores
    #[arg(long, value_name = "N", value_parser = super::at_least_one)]
    threads: Option<usize>,
}

impl Breaks {
    fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        require_writable_path(self.json.iter().chain(&self.items_json))?;
        let mut personas = Vec::new();
        for path in &self.configs {
            let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            if personas.iter().any(|(known, _)| *known == name) {
                return Err(Failure::usage(format!("two configs are called `{name}`: rename one")));
            }
            personas.push((name, read_file(path)?));
        }
        if personas.is_empty() {
            let shipped = examples().iter().filter(|example| example.path.starts_with("personas/"));
            personas.extend(shipped.map(|example| (example.name.to_owned(), example.yaml.to_owned())));
        }
        let reader = self.reader.as_ref().unwrap_or(&self.model);
        let gate = Authorizer::for_models("confidence", Mood::Skeptical, &[&self.model, reader], None)?;
        let mut options = OpenOptions::new(self.threads, None).naming(&self.model).naming(reader);
        options.hosts.allow_chain(&self.model);
        let reader = gate.open_model(reader, &options)?;
        let count = personas.len();
        let plan = BreakPlan {
            personas,
            model: self.model.clone(),
            rollouts: self.rollouts,
            turns: self.turns,
            seed: self.seed,
            resamples: self.resamples,
        };
        let bar = bar((count + count * self.rollouts) as u64);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let on_progress = |done: usize| bar.set_position(done as u64);
        let found = runtime.block_on(breaks(&plan, &reader, &self.output, &options, on_progress));
        bar.finish_and_clear();
        let (study, turns) = found.map_err(|error| Failure::usage(error.to_string()))?;
        write!(terminal.out, "{}", breaks_table(&study))?;
        if let Some(path) = &self.items_json {
            write(path, &json_lines(&turns)?)?;
        }
        if let Some(path) = &self.json {
            let json = serde_json::to_vec_pretty(&study).map_err(|error| Failure::usage(error.to_string()))?;
            write(path, &json)?;
        }
        Ok(Exit::Ok)
    }
}

/// One JSON object per line.
fn json_lines<T: serde::Serialize>(rows: &[T]) -> Result<Vec<u8>, Failure> {
    let mut lines = Vec::new();
    for row in rows {
        serde_json::to_writer(&mut lines, row).map_err(|error| Failure::usage(error.to_string()))?;
        lines.push(b'\n');
    }
    Ok(lines)
}

/// Resamples behind the interval that decides whether a fit is accepted.
const FIT_RESAMPLES: u32 = 500;

fn bar(length: u64) -> ProgressBar {
    let target =
        if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    ProgressBar::with_draw_target(Some(length), target)
}

#[derive(Debug, clap::Args)]
struct TaskArgs {
    /// The task: `grammar`, `closed_facts`, `closed_facts_free`, `sums`, or a file
    #[arg(long, value_name = "TASK", default_value = "grammar")]
    task: String,
    /// The model
    #[arg(long, value_name = "MODEL", default_value = "bundled")]
    model: ModelChain,
    /// Only the first items
    #[arg(long, value_name = "N")]
    items: Option<usize>,
    /// Let the model write the letter of MMLU's answers, in place of comparing the letters' likelihoods
    #[arg(long)]
    written: bool,
    /// Alternatives per token, or `all`; the default is that of `loom run`
    #[arg(long, value_name = "N", default_value = "3", value_parser = alternatives)]
    alternatives: Alternatives,
    /// Threads; default: all cores
    #[arg(long, value_name = "N", value_parser = super::at_least_one)]
    threads: Option<usize>,
    /// A chat template (Jinja) that replaces the local model's
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
}

fn temperature(text: &str) -> Result<f32, String> {
    text.parse().ok().filter(|value| (0.01..=10.0).contains(value)).ok_or_else(|| "from 0.01 to 10".to_owned())
}

fn alternatives(text: &str) -> Result<Alternatives, String> {
    if text == "all" {
        return Ok(Alternatives::All);
    }
    text.parse().map(Alternatives::Top).map_err(|_| "use a number or `all`".to_owned())
}

fn estimator(name: &str) -> Result<Estimator, String> {
    let known = || Estimator::ALL.map(Estimator::name).join(", ");
    Estimator::ALL
        .into_iter()
        .find(|known| known.name() == name)
        .ok_or_else(|| format!("the estimators are {}", known()))
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        match &self.action {
            Action::Bench(bench) => bench.run(terminal),
            Action::Fit(fit) => fit.run(terminal),
            Action::Effect(effect) => effect.run(terminal),
            Action::Breaks(breaks) => breaks.run(terminal),
        }
    }
}

impl Bench {
    fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        require_writable_path(self.json.iter().chain(&self.plot).chain(&self.items_json))?;
        let (subject, answers) = self.what.answers(Some(self))?;
        let study = Study::of(subject, &answers, self.resamples)?;
        write!(terminal.out, "{}", table(&study))?;
        if let Some(path) = &self.items_json {
            write(path, &json_lines(&answers)?)?;
        }
        if let Some(path) = &self.json {
            let json = serde_json::to_vec_pretty(&study).map_err(|error| Failure::usage(error.to_string()))?;
            write(path, &json)?;
        }
        if let (Some(path), Some(best)) = (&self.plot, study.estimators.first()) {
            let svg = reliability_figure(best).svg().map_err(|error| Failure::usage(error.to_string()))?;
            write(path, svg.as_bytes())?;
        }
        Ok(Exit::Ok)
    }
}

impl Fit {
    fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        require_writable_path([&self.output])?;
        let (subject, answers) = self.what.answers(None)?;
        let study = Study::of(subject, &answers, FIT_RESAMPLES)?;
        let estimator = match self.estimator {
            Some(estimator) => estimator,
            None => study.best().ok_or_else(|| StudyError::Unfit("no estimator".to_owned()))?,
        };
        let mut calibration = fit(study.subject.scope.clone(), estimator, &answers)?;
        let measured = study.estimators.iter().find(|row| row.estimator == estimator).and_then(|row| row.auroc);
        calibration.auroc = measured.map(|auroc| auroc.value);
        let low = measured.and_then(|auroc| auroc.interval).map(|interval| interval.low);
        if !calibration.is_reliable() || low.is_some_and(|low| low <= 0.5) {
            let rows: Vec<_> = study.estimators.iter().filter(|row| row.estimator == estimator).cloned().collect();
            write!(terminal.out, "{}", table(&Study { estimators: rows, ..study }))?;
            writeln!(
                terminal.err,
                "loom: no calibration was written: {} was fitted on {} items ({CALIBRATION_REPLIES_MIN} or more are needed), and \
                 its AUROC on the held-out ones is not above .5 with 95 % confidence if the interval begins there or below; \
                 give the task more items, or choose another estimator",
                estimator.name(),
                calibration.n
            )?;
            return Ok(Exit::CheckFailed);
        }
        calibration.provenance = CalibrationProvenance {
            date: SystemClock.now().strftime("%Y-%m-%d").to_string(),
            loom: env!("CARGO_PKG_VERSION").to_owned(),
            model: study.subject.model.clone(),
        };
        let json = serde_json::to_vec_pretty(&calibration).map_err(|error| Failure::usage(error.to_string()))?;
        write(&self.output, &json)?;
        let selected: Vec<_> = study.estimators.iter().filter(|row| row.estimator == estimator).cloned().collect();
        write!(terminal.out, "{}", table(&Study { estimators: selected, ..study }))?;
        writeln!(
            terminal.out,
            "\nCalibration of {} from {} items: {}",
            estimator.name(),
            calibration.n,
            self.output.display()
        )?;
        Ok(Exit::Ok)
    }
}

impl TaskArgs {
    fn answers(&self, bench: Option<&Bench>) -> Result<(StudySubject, Vec<AnsweredItem>), Failure> {
        let mut task = Task::open(&self.task)?;
        if self.written {
            task = task.written();
        }
        if let Some(items) = self.items {
            task.items.truncate(items);
        }
        let template = self.chat_template.as_deref().map(read_file);
        let gate = Authorizer::for_models("confidence", Mood::Skeptical, &[&self.model], None)?;
        let options = OpenOptions::new(self.threads, template.transpose()?).naming(&self.model);
        let model = gate.open_model(&self.model, &options)?;
        let group_tokens = bench.and_then(|bench| bench.group_tokens);
        let sampling = match bench.and_then(|bench| Some((bench.samples?, bench))) {
            None => None,
            Some((samples, bench)) => Some(SamplingPlan {
                samples,
                temperature: bench.temperature,
                top_logprobs: match self.alternatives {
                    Alternatives::Top(top) => top,
                    Alternatives::All => model.info().vocabulary.unwrap_or(0),
                },
                group_tokens: group_tokens.unwrap_or(ConfidenceSettings::default().group_tokens),
                embedder: bench.embedder.as_ref().map(|spec| gate.open_embedder(spec, &options)).transpose()?,
            }),
        };
        let vote = bench.is_some_and(|bench| bench.vote);
        let plan = AnswerPlan { alternatives: self.alternatives, group_tokens, sampling, vote };
        let subject = StudySubject {
            task: task.name.clone(),
            protocols: task.protocols().into_iter().map(Protocol::name).collect(),
            model: self.model.to_string(),
            scope: scope(&*model, &task)?,
        };
        let bar = bar(task.items.len() as u64);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answers = runtime.block_on(answer(&model, &task, &plan, |done| bar.set_position(done as u64)));
        bar.finish_and_clear();
        Ok((subject, answers?))
    }
}

/// The scope of a calibration of `model` on `task`.
fn scope(model: &dyn LanguageModel, task: &Task) -> Result<CalibrationScope, Failure> {
    let info = model.info();
    let digest = info.digest.ok_or_else(|| {
        Failure::usage(format!(
            "`{}` has no digest, so a calibration could not be checked against it; use \
             `bundled` or `local:DIR`",
            info.name
        ))
    })?;
    Ok(CalibrationScope { model: digest, template: info.template, task: task.name.clone(), answers: task.answers() })
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_atomic(path, bytes).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}

impl From<TaskError> for Failure {
    fn from(error: TaskError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<StudyError> for Failure {
    fn from(error: StudyError) -> Self {
        Self::usage(error.to_string())
    }
}
