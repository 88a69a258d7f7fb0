//! `loom run`: runs, scores and reports rollouts of a persona. `run/show.rs` prints the progress.

mod show;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;

use self::show::summary;
pub(super) use self::show::{execute, headline};
use super::device::RoleArgs;
use super::input::read_file;
use super::score::{self, ScoreOptions};
use super::terminal::{printable, quoted};
use super::{Exit, Failure, Terminal};
use crate::foundation::base::{Clock, SystemClock};
use crate::foundation::chat::{ModelChain, ModelError};
use crate::governance::memory::capture::CaptureInput;
use crate::governance::memory::workspace::{DecisionDraft, MemoryError, Workspace};
use crate::governance::regulator::Calibration;
use crate::governance::regulator::CorrectionPattern;
use crate::inference::engine::{DeviceChoice, Dtype};
use crate::inference::providers::{OpenOptions, PerRole};
use crate::simulation::authorizer::Authorizer;
use crate::simulation::persona::{AdversaryKind, RegulatorPolicy, load_with_text, quote_decisions};
use crate::simulation::report::{Held, Report};
use crate::simulation::rollout::{FileError, Outcome, PlanError, RolloutSummary, Run, RunError, RunPlan};

/// Run rollouts: conversations of a persona with a target or an adversary
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom run anna.yaml                          one rollout, bundled models
  loom run anna.yaml --turns 50 --rollouts 4  four rollouts in parallel
  loom run anna.yaml --adversary contradiction
  loom run anna.yaml --persona-model local:mamba-130m --target openai/gpt-4.1
  loom run anna.yaml --regulator enforce      carry out the regulator's decisions
  loom run --resume results/2026-03-04_101500_anna  resume an interrupted run

A model is `bundled`, `local:DIR_OR_GGUF`, `hf:OWNER/REPO`, `openai/NAME`, `anthropic/NAME`, `openai-compatible:URL#NAME`, \
`scripted:FILE` or `echo`, or a comma-separated fallback chain. The same seed gives the same transcripts, at any --parallel and \
after any interruption.

Exit codes: 0 all rollouts are complete, 1 the regulator stopped one (`--regulator enforce`), 5 a model failed, 130 \
interrupted.")]
pub(super) struct Args {
    /// The persona's config
    #[arg(value_name = "CONFIG", required_unless_present = "resume")]
    config: Option<PathBuf>,
    /// The persona's model [default: bundled]
    #[arg(long, value_name = "MODEL")]
    persona_model: Option<ModelChain>,
    /// The model under test, with which the persona talks [default: bundled]
    #[arg(long, value_name = "MODEL")]
    target: Option<ModelChain>,
    /// The judge model [default: bundled]
    #[arg(long, value_name = "MODEL")]
    judge_model: Option<ModelChain>,
    /// Turns per rollout [default: the config's `expected_turns`]
    #[arg(long, value_name = "N", value_parser = super::whole::<usize>, allow_negative_numbers = true)]
    turns: Option<usize>,
    /// Number of rollouts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = super::whole::<usize>, allow_negative_numbers = true)]
    rollouts: usize,
    /// Kind of adversary [default: the config's]
    #[arg(long, value_name = "KIND", value_enum)]
    adversary: Option<Adversary>,
    /// The adversary's strategies, such as an edited copy of an example (`loom examples`)
    #[arg(long, value_name = "FILE", conflicts_with = "adversary")]
    adversary_file: Option<PathBuf>,
    /// The adversary's model [default: the config's, else the judge's]
    #[arg(long, value_name = "MODEL")]
    adversary_model: Option<ModelChain>,
    /// Seed of all random draws
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = super::whole::<u64>, allow_negative_numbers = true)]
    seed: u64,
    /// Output folder [default: a dated one in `results`]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Resume the run in this folder, with its own settings
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = [
            "config", "persona_model", "target", "judge_model", "turns", "rollouts", "adversary", "adversary_file",
            "adversary_model", "seed", "output", "chat_template", "dtype", "persona_dtype", "interlocutor_dtype",
            "judge_dtype", "regulator", "calibration",
        ]
    )]
    resume: Option<PathBuf>,
    /// Score the finished rollouts, as `loom score` does
    #[arg(long, conflicts_with = "no_score")]
    score: bool,
    #[command(flatten)]
    scoring: ScoreOptions,
    /// Whether the regulator's decisions are carried out [default: the config's setting]
    #[arg(long, value_name = "POLICY", value_enum)]
    regulator: Option<Policy>,
    /// Calibration by `loom confidence fit` for one of the models: confidence is then a probability of being right
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Memory workspace: the decisions that the config cites are quoted from it, and what repeated corrections of the persona
    /// taught is proposed to it
    #[arg(long, value_name = "DIR")]
    memory: Option<PathBuf>,
    /// Skip scoring and the report
    #[arg(long)]
    no_score: bool,
    #[command(flatten)]
    roles: RoleArgs,
    /// Device of the other side's model
    #[arg(long, value_name = "DEVICE")]
    interlocutor_device: Option<DeviceChoice>,
    /// Number type of local models' weights: f32, bf16, `q8_0` or `q4_k` [default: as in their files]
    #[arg(long, value_name = "DTYPE", value_parser = dtype)]
    dtype: Option<Dtype>,
    /// Number type of the persona's model
    #[arg(long, value_name = "DTYPE", value_parser = dtype)]
    persona_dtype: Option<Dtype>,
    /// Number type of the other side's model
    #[arg(long, value_name = "DTYPE", value_parser = dtype)]
    interlocutor_dtype: Option<Dtype>,
    /// Number type of the judge's model
    #[arg(long, value_name = "DTYPE", value_parser = dtype)]
    judge_dtype: Option<Dtype>,
    /// Chat template (Jinja) that replaces the local models' own
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Adversary {
    /// No adversary: the plain target
    None,
    /// Probes for contradictions
    Contradiction,
    /// Tries to make the persona act as a capable assistant
    Helpfulness,
    /// Both, alternating
    Both,
}

fn dtype(text: &str) -> Result<Dtype, String> {
    text.parse()
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Policy {
    /// They are recorded
    Observe,
    /// Decisions are recorded and carried out
    Enforce,
}

/// Maximum number of runs with default names that start in the same second.
const SAME_SECOND_MAX: usize = 100;

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let options = self.options(terminal)?;
        let memory = self.memory.as_ref().map(|folder| Workspace::at(folder, SystemClock.now())).transpose()?;
        let run = match &self.resume {
            Some(folder) => Run::resume(folder, &options).map_err(failure)?,
            None => self.create(&options, memory.as_ref())?,
        };
        if let Some(notice) = run.seal_notice() {
            writeln!(terminal.err, "{notice}")?;
        }
        let folder = run.path().to_owned();
        writeln!(terminal.err, "{}", headline(&run))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let (result, interrupted) = runtime.block_on(execute(&run, self.roles.parallel, terminal))?;
        let summaries = match result {
            Ok(summaries) => summaries,
            Err(error) => {
                writeln!(terminal.err, "Finished turns are saved; resume with: {}", self.resume_command(&folder))?;
                return Err(failure(error));
            }
        };
        summary(terminal, &folder, &summaries)?;
        if interrupted
            && summaries.iter().filter(|one| one.outcome != Outcome::Unfinished).count() < run.manifest().rollouts
        {
            writeln!(terminal.out, "Interrupted. Resume with: {}", self.resume_command(&folder))?;
            return Ok(Exit::Interrupted);
        }
        if self.score {
            let manifest = run.manifest().clone();
            drop(run);
            runtime.block_on(score::run(
                terminal,
                &folder,
                &manifest,
                &self.scoring,
                &options,
                self.roles.parallel.max(1),
            ))?;
        }
        if !self.no_score {
            report(terminal, &folder)?;
        }
        if let (Some(memory), Some(at)) = (&memory, &self.memory) {
            learn((memory, at), &folder, &summaries, terminal)?;
        }
        let stopped = |by_regulator: bool| {
            let by = |one: &RolloutSummary| matches!(one.outcome, Outcome::Stopped { circuit_break, .. } if circuit_break == by_regulator);
            summaries.iter().any(by)
        };
        Ok(if stopped(false) {
            Exit::ModelFailed
        } else if stopped(true) {
            Exit::CheckFailed
        } else {
            Exit::Ok
        })
    }

    /// The command that resumes the run in `folder`. Scoring is not part of the run's settings.
    fn resume_command(&self, folder: &Path) -> String {
        let score = if self.score { " --score" } else { "" };
        let named = [&self.persona_model, &self.target, &self.adversary_model, &self.judge_model];
        let allow = self.roles.remote.allow_host_flags(named.into_iter().flatten());
        format!("loom run --resume {}{score}{allow}", quoted(folder))
    }

    fn options(&self, terminal: &mut Terminal) -> Result<OpenOptions, Failure> {
        let template = self.chat_template.as_deref().map(read_file);
        let mut options = self.roles.options(template.transpose()?, self.interlocutor_device, terminal)?;
        options.dtype = self.dtype;
        options.dtypes =
            PerRole { persona: self.persona_dtype, interlocutor: self.interlocutor_dtype, judge: self.judge_dtype };
        let named = [&self.persona_model, &self.target, &self.adversary_model, &self.judge_model];
        named.into_iter().flatten().for_each(|chain| options.hosts.allow_chain(chain));
        Ok(options)
    }

    fn create(&self, options: &OpenOptions, memory: Option<&Workspace>) -> Result<Run, Failure> {
        let path = self.config.as_deref().unwrap_or(Path::new(""));
        let builder = match memory {
            None => RunPlan::from_file(path),
            Some(memory) => {
                let (config, yaml) = load_with_text(path)?;
                let yaml = quote_decisions(&config.source, &yaml, &memory.texts()?)?;
                RunPlan::from_yaml(&config.source, yaml)
            }
        };
        let mut builder = builder
            .map_err(plan_failure)?
            .seed(self.seed)
            .rollouts(self.rollouts)
            .turns(self.turns)
            .adversary(self.adversary.map(AdversaryKind::from))
            .persona_model(self.persona_model.clone())
            .target_model(self.target.clone())
            .adversary_model(self.adversary_model.clone())
            .judge_model(self.judge_model.clone())
            .regulator(self.regulator.map(RegulatorPolicy::from))
            .calibration(self.calibration.as_deref().map(calibration).transpose()?);
        if let Some(path) = &self.adversary_file {
            builder = builder.adversary_script(&path.display().to_string(), read_file(path)?).map_err(plan_failure)?;
        }
        let plan = builder.build().map_err(plan_failure)?;
        let mut output = self.output.clone().unwrap_or_else(|| dated(path, 1));
        let mut created = Run::create(&plan, &output, options);
        // Another run that started in the same second may have the name.
        for number in 2..=SAME_SECOND_MAX {
            let taken = matches!(created, Err(RunError::File(FileError::Exists { .. } | FileError::Busy { .. })));
            if self.output.is_some() || !taken {
                break;
            }
            output = dated(path, number);
            created = Run::create(&plan, &output, options);
        }
        created.map_err(|error| match error {
            RunError::Model(ModelError::Unavailable { model, why })
                if self.adversary_model.is_none() && is_configs_adversary(&plan, &model) =>
            {
                let why =
                    format!("{why}. The config sets it as the adversary's model; override it with --adversary-model");
                Failure::Model(ModelError::Unavailable { model, why })
            }
            error => failure(error),
        })
    }
}

fn calibration(path: &Path) -> Result<Calibration, Failure> {
    let invalid = |error| Failure::usage(format!("{}: {error}", path.display()));
    let calibration = Calibration::from_json(&read_file(path)?).map_err(invalid)?;
    calibration.check_use().map_err(invalid)?;
    Ok(calibration)
}

/// Captures repeated corrections of the rollouts as signals, and proposes each as a decision. A person applies it or not.
fn learn(
    (memory, at): (&Workspace, &Path),
    folder: &Path,
    summaries: &[RolloutSummary],
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let run = folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned();
    let learned = summaries.iter().flat_map(|one| one.learned.iter().map(move |pattern| (one.rollout, pattern)));
    let learned: Vec<(String, &CorrectionPattern, &str)> = learned
        .filter_map(|(rollout, pattern)| {
            let example = pattern.example_corrections.last()?;
            Some((format!("{run}/rollout_{rollout:03}"), pattern, example.as_str()))
        })
        .collect();
    let texts: Vec<String> = learned
        .iter()
        .map(|(_, pattern, example)| format!("{} corrections: {example}", pattern.learned_from_turns))
        .collect();
    let inputs: Vec<CaptureInput<'_>> = learned
        .iter()
        .zip(&texts)
        .map(|((source, ..), text)| CaptureInput { text, source, kind: Some("correction") })
        .collect();
    let gate = Authorizer::for_memory_proposals("run", at, Arc::new(SystemClock))?;
    let permit = gate.permit(&Workspace::capture_effect(&inputs)).map_err(MemoryError::Denied)?;
    let (signals, lost) = memory.capture(permit, &inputs)?;
    writeln!(terminal.out, "Memory: {} captured for review", count(signals.len(), "signal"))?;
    if lost > 0 {
        writeln!(terminal.err, "{} not stored: today's ids are used up", count(lost, "signal"))?;
    }
    for (source, pattern, example) in &learned {
        let draft = DecisionDraft {
            statement: (*example).to_owned(),
            why: format!("repeated in {} corrections", pattern.learned_from_turns),
            source: source.clone(),
            tags: vec!["correction".to_owned()],
            ..DecisionDraft::default()
        };
        match propose(memory, &gate, &draft) {
            Ok(Some(id)) => writeln!(
                terminal.out,
                "Memory: proposed {id}: {example}\n  a person applies it with `loom memory apply {id}`, or rejects it"
            )?,
            Ok(None) => {}
            Err(error) => writeln!(terminal.err, "not proposed: {example}: {error}")?,
        }
    }
    gate.close()?;
    Ok(())
}

/// Proposes a decision, unless the memory has it or was offered it before. Returns the proposal's id.
fn propose(memory: &Workspace, gate: &Authorizer, draft: &DecisionDraft) -> Result<Option<String>, MemoryError> {
    if memory.is_offered(&draft.statement)? {
        return Ok(None);
    }
    let request = memory.decision_request(draft)?;
    let permit = gate.permit(&Workspace::propose_effect(&request)).map_err(MemoryError::Denied)?;
    memory.propose(permit, request).map(Some)
}

/// Writes the same report as `loom report`.
fn report(terminal: &mut Terminal, folder: &Path) -> Result<(), Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::usage(format!("the run is complete, but its report failed: {error}"));
    let (report, conversations) = Report::with_conversations(folder).map_err(|error| failed(&error))?;
    let path = report.write_to(folder, &conversations).map_err(|error| failed(&error))?;
    verdict(terminal, &report)?;
    writeln!(terminal.out, "Report: {}", path.display())?;
    let left_out = report.prompts.left_out.len();
    if left_out > 0 {
        let was = if left_out == 1 { "sentence was" } else { "sentences were" };
        writeln!(
            terminal.err,
            "The persona's prompt exceeds its model's prompt budget: {left_out} {was} left out; the report lists them."
        )?;
    }
    Ok(())
}

/// Prints the verdict on top of a report.
pub(super) fn verdict(terminal: &mut Terminal, report: &Report) -> Result<(), Failure> {
    writeln!(terminal.out, "{}", printable(&report.verdict.summary))?;
    for aspect in &report.verdict.aspects {
        let share = aspect.share().map_or_else(String::new, |share| format!(": held in {share}"));
        writeln!(terminal.out, "{:<12}  {}{share}", aspect.held.text(), printable(&aspect.name()))?;
        if !aspect.figure.is_empty() {
            writeln!(terminal.out, "              {}", printable(&aspect.figure))?;
        }
        if aspect.held == Held::CannotTell {
            aspect
                .needs
                .iter()
                .try_for_each(|need| writeln!(terminal.out, "              needs {}", printable(need)))?;
        }
    }
    Ok(())
}

pub(super) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// `results/2026-03-04_101500_anna` for `anna.yaml`, in UTC; with a suffix if `number` is above 1.
fn dated(config: &Path, number: usize) -> PathBuf {
    let name = config.file_stem().unwrap_or_default().to_string_lossy();
    let more = if number > 1 { format!("_{number}") } else { String::new() };
    Path::new("results").join(format!("{}_{name}{more}", SystemClock.now().strftime("%Y-%m-%d_%H%M%S")))
}

fn is_configs_adversary(plan: &RunPlan, model: &str) -> bool {
    plan.adversary != AdversaryKind::None
        && plan.config.evaluation.adversary_model.as_ref().is_some_and(|chain| chain.to_string() == model)
}

fn plan_failure(error: PlanError) -> Failure {
    failure(error.into())
}

pub(super) fn failure(error: RunError) -> Failure {
    let exit = match &error {
        RunError::Delta(_) | RunError::Assemble(_) | RunError::PromptTooLong { .. } => Exit::BadConfig,
        RunError::Receipts(_) => Exit::CheckFailed,
        RunError::Denied(_) => Exit::Denied,
        _ => Exit::Usage,
    };
    match error {
        RunError::Config(errors) => Failure::Config(errors),
        RunError::Model(error) => Failure::Model(error),
        error => Failure::Message { message: error.to_string(), exit },
    }
}

impl From<Policy> for RegulatorPolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Observe => Self::Observe,
            Policy::Enforce => Self::Enforce,
        }
    }
}

impl From<Adversary> for AdversaryKind {
    fn from(kind: Adversary) -> Self {
        match kind {
            Adversary::None => Self::None,
            Adversary::Contradiction => Self::Contradiction,
            Adversary::Helpfulness => Self::Helpfulness,
            Adversary::Both => Self::Both,
        }
    }
}
