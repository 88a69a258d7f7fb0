//! `loom score`: scores of transcripts, taken by judges and by the persona's own model. What it tells is worded in
//! `score/show.rs`.

mod show;

use std::collections::{BTreeSet, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use futures_util::StreamExt as _;
use futures_util::stream;
use jiff::Timestamp;

use self::show::{bar, outdated, tell};
use super::device::{DeviceArg, of_role};
use super::judge::{self, check_of};
use super::{Exit, Failure, Terminal, remote};
use crate::app::watch::Watch;
use crate::foundation::base::limits::ROLLOUTS_MAX;
use crate::foundation::chat::{ModelChain, ModelSpec, Role};
use crate::governance::mood::Mood;
use crate::inference::engine::DeviceChoice;
use crate::inference::providers::{self, OpenOptions, Roles};
use crate::simulation::judge::judged::Judge;
use crate::simulation::judge::likelihood::Extent;
use crate::simulation::judge::scoring::{Scoring, ScoringError, begun, transcripts};
use crate::simulation::persona;
use crate::simulation::rollout::{Manifest, ScoreMethod};

/// Score transcripts: by a judge, and by the likelihood of what was said
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom score results/anna                          the run's own judge
  loom score results/anna --judge-model local:qwen2.5-3b --judge-window 4
  loom score results/anna --judge-model none --likelihood full
  loom score old/run_17.json --config marcus.yaml  a mania-bench transcript
  loom score talks.jsonl --persona user            lines of OpenAI messages

Scores are kept in the transcript; those of files that loom did not write, in FILE.scores.json beside them. What is there \
already is not taken again, so an interrupted `loom score` goes on where it was. Each score is defined in docs/SCORES.md.

Exit codes: 0 all files were scored, 2 a file could not be (the others were), 3 bad config, 5 the judge cannot be asked.")]
pub(super) struct Args {
    /// What `loom run` or `loom sweep` wrote, or transcripts
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    how: How,
    /// The configuration of transcripts that loom did not write
    #[arg(long, value_name = "CONFIG")]
    config: Option<PathBuf>,
    /// The persona's role in lines of messages
    #[arg(long, value_name = "ROLE", value_enum, default_value_t = Persona::Assistant)]
    persona: Persona,
    /// Take scores again that are there
    #[arg(long)]
    again: bool,
    /// The model that judges; `none` for no judge, the run's own if not given
    #[arg(long, value_name = "MODEL")]
    judge_model: Option<JudgeModel>,
    /// How many transcripts at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = super::at_least_one)]
    parallel: usize,
    /// Threads for the arithmetic; all cores if not given
    #[arg(long, value_name = "N", value_parser = super::at_least_one)]
    threads: Option<usize>,
    #[command(flatten)]
    device: DeviceArg,
    /// The same for the persona's model alone, whose likelihoods are taken
    #[arg(long, value_name = "DEVICE")]
    persona_device: Option<DeviceChoice>,
    /// The same for the judge's
    #[arg(long, value_name = "DEVICE")]
    judge_device: Option<DeviceChoice>,
    #[command(flatten)]
    remote: remote::Flags,
}

/// What `loom run --score` has in common with `loom score`.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct How {
    /// How many turns the judge reads; the config's `judge_window` if not given
    #[arg(long, value_name = "N", value_parser = super::at_least_one)]
    judge_window: Option<usize>,
    /// How many likelihood scores are taken
    #[arg(long, value_name = "SET", value_enum, default_value_t)]
    likelihood: Likelihood,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Likelihood {
    /// None
    Off,
    /// Those of every turn, and the others on one turn in ten
    #[default]
    Default,
    /// All of them on every turn
    Full,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Persona {
    /// The persona speaks as `assistant`
    Assistant,
    /// The persona speaks as `user`
    User,
}

/// A model, or none.
#[derive(Debug, Clone)]
pub(super) enum JudgeModel {
    None,
    Model(ModelChain),
}

impl std::str::FromStr for JudgeModel {
    type Err = crate::foundation::chat::ModelSpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" { Ok(Self::None) } else { text.parse().map(Self::Model) }
    }
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let files = self.paths.iter().map(|path| transcripts(path)).collect::<Result<Vec<_>, _>>();
        let mut files: Vec<PathBuf> = files.map_err(failure)?.into_iter().flatten().collect();
        let mut seen = HashSet::new();
        files.retain(|file| seen.insert(file.canonicalize().unwrap_or_else(|_| file.clone())));
        let config = self.config.as_ref().map(|path| persona::load(path).map(Arc::new)).transpose()?;
        let mut options = OpenOptions::new(self.threads, None);
        self.remote.set(&mut options);
        options.device = self.device.decide(terminal)?;
        options.devices = Roles {
            persona: of_role(self.persona_device, "The persona's model runs", terminal)?,
            interlocutor: None,
            judge: of_role(self.judge_device, "The judge's model runs", terminal)?,
        };
        let judge = match &self.judge_model {
            Some(JudgeModel::None) => None,
            Some(JudgeModel::Model(chain)) => Some((chain.clone(), options.on(options.devices.judge))),
            None => Some(runs_judge(&files, &options)?),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            let mut desks: Vec<Desk> = Vec::new();
            for (folder, date, files) in by_run(files) {
                let watch = watch(judge.as_ref().map(|(chain, _)| chain), folder.as_deref())?;
                let (judge, known) = match &judge {
                    None => (None, None),
                    Some((chain, options)) => {
                        // A judge that asks for the date is told the one of the run that it judges, and is then another.
                        let model = watch.model(chain, &options.dated(Some(date)))?;
                        let tested = desks.last().filter(|_| !providers::is_dated(&*model));
                        let tested = tested.map(|desk| desk.scoring.known.clone());
                        let judge = Judge::new(model).await?;
                        let known = match tested {
                            Some(known) => known,
                            None => known(terminal, &judge).await?,
                        };
                        (Some(judge), known)
                    }
                };
                let scoring = Scoring {
                    judge,
                    known,
                    window: self.how.judge_window,
                    extent: self.how.extent(),
                    again: self.again,
                    config: config.clone(),
                    persona: match self.persona {
                        Persona::Assistant => Role::Assistant,
                        Persona::User => Role::User,
                    },
                    options: watch.over(options.clone()),
                };
                desks.push(Desk { watch, scoring, files });
            }
            let (scored, result) = all(terminal, desks, self.parallel.min(ROLLOUTS_MAX)).await?;
            outdated(terminal, &scored)?;
            result
        })?;
        Ok(Exit::Ok)
    }
}

/// The judge of the runs that `files` are of; of them there must be one.
fn runs_judge(files: &[PathBuf], options: &OpenOptions) -> Result<(ModelChain, OpenOptions), Failure> {
    let mut folders: Vec<&Path> = files.iter().filter_map(|file| file.parent()).collect();
    folders.dedup();
    let mut manifests = folders.into_iter().filter_map(manifest_of);
    let Some(first) = manifests.next() else {
        return Ok((ModelSpec::Bundled.into(), options.on(options.devices.judge)));
    };
    let how = |manifest: &Manifest| {
        let models = &manifest.models;
        (models.judge.clone(), models.judge_dtype.clone(), manifest.chat_template.clone())
    };
    match manifests.find(|other| how(other) != how(&first)) {
        None => judge_of(&first, options),
        Some(other) => Err(Failure::usage(format!(
            "these runs were to have different judges ({} and {}, or the same one opened otherwise): score them one by \
             one, or name one with --judge-model",
            first.models.judge, other.models.judge
        ))),
    }
}

impl How {
    fn extent(&self) -> Extent {
        match self.likelihood {
            Likelihood::Off => Extent::Off,
            Likelihood::Default => Extent::Default,
            Likelihood::Full => Extent::Full,
        }
    }
}

/// Scores a finished run: what `loom score FOLDER` does.
pub(super) async fn run(
    terminal: &mut Terminal,
    folder: &Path,
    manifest: &Manifest,
    how: &How,
    options: &OpenOptions,
    parallel: usize,
) -> Result<(), Failure> {
    let (chain, of_judge) = judge_of(manifest, options)?;
    let watch = watch(Some(&chain), Some(folder))?;
    let judge = Judge::new(watch.model(&chain, &of_judge)?).await?;
    let known = known(terminal, &judge).await?;
    let scoring = Scoring {
        judge: Some(judge),
        known,
        window: how.judge_window,
        extent: how.extent(),
        again: false,
        config: None,
        persona: Role::Assistant,
        options: watch.over(options.clone()),
    };
    let files = transcripts(folder).map_err(failure)?;
    all(terminal, vec![Desk { watch, scoring, files }], parallel).await?.1
}

/// What is known of a judge. One that runs here is tested now if it never was; a hosted one costs money, so that is
/// left to `loom judge check`.
async fn known(
    terminal: &mut Terminal,
    judge: &Judge,
) -> Result<Option<crate::simulation::judge::judged::Check>, Failure> {
    let test = judge.method() == ScoreMethod::LogprobRating && judge.info().digest.is_some();
    let known = check_of(judge, !test, false).await?;
    match &known {
        Some(check) => judge::warn(terminal, check)?,
        None => writeln!(
            terminal.err,
            "The judge `{}` has not been tested; do it with: loom judge check --judge-model {0}",
            judge.info().name
        )?,
    }
    Ok(known)
}

/// The files of one run, or those of none, and what stands before the models that score them.
struct Desk {
    watch: Watch,
    scoring: Scoring,
    files: Vec<PathBuf>,
}

/// The files by the run that they are of and its date, in order; the receipts of scores lie beside a run's own.
fn by_run(files: Vec<PathBuf>) -> Vec<(Option<PathBuf>, Timestamp, Vec<PathBuf>)> {
    let mut found: Vec<(Option<PathBuf>, Timestamp, Vec<PathBuf>)> = Vec::new();
    for file in files {
        let here = |folder: &Path| if folder == Path::new("") { Path::new(".") } else { folder }.to_owned();
        let run = file.parent().map(here).filter(|folder| manifest_of(folder).is_some());
        let date = begun(&file);
        match found.iter_mut().find(|(folder, on, _)| *folder == run && *on == date) {
            Some((.., files)) => files.push(file),
            None => found.push((run, date, vec![file])),
        }
    }
    found
}

/// The watch of scoring, in SKEPTICAL. The judge that was named, or that the run named, is the grant for its host, and the
/// model that the run was made with for its own; a transcript that names another reaches nobody.
fn watch(judge: Option<&ModelChain>, run: Option<&Path>) -> Result<Watch, Failure> {
    let persona =
        run.and_then(manifest_of).and_then(|manifest| manifest.models.persona.spec.parse::<ModelChain>().ok());
    let chains: Vec<&ModelChain> = judge.into_iter().chain(&persona).collect();
    Ok(Watch::models("score", Mood::Skeptical, &chains, run)?)
}

/// Scores everything. The folders in which scores were taken come back, and whether all files could be scored.
async fn all(
    terminal: &mut Terminal,
    desks: Vec<Desk>,
    parallel: usize,
) -> Result<(BTreeSet<PathBuf>, Result<(), Failure>), Failure> {
    let work = desks.iter().flat_map(|desk| desk.files.iter().map(|path| desk.scoring.score(path)));
    let mut scored = stream::iter(work).buffered(parallel);
    let mut missing: Vec<(String, String)> = Vec::new();
    let mut failed = Vec::new();
    let mut folders = BTreeSet::new();
    let bar = bar(desks.iter().map(|desk| desk.files.len()).sum());
    while let Some(one) = scored.next().await {
        let one = match one {
            Ok(one) => one,
            // The others are scored all the same.
            Err(error) => {
                bar.inc(1);
                failed.push(error);
                continue;
            }
        };
        bar.suspend(|| tell(terminal, &one))?;
        bar.inc(1);
        folders.extend(one.path.parent().filter(|_| one.taken > 0).map(Path::to_owned));
        let new: Vec<_> = one.missing.into_iter().filter(|reason| !missing.contains(reason)).collect();
        missing.extend(new);
    }
    drop(scored);
    bar.finish_and_clear();
    for desk in desks {
        desk.watch.close()?;
    }
    for (id, why) in missing {
        writeln!(terminal.err, "{id}: {why}")?;
    }
    let last = failed.pop();
    for error in failed {
        writeln!(terminal.err, "{error}")?;
    }
    Ok((folders, last.map_or(Ok(()), |error| Err(failure(error)))))
}

/// The manifest of the run in `folder`.
fn manifest_of(folder: &Path) -> Option<Manifest> {
    serde_json::from_str(&std::fs::read_to_string(folder.join("run.json")).ok()?).ok()
}

/// The judge that a run was to have, and how it is opened: in its number type, with the run's chat template and its date,
/// as if it had never ended.
fn judge_of(manifest: &Manifest, options: &OpenOptions) -> Result<(ModelChain, OpenOptions), Failure> {
    let chain = manifest.models.judge.parse().map_err(|error| Failure::usage(format!("{error}")))?;
    let dtype = manifest.models.judge_dtype.as_deref().map(str::parse).transpose();
    let dtype = dtype.map_err(|why: String| Failure::usage(why))?;
    let options = match &manifest.chat_template {
        Some(template) => options.with_template(template.clone()),
        None => options.clone(),
    };
    let now = manifest.created_at.parse().ok();
    Ok((chain, options.at(dtype).on(options.devices.judge).dated(now)))
}

fn failure(error: ScoringError) -> Failure {
    match error {
        ScoringError::Config(errors) => Failure::Config(errors),
        error => Failure::usage(error.to_string()),
    }
}
