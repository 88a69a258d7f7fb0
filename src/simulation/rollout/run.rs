//! A run: its rollouts as concurrent tasks, each resumable at every turn.

use std::path::Path;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::context::{RolloutContext, RunSettings, model_ref};
use super::delta;
use super::error::RunError;
use super::files::{ExistingFiles, NewRunFolder, RolloutFiles, RunFolder, TurnLine, read_transcript};
use super::manifest::{Manifest, RUN_FORMAT, RUN_VERSION, RunModels};
use super::permits::{CallEstimate, PermitSettings, RunPermits};
use super::plan::RunPlan;
use super::progress::{Observer, Progress, StopFlag};
use super::runner::RolloutRunner;
use super::seal::SealRenewal;
use super::transcript::{ConfigRef, ModelRef, Outcome, Totals, Transcript};
use crate::foundation::base::limits::FAILURES_IN_A_ROW_MAX;
use crate::foundation::base::{Clock, SystemClock};
use crate::foundation::chat::{LanguageModel, ModelChain, ModelError};
use crate::governance::regulator::CorrectionPattern;
use crate::inference::providers::{self, OpenOptions};
use crate::simulation::persona::{PersonaConfig, Speaker, parse};

impl RunPlan {
    /// The most calls of the persona's and of the interlocutor's model.
    ///
    /// # Errors
    /// If the adversary's script is invalid.
    pub fn calls_max(&self) -> Result<[u64; 2], RunError> {
        Ok(self.calls()?.of_run(self.turns, self.rollouts))
    }

    fn calls(&self) -> Result<CallEstimate, RunError> {
        Ok(CallEstimate::new(&self.config, &self.regulator, self.adversary, self.adversary_script.as_deref())?)
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
    permits: Arc<RunPermits>,
    seal: SealRenewal,
}

impl Run {
    /// A new run in the folder `output`. Its models are opened under its permits.
    ///
    /// # Errors
    /// When a model cannot be opened, the configuration cannot be run or the folder cannot be used; a new folder is removed
    /// then.
    pub fn create(plan: &RunPlan, output: &Path, options: &OpenOptions) -> Result<Self, RunError> {
        plan.check()?;
        let now = SystemClock.now();
        let mut options = options.clone();
        options.now = Some(now);
        let (dtypes, devices) = (options.dtypes, options.devices);
        let thinking = &plan.config.models;
        let of_persona = options.with_dtype(dtypes.persona).with_device(devices.persona);
        let of_persona = of_persona.with_thinking(thinking.persona.clone());
        let of_interlocutor = options.with_dtype(dtypes.interlocutor).with_device(devices.interlocutor);
        let of_interlocutor = of_interlocutor.with_thinking(thinking.interlocutor.clone());
        let folder = NewRunFolder::claim(output)?;
        let permits = RunPermits::open(
            folder.path(),
            PermitSettings {
                config: plan.config.digest,
                seed: plan.seed,
                rollouts: plan.rollouts,
                turns: plan.turns,
                loom: env!("CARGO_PKG_VERSION"),
                adversary: plan.adversary,
                persona: plan.persona.clone(),
                interlocutor: plan.interlocutor.clone(),
                calls: plan.calls()?,
            },
        )?;
        let of_persona = of_persona.with_guard(permits.guard(Speaker::Persona));
        let of_interlocutor = of_interlocutor.with_guard(permits.guard(Speaker::Interlocutor));
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
                judge_thinking: thinking.judge.clone(),
                judge_dtype: options.with_dtype(dtypes.judge).dtype.map(|dtype| dtype.to_string()),
            },
            chat_template: options.chat_template,
            regulator: plan.regulator,
            calibration: plan.calibration.clone(),
            fitted_gains: delta::named_file(&plan.config)?,
            seal: None,
        };
        let context = context(&plan.config, &manifest, persona, interlocutor)?;
        let seal = SealRenewal::of_new(folder.path());
        Ok(Self { folder: folder.finish(&manifest, &plan.yaml)?, manifest, context, permits: Arc::new(permits), seal })
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
        let chain = |model: &ModelRef| -> Result<ModelChain, ModelError> {
            let unavailable = |error| ModelError::Unavailable { model: model.spec.clone(), why: format!("{error}") };
            model.spec.parse().map_err(unavailable)
        };
        let settings = RunSettings::of(&manifest);
        let seal = SealRenewal::of(folder.path());
        let permits = RunPermits::open(
            folder.path(),
            PermitSettings {
                config: manifest.config.digest,
                seed: manifest.seed,
                rollouts: manifest.rollouts,
                turns: manifest.turns,
                loom: &manifest.loom,
                adversary: manifest.adversary,
                persona: chain(&manifest.models.persona)?,
                interlocutor: chain(&manifest.models.interlocutor)?,
                calls: CallEstimate::new(&config, &settings.regulation, settings.adversary, settings.script)?,
            },
        )?;
        let open = |role, speaker, device, model: &ModelRef| -> Result<_, RunError> {
            let chain = chain(model)?;
            let dtype = model.dtype.as_deref().map(str::parse).transpose();
            let dtype = dtype.map_err(|why| ModelError::Unavailable { model: model.spec.clone(), why })?;
            let mut options = options.with_device(device).with_guard(permits.guard(speaker));
            options.dtype = dtype;
            options.thinking = model.info.thinking_settings.clone();
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
        let persona = open("the persona's model", Speaker::Persona, options.devices.persona, &manifest.models.persona)?;
        let device = options.devices.interlocutor;
        let interlocutor =
            open("the interlocutor's model", Speaker::Interlocutor, device, &manifest.models.interlocutor)?;
        let context = context(&config, &manifest, persona, interlocutor)?;
        Ok(Self { folder, manifest, context, permits: Arc::new(permits), seal })
    }

    /// Why the run will not be sealed again when it ends; `None` if it will.
    pub fn seal_notice(&self) -> Option<String> {
        self.seal.notice()
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
        let mut waiting = 0..self.manifest.rollouts;
        let mut tasks = JoinSet::new();
        let mut summaries = Vec::new();
        let mut failed = None;
        loop {
            while tasks.len() < parallel.max(1) && failed.is_none() && !stop.is_requested() {
                let Some(rollout) = waiting.next() else { break };
                let head = self.context.new_transcript(&self.manifest, rollout, SystemClock.now().to_string());
                let files = self.folder.rollout(rollout);
                let permits = Arc::clone(&self.permits);
                tasks.spawn(run_rollout(
                    Arc::clone(&self.context),
                    head,
                    files,
                    Arc::clone(observer),
                    (stop.clone(), permits),
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
            let head = self.permits.hand_off()?;
            self.seal.renew(head)?;
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
    (stop, run): (StopFlag, Arc<RunPermits>),
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
        let permits = run.permit_turn(rollout, runner.turns())?;
        let line: TurnLine = runner.turn(permits).await;
        log.append(&line)?;
        run.record_turn(rollout, &line.turn);
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
    run.record_outcome(&transcript);
    files.finish(&transcript, &tokens, |files| run.record_written(files).map_err(RunError::from))?;
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
    let reason = format!("a model gave no reply {failures} times in a row: {}", why.unwrap_or_default());
    Outcome::Stopped { reason, circuit_break: false }
}
