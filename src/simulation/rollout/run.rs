//! A run: its rollouts side by side, each a task of its own, each resumable at every turn.

use std::path::Path;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::delta::{self, DeltaError};
use super::files::{FileError, Found, RolloutFiles, RunFolder, TurnLine, read_transcript};
use super::manifest::{Manifest, RUN_FORMAT, RUN_VERSION, RunModels};
use super::player::{Player, ReplayError};
use super::progress::{Observer, Progress, StopFlag};
use super::stage::{Setting, Stage, model_ref};
use super::steward::Steward;
use super::transcript::{ConfigRef, ModelRef, Outcome, Totals, Transcript};
use crate::foundation::base::limits::{FAILURES_IN_A_ROW_MAX, ROLLOUTS_MAX, TURNS_MAX};
use crate::foundation::base::{Clock, SystemClock};
use crate::foundation::chat::{LanguageModel, ModelChain, ModelError};
use crate::foundation::gate::{LedgerError, Refusal};
use crate::governance::regulator::{Calibration, CalibrationError, CorrectionPattern};
use crate::inference::providers::{self, OpenOptions};
use crate::simulation::persona::{
    AdversaryKind, AssembleError, ConfigErrors, PersonaConfig, Regulation, TrajectoryMode, parse,
};

/// What a run is to be.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// The configuration.
    pub config: Arc<PersonaConfig>,
    /// Its text, kept with the run.
    pub yaml: String,
    /// Where all draws come from.
    pub seed: u64,
    /// How many rollouts.
    pub rollouts: usize,
    /// How many turns each; see [`turns`].
    pub turns: usize,
    /// Who the interlocutor is.
    pub adversary: AdversaryKind,
    /// The text of the adversary's file, in place of the strategies that come with the program.
    pub adversary_script: Option<String>,
    /// The persona's model.
    pub persona: ModelChain,
    /// The other side's: the target's, or the adversary's if there is one.
    pub interlocutor: ModelChain,
    /// The judge's.
    pub judge: ModelChain,
    /// Whether the regulator's decisions are carried out, and how far.
    pub regulator: Regulation,
    /// What makes confidence a probability, if anything does.
    pub calibration: Option<Calibration>,
}

/// Why a run cannot begin, go on, or end. Every message says what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The configuration does not say how long the conversation is.
    #[error("the configuration's trajectory has no length of its own (`mode: {mode}`); say how long with --turns N")]
    NoTurns {
        /// The trajectory's mode.
        mode: &'static str,
    },
    /// A number is out of bounds.
    #[error("{what} must be from 1 to {max} ({limit}), not {value}")]
    Bounds {
        /// Which number.
        what: &'static str,
        /// The largest that is allowed.
        max: usize,
        /// That limit's name.
        limit: &'static str,
        /// What was asked for.
        value: usize,
    },
    /// No prompt can be assembled.
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
    /// The run cannot be resumed: what it depends on has changed.
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
    /// The receipts beside the results cannot be read or written.
    #[error("the run's receipts: {0}")]
    Receipts(String),
    /// The gate said no.
    #[error("{0}")]
    Denied(Refusal),
    /// The record cannot be played again.
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

impl From<LedgerError> for RunError {
    fn from(error: LedgerError) -> Self {
        Self::Receipts(error.0)
    }
}

/// How many turns a run of `config` has, if `asked` on the command line.
///
/// # Errors
/// When neither says so, or the number is out of bounds.
pub fn turns(config: &PersonaConfig, asked: Option<usize>) -> Result<usize, RunError> {
    let (own, mode) = match config.trajectory.mode {
        TrajectoryMode::FixedLength { turns } => (Some(turns), "fixed_length"),
        TrajectoryMode::PhaseGated { turns } => (turns, "phase_gated"),
        TrajectoryMode::OpenEnded => (None, "open_ended"),
    };
    let turns = asked.or(own).ok_or(RunError::NoTurns { mode })?;
    bounded("the number of turns", turns, TURNS_MAX, "TURNS_MAX")
}

fn bounded(what: &'static str, value: usize, max: usize, limit: &'static str) -> Result<usize, RunError> {
    if (1..=max).contains(&value) { Ok(value) } else { Err(RunError::Bounds { what, max, limit, value }) }
}

/// How far a rollout came.
#[derive(Debug, Clone, PartialEq)]
pub struct RolloutSummary {
    /// Which.
    pub rollout: usize,
    /// [`Outcome::Unfinished`] when the run was interrupted.
    pub outcome: Outcome,
    /// Sums over its turns.
    pub totals: Totals,
    /// What the persona was corrected for again and again; empty for a rollout that was finished before.
    pub learned: Vec<CorrectionPattern>,
}

/// A run, ready to be played.
pub struct Run {
    folder: RunFolder,
    manifest: Manifest,
    stage: Arc<Stage>,
}

impl Run {
    /// A new run in the folder `output`.
    ///
    /// # Errors
    /// When a model, the configuration or the folder stands against it; nothing has been written then.
    pub fn create(plan: &RunPlan, output: &Path, options: &OpenOptions) -> Result<Self, RunError> {
        bounded("the number of rollouts", plan.rollouts, ROLLOUTS_MAX, "ROLLOUTS_MAX")?;
        bounded("the number of turns", plan.turns, TURNS_MAX, "TURNS_MAX")?;
        let now = SystemClock.now();
        let mut options = options.clone();
        options.now = Some(now);
        let (dtypes, devices) = (options.dtypes, options.devices);
        let of_persona = options.at(dtypes.persona).on(devices.persona);
        let of_interlocutor = options.at(dtypes.interlocutor).on(devices.interlocutor);
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
                judge_dtype: options.at(dtypes.judge).dtype.map(|dtype| dtype.to_string()),
            },
            chat_template: options.chat_template,
            regulator: plan.regulator,
            calibration: plan.calibration.clone(),
            fitted_gains: delta::named_file(&plan.config)?,
        };
        let stage = stage(&plan.config, &manifest, persona, interlocutor)?;
        Ok(Self { folder: RunFolder::create(output, &manifest, &plan.yaml)?, manifest, stage })
    }

    /// The run in the folder `path`, to go on with. Of `options`, the manifest decides the chat template and the dtypes.
    ///
    /// # Errors
    /// When there is no run, or when something that it depends on has changed.
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
            let mut options = options.on(device);
            options.dtype = dtype;
            let opened = providers::open(&chain, &options)?;
            let digest = |model: &ModelRef| model.info.digest.map_or("unknown".to_owned(), |digest| digest.short());
            let now = model_ref(&chain, dtype, opened.as_ref());
            let hint = "use the same weights, tokenizer and settings, or begin a new run";
            changed(role, digest(model), digest(&now), hint)?;
            let place = |model: &ModelRef| model.info.device.clone().unwrap_or_else(|| "none here".to_owned());
            let where_hint = "give the same --device as then, or begin a new run";
            changed("the device of a model", place(model), place(&now), where_hint)?;
            changed(role, format!("{model:?}"), format!("{now:?}"), hint)?;
            Ok(opened)
        };
        let persona = open("the persona's model", options.devices.persona, &manifest.models.persona)?;
        let device = options.devices.interlocutor;
        let interlocutor = open("the interlocutor's model", device, &manifest.models.interlocutor)?;
        let stage = stage(&config, &manifest, persona, interlocutor)?;
        Ok(Self { folder, manifest, stage })
    }

    /// The run's folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// What the run is.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Plays every rollout that is not finished, `parallel` at a time; what they say does not depend on it.
    ///
    /// # Errors
    /// The first error of a rollout; the others end after the turn under way, and all can be resumed.
    pub async fn play(
        &self,
        parallel: usize,
        observer: &Observer,
        stop: &StopFlag,
    ) -> Result<Vec<RolloutSummary>, RunError> {
        let steward = Arc::new(Steward::open(self.folder.path(), &self.manifest)?);
        let mut waiting = 0..self.manifest.rollouts;
        let mut tasks = JoinSet::new();
        let mut summaries = Vec::new();
        let mut failed = None;
        loop {
            while tasks.len() < parallel.max(1) && failed.is_none() && !stop.asked() {
                let Some(rollout) = waiting.next() else { break };
                let head = self.stage.head(&self.manifest, rollout, SystemClock.now().to_string());
                let files = self.folder.rollout(rollout);
                let steward = Arc::clone(&steward);
                tasks.spawn(play(Arc::clone(&self.stage), head, files, Arc::clone(observer), (stop.clone(), steward)));
            }
            match tasks.join_next().await {
                None => break,
                Some(Ok(Ok(summary))) => summaries.push(summary),
                Some(Ok(Err(error))) => {
                    stop.ask();
                    failed.get_or_insert(error);
                }
                Some(Err(lost)) if lost.is_panic() => std::panic::resume_unwind(lost.into_panic()),
                // Tasks are never cancelled.
                Some(Err(_)) => {}
            }
        }
        if failed.is_none() {
            steward.hand_off()?;
        }
        summaries.sort_by_key(|summary| summary.rollout);
        failed.map_or(Ok(summaries), Err)
    }
}

fn stage(
    config: &Arc<PersonaConfig>,
    manifest: &Manifest,
    persona: Arc<dyn LanguageModel>,
    interlocutor: Arc<dyn LanguageModel>,
) -> Result<Arc<Stage>, RunError> {
    Stage::new(Arc::clone(config), Setting::of(manifest), persona, interlocutor).map(Arc::new)
}

/// One rollout, from where it stands to its end.
async fn play(
    stage: Arc<Stage>,
    head: Transcript,
    files: RolloutFiles,
    observer: Observer,
    (stop, steward): (StopFlag, Arc<Steward>),
) -> Result<RolloutSummary, RunError> {
    let rollout = head.run.rollout;
    let mut transcript = head;
    let mut player = Player::new(stage, rollout);
    let mut tokens = Vec::new();
    let mut log = match files.find()? {
        Found::Finished(path) => {
            let Transcript { config, run, models, outcome, totals, .. } = read_transcript(&path)?;
            if (&config, &run, &models) != (&transcript.config, &transcript.run, &transcript.models) {
                let why = "it belongs to another run than run.json states; move it away to play this rollout again";
                return Err(files.corrupt(1, why).into());
            }
            return Ok(RolloutSummary { rollout, outcome, totals, learned: Vec::new() });
        }
        Found::Nothing => files.begin(&transcript)?,
        Found::Begun { head, turns, torn } => {
            transcript.created_at.clone_from(&head.created_at);
            if *head != transcript {
                let why =
                    "it was begun with other settings than run.json states; move it away to run this rollout again";
                return Err(files.corrupt(1, why).into());
            }
            for line in turns {
                player.replay(&line).await.map_err(|source| RunError::Replay { rollout, source })?;
                transcript.turns.push(line.turn);
                tokens.extend(line.tokens);
            }
            if torn {
                let text = format!("a line torn by a crash was cut away; turn {} is played again", player.turns());
                observer(Progress::Notice { rollout, text });
            }
            files.go_on()?
        }
    };
    observer(Progress::Begun { rollout, turns: player.turns() });
    while player.turns() < transcript.run.turns_planned
        && player.failures_in_a_row() < FAILURES_IN_A_ROW_MAX
        && player.broken().is_none()
    {
        if stop.asked() {
            let totals = Totals::of(&transcript.turns);
            return Ok(RolloutSummary { rollout, outcome: Outcome::Unfinished, totals, learned: Vec::new() });
        }
        let permitted = steward.permit(rollout, player.turns())?;
        let line: TurnLine = player.turn(permitted).await?;
        log.line(&line)?;
        steward.played(rollout, &line.turn);
        // A model that answers at once never waits; without this nobody else, a Ctrl-C for one, would get a turn.
        tokio::task::yield_now().await;
        observer(Progress::Turn {
            rollout,
            turns: player.turns(),
            tokens: line.turn.persona.usage.tokens_out + line.turn.interlocutor.usage.tokens_out,
            events: line.turn.monitor_events.len(),
        });
        transcript.turns.push(line.turn);
        tokens.extend(line.tokens);
    }
    transcript.outcome = outcome(&transcript, &player);
    transcript.totals = Totals::of(&transcript.turns);
    steward.ended(&transcript);
    files.finish(&transcript, &tokens)?;
    observer(Progress::Ended { rollout, outcome: transcript.outcome.clone() });
    Ok(RolloutSummary { rollout, outcome: transcript.outcome, totals: transcript.totals, learned: player.learned() })
}

fn outcome(transcript: &Transcript, player: &Player) -> Outcome {
    if let Some(reason) = player.broken() {
        return Outcome::Stopped { reason: format!("circuit break: {reason}"), circuit_break: true };
    }
    let failures = player.failures_in_a_row();
    if failures < FAILURES_IN_A_ROW_MAX {
        return Outcome::Complete;
    }
    let last = transcript.turns.iter().rev().flat_map(|turn| [&turn.interlocutor, &turn.persona]);
    let why = last.filter_map(|utterance| utterance.failure.as_ref()).map(|failure| failure.why.as_str()).next();
    let reason = format!("{failures} messages in a row got no reply: {}", why.unwrap_or_default());
    Outcome::Stopped { reason, circuit_break: false }
}
