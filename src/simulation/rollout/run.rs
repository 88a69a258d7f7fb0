//! A run: its rollouts as concurrent tasks, each resumable at every turn.

use std::path::Path;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::authorizer::RunAuthorizer;
use super::context::{RolloutContext, RunSettings, model_ref};
use super::delta::{self, DeltaError};
use super::files::{ExistingFiles, FileError, RolloutFiles, RunFolder, TurnLine, read_transcript};
use super::manifest::{Manifest, RUN_FORMAT, RUN_VERSION, RunModels};
use super::plan::{PlanError, RunPlan};
use super::progress::{Observer, Progress, StopFlag};
use super::runner::{ReplayError, RolloutRunner};
use super::transcript::{ConfigRef, ModelRef, Outcome, Totals, Transcript};
use crate::foundation::base::limits::FAILURES_IN_A_ROW_MAX;
use crate::foundation::base::{Clock, SystemClock};
use crate::foundation::chat::{LanguageModel, ModelChain, ModelError};
use crate::foundation::gate::{LedgerError, Refusal};
use crate::governance::regulator::{CalibrationError, CorrectionPattern};
use crate::inference::providers::{self, OpenOptions};
use crate::simulation::persona::{AssembleError, ConfigErrors, PersonaConfig, parse};

/// Why a run cannot start, continue, or finish. Every message says what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The plan is incomplete or out of bounds.
    #[error(transparent)]
    Plan(PlanError),
    /// Prompts cannot be assembled.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// The Δ policy cannot be carried out.
    #[error(transparent)]
    Delta(#[from] DeltaError),
    /// The calibration was fitted for another model or template.
    #[error(transparent)]
    Calibration(#[from] CalibrationError),
    /// A model cannot be opened.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A file cannot be written or read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The run cannot be resumed: something it depends on has changed.
    #[error("the run in {path} cannot be resumed: {what} has changed since it began ({was} then, {is} now); {hint}")]
    Changed {
        /// The run's folder.
        path: String,
        /// What has changed.
        what: &'static str,
        /// What it was.
        was: String,
        /// What it is.
        is: String,
        /// What to do.
        hint: &'static str,
    },
    /// The run's receipts cannot be read or written.
    #[error("the run's receipts: {0}")]
    Receipts(String),
    /// The gate denied a request.
    #[error("{0}")]
    Denied(Refusal),
    /// The record cannot be replayed.
    #[error("rollout {rollout} cannot be resumed: {source}")]
    Replay {
        /// Which rollout.
        rollout: usize,
        /// Why.
        source: ReplayError,
    },
}

impl From<Refusal> for RunError {
    fn from(refusal: Refusal) -> Self {
        Self::Denied(refusal)
    }
}

impl From<PlanError> for RunError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Config(errors) => Self::Config(errors),
            error => Self::Plan(error),
        }
    }
}

impl From<LedgerError> for RunError {
    fn from(error: LedgerError) -> Self {
        Self::Receipts(error.0)
    }
}

/// The outcome of one rollout of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RolloutSummary {
    /// Which.
    pub rollout: usize,
    /// [`Outcome::Unfinished`] when the run was interrupted.
    pub outcome: Outcome,
    /// Sums over its turns.
    pub totals: Totals,
    /// The persona's recurring corrections; empty for a rollout that was already finished.
    pub learned: Vec<CorrectionPattern>,
}

/// A run, ready to be executed.
pub struct Run {
    folder: RunFolder,
    manifest: Manifest,
    context: Arc<RolloutContext>,
}

impl Run {
    /// A new run in the folder `output`.
    ///
    /// # Errors
    /// When a model cannot be opened, the configuration cannot be run or the folder cannot be used; nothing is written then.
    pub fn create(plan: &RunPlan, output: &Path, options: &OpenOptions) -> Result<Self, RunError> {
        plan.check()?;
        let now = SystemClock.now();
        let mut options = options.clone();
        options.now = Some(now);
        let (dtypes, devices) = (options.dtypes, options.devices);
        let of_persona = options.with_dtype(dtypes.persona).with_device(devices.persona);
        let of_interlocutor = options.with_dtype(dtypes.interlocutor).with_device(devices.interlocutor);
        let persona = providers::open(&plan.persona, &of_persona)?;
        let interlocutor = providers::open(&plan.interlocutor, &of_interlocutor)?;
        let manifest = Manifest {
            format: RUN_FORMAT.to_owned(),
            version: RUN_VERSION,
            loom: env!("CARGO_PKG_VERSION").to_owned(),
            created_at: now.to_string(),
            config: ConfigRef {
                source: plan.config.source.clone(),
                digest: plan.config.digest,
                name: plan.config.persona.name.clone(),
            },
            seed: plan.seed,
            rollouts: plan.rollouts,
            turns: plan.turns,
            adversary: plan.adversary,
            adversary_script: plan.adversary_script.clone(),
            models: RunModels {
                persona: model_ref(&plan.persona, of_persona.dtype, persona.as_ref()),
                interlocutor: model_ref(&plan.interlocutor, of_interlocutor.dtype, interlocutor.as_ref()),
                judge: plan.judge.to_string(),
                judge_dtype: options.with_dtype(dtypes.judge).dtype.map(|dtype| dtype.to_string()),
            },
            chat_template: options.chat_template,
            regulator: plan.regulator,
            calibration: plan.calibration.clone(),
            fitted_gains: delta::named_file(&plan.config)?,
        };
        let context = context(&plan.config, &manifest, persona, interlocutor)?;
        Ok(Self { folder: RunFolder::create(output, &manifest, &plan.yaml)?, manifest, context })
    }

    /// Reopens the run in the folder `path`. The manifest's chat template and dtypes replace those of `options`.
    ///
    /// # Errors
    /// When there is no run, or something it depends on has changed.
    pub fn resume(path: &Path, options: &OpenOptions) -> Result<Self, RunError> {
        let (folder, manifest, yaml) = RunFolder::open(path)?;
        let changed = |what, was: String, is: String, hint| {
            let path = path.display().to_string();
            if was == is { Ok(()) } else { Err(RunError::Changed { path, what, was, is, hint }) }
        };
        changed("the version of run.json", manifest.version.to_string(), RUN_VERSION.to_string(), "use that version")?;
        changed(
            "the version of loom",
            manifest.loom.clone(),
            env!("CARGO_PKG_VERSION").to_owned(),
            "resume with the version that began it",
        )?;
        let config = Arc::new(parse(&manifest.config.source, &yaml)?);
        changed(
            "config.yaml",
            manifest.config.digest.short(),
            config.digest.short(),
            "put the file back as it was, or begin a new run",
        )?;
        let mut options = options.clone();
        options.chat_template.clone_from(&manifest.chat_template);
        options.now = manifest.created_at.parse().ok();
        let open = |role, device, model: &ModelRef| -> Result<_, RunError> {
            let chain: ModelChain = model
                .spec
                .parse()
                .map_err(|error| ModelError::Unavailable { model: model.spec.clone(), why: format!("{error}") })?;
            let dtype = model.dtype.as_deref().map(str::parse).transpose();
            let dtype = dtype.map_err(|why| ModelError::Unavailable { model: model.spec.clone(), why })?;
            let mut options = options.with_device(device);
            options.dtype = dtype;
            let opened = providers::open(&chain, &options)?;
            let digest = |model: &ModelRef| model.info.digest.map_or("unknown".to_owned(), |digest| digest.short());
            let now = model_ref(&chain, dtype, opened.as_ref());
            let hint = "use the same weights, tokenizer and settings, or begin a new run";
            changed(role, digest(model), digest(&now), hint)?;
            let device = |model: &ModelRef| model.info.device.clone().unwrap_or_else(|| "none here".to_owned());
            let where_hint = "give the same --device as then, or begin a new run";
            changed("the device of a model", device(model), device(&now), where_hint)?;
            changed(role, format!("{model:?}"), format!("{now:?}"), hint)?;
            Ok(opened)
        };
        let persona = open("the persona's model", options.devices.persona, &manifest.models.persona)?;
        let device = options.devices.interlocutor;
        let interlocutor = open("the interlocutor's model", device, &manifest.models.interlocutor)?;
        let context = context(&config, &manifest, persona, interlocutor)?;
        Ok(Self { folder, manifest, context })
    }

    /// The run's folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The run's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Runs every unfinished rollout, `parallel` at a time; their content does not depend on `parallel`.
    ///
    /// # Errors
    /// The first error of a rollout; the others stop after their current turn, and all can be resumed.
    pub async fn execute(
        &self,
        parallel: usize,
        observer: &Observer,
        stop: &StopFlag,
    ) -> Result<Vec<RolloutSummary>, RunError> {
        let authorizer = Arc::new(RunAuthorizer::open(self.folder.path(), &self.manifest)?);
        let mut waiting = 0..self.manifest.rollouts;
        let mut tasks = JoinSet::new();
        let mut summaries = Vec::new();
        let mut failed = None;
        loop {
            while tasks.len() < parallel.max(1) && failed.is_none() && !stop.is_requested() {
                let Some(rollout) = waiting.next() else { break };
                let head = self.context.new_transcript(&self.manifest, rollout, SystemClock.now().to_string());
                let files = self.folder.rollout(rollout);
                let authorizer = Arc::clone(&authorizer);
                tasks.spawn(run_rollout(
                    Arc::clone(&self.context),
                    head,
                    files,
                    Arc::clone(observer),
                    (stop.clone(), authorizer),
                ));
            }
            match tasks.join_next().await {
                None => break,
                Some(Ok(Ok(summary))) => summaries.push(summary),
                Some(Ok(Err(error))) => {
                    stop.request();
                    failed.get_or_insert(error);
                }
                Some(Err(lost)) if lost.is_panic() => std::panic::resume_unwind(lost.into_panic()),
                // Tasks are never cancelled.
                Some(Err(_)) => {}
            }
        }
        if failed.is_none() {
            authorizer.hand_off()?;
        }
        summaries.sort_by_key(|summary| summary.rollout);
        failed.map_or(Ok(summaries), Err)
    }
}

fn context(
    config: &Arc<PersonaConfig>,
    manifest: &Manifest,
    persona: Arc<dyn LanguageModel>,
    interlocutor: Arc<dyn LanguageModel>,
) -> Result<Arc<RolloutContext>, RunError> {
    RolloutContext::new(Arc::clone(config), RunSettings::of(manifest), persona, interlocutor).map(Arc::new)
}

/// Runs one rollout from its last finished turn to its end.
async fn run_rollout(
    context: Arc<RolloutContext>,
    head: Transcript,
    files: RolloutFiles,
    observer: Observer,
    (stop, authorizer): (StopFlag, Arc<RunAuthorizer>),
) -> Result<RolloutSummary, RunError> {
    let rollout = head.run.rollout;
    let mut transcript = head;
    let mut runner = RolloutRunner::new(context, rollout);
    let mut tokens = Vec::new();
    let mut log = match files.find()? {
        ExistingFiles::Finished(path) => {
            let Transcript { config, run, models, outcome, totals, .. } = read_transcript(&path)?;
            if (&config, &run, &models) != (&transcript.config, &transcript.run, &transcript.models) {
                let why = "it belongs to another run than run.json states; move it away to run this rollout again";
                return Err(files.corrupt(1, why).into());
            }
            return Ok(RolloutSummary { rollout, outcome, totals, learned: Vec::new() });
        }
        ExistingFiles::Nothing => files.create_partial(&transcript)?,
        ExistingFiles::Begun { head, turns, torn } => {
            transcript.created_at.clone_from(&head.created_at);
            if *head != transcript {
                let why =
                    "it was begun with other settings than run.json states; move it away to run this rollout again";
                return Err(files.corrupt(1, why).into());
            }
            for line in turns {
                runner.replay(&line).await.map_err(|source| RunError::Replay { rollout, source })?;
                transcript.turns.push(line.turn);
                tokens.extend(line.tokens);
            }
            if torn {
                let text = format!(
                    "an incomplete last line, left by a crash, was removed; turn {} runs again",
                    runner.turns()
                );
                observer(Progress::Notice { rollout, text });
            }
            files.reopen_partial()?
        }
    };
    observer(Progress::Started { rollout, turns: runner.turns() });
    while runner.turns() < transcript.run.turns_planned
        && runner.consecutive_failures() < FAILURES_IN_A_ROW_MAX
        && runner.circuit_break().is_none()
    {
        if stop.is_requested() {
            let totals = Totals::of(&transcript.turns);
            return Ok(RolloutSummary { rollout, outcome: Outcome::Unfinished, totals, learned: Vec::new() });
        }
        let permits = authorizer.authorize_turn(rollout, runner.turns())?;
        let line: TurnLine = runner.turn(permits).await?;
        log.append(&line)?;
        authorizer.record_turn(rollout, &line.turn);
        // A model that replies without waiting never yields; without this, other tasks such as Ctrl-C would starve.
        tokio::task::yield_now().await;
        observer(Progress::Turn {
            rollout,
            turns: runner.turns(),
            tokens: line.turn.persona.usage.tokens_out + line.turn.interlocutor.usage.tokens_out,
            events: line.turn.monitor_events.len(),
        });
        transcript.turns.push(line.turn);
        tokens.extend(line.tokens);
    }
    transcript.outcome = outcome(&transcript, &runner);
    transcript.totals = Totals::of(&transcript.turns);
    authorizer.record_outcome(&transcript);
    files.finish(&transcript, &tokens)?;
    observer(Progress::Finished { rollout, outcome: transcript.outcome.clone() });
    Ok(RolloutSummary {
        rollout,
        outcome: transcript.outcome,
        totals: transcript.totals,
        learned: runner.correction_patterns(),
    })
}

fn outcome(transcript: &Transcript, runner: &RolloutRunner) -> Outcome {
    if let Some(reason) = runner.circuit_break() {
        return Outcome::Stopped { reason: format!("circuit break: {reason}"), circuit_break: true };
    }
    let failures = runner.consecutive_failures();
    if failures < FAILURES_IN_A_ROW_MAX {
        return Outcome::Complete;
    }
    let last = transcript.turns.iter().rev().flat_map(|turn| [&turn.interlocutor, &turn.persona]);
    let why = last.filter_map(|utterance| utterance.failure.as_ref()).map(|failure| failure.why.as_str()).next();
    let reason = format!("{failures} messages in a row got no reply: {}", why.unwrap_or_default());
    Outcome::Stopped { reason, circuit_break: false }
}
