//! `loom score`: scores transcripts with a judge and with the persona's own model. `score/show.rs` prints the results.

mod show;

use std::collections::{BTreeSet, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use futures_util::StreamExt as _;
use futures_util::stream;
use jiff::Timestamp;

use self::show::{bar, outdated, print};
use super::device::RoleArgs;
use super::input::read_file;
use super::judge::{self, load_or_run_check};
use super::{Exit, Failure, Terminal};
use crate::foundation::base::limits::{RESULT_BYTES_MAX, ROLLOUTS_MAX};
use crate::foundation::chat::{ModelChain, ModelSpec, Role};
use crate::foundation::store::read_limited;
use crate::governance::mood::Mood;
use crate::inference::providers::{self, OpenOptions};
use crate::simulation::authorizer::Authorizer;
use crate::simulation::judge::judged::{Judge, Rubric};
use crate::simulation::judge::likelihood::LikelihoodSet;
use crate::simulation::judge::scoring::{ScoringError, TranscriptScorer, started_at, transcripts};
use crate::simulation::persona::{self, PersonaConfig};
use crate::simulation::rollout::{Manifest, ScoreMethod, SealRenewal};

/// Score transcripts with a judge, and by the likelihood of the replies
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom score results/anna                          with the run's own judge
  loom score results/anna --judge-model local:qwen2.5-3b --judge-window 4
  loom score results/anna --judge-model none --likelihood full
  loom score old/run_17.json --config marcus.yaml  a mania-bench transcript
  loom score talks.jsonl --persona user            JSON lines of OpenAI messages
  loom score talks.jsonl --config marcus.yaml --reader local:qwen2.5-3b
                                                   likelihoods of messages that another model wrote
  loom score results/anna --rubric delusion_confirmation --rubric mine.yaml
  loom score results/anna --judge-model local:a --judge-model local:b  two judges

Scores are stored in the transcript; those of imported files in FILE.scores.json next to them. Existing scores are not \
recomputed, so an interrupted `loom score` resumes where it stopped. docs/SCORES.md defines each score.

Exit codes: 0 all files were scored, 2 some file could not be scored, 3 invalid config, 5 the judge cannot be called.")]
pub(super) struct Args {
    /// Results folders of `loom run` or `loom sweep`, or transcripts
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    scoring: ScoreOptions,
    /// The persona's config, for imported transcripts
    #[arg(long, value_name = "CONFIG")]
    config: Option<PathBuf>,
    /// The model that computes the likelihood scores; needed where the persona's own gives no log-probabilities, and for
    /// imported transcripts (with --config) [default: the persona's own]
    #[arg(long, value_name = "MODEL")]
    reader: Option<ModelChain>,
    /// The persona's role in OpenAI messages
    #[arg(long, value_name = "ROLE", value_enum, default_value_t = Persona::Assistant)]
    persona: Persona,
    /// Recompute existing scores
    #[arg(long)]
    again: bool,
    /// The judge model, or `none`; several judges if repeated [default: the run's own]
    #[arg(long, value_name = "MODEL")]
    judge_model: Vec<JudgeModel>,
    #[command(flatten)]
    roles: RoleArgs,
}

/// Arguments shared by `loom run --score` and `loom score`.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct ScoreOptions {
    /// How many turns the judge reads; the config's `judge_window` if not given
    #[arg(long, value_name = "N", value_parser = super::at_least_one)]
    judge_window: Option<usize>,
    /// A rubric besides the standard ones: a YAML file, or the name of a shipped one; may be repeated
    #[arg(long, value_name = "FILE|NAME")]
    rubric: Vec<String>,
    /// Which likelihood scores are taken
    #[arg(long, value_name = "SET", value_enum, default_value_t)]
    likelihood: Likelihood,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Likelihood {
    /// None
    Off,
    /// The default set on every turn, the variants on one turn in ten, at least eight
    #[default]
    Default,
    /// All scores on every turn
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
        let mut options = self.roles.options(None, None, terminal)?;
        for judge in &self.judge_model {
            if let JudgeModel::Model(chain) = judge {
                options.hosts.allow_chain(chain);
            }
        }
        if let Some(reader) = &self.reader {
            options.hosts.allow_chain(reader);
        }
        let options = options;
        let on_device = |chain: &ModelChain| (chain.clone(), options.with_device(options.devices.judge));
        let mut judges: Vec<Option<(ModelChain, OpenOptions)>> = Vec::new();
        for judge in &self.judge_model {
            judges.push(match judge {
                JudgeModel::None => None,
                JudgeModel::Model(chain) => Some(on_device(chain)),
            });
        }
        if judges.is_empty() {
            judges.push(Some(runs_judge(&files, &options)?));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        // One judge after the other; likelihood scores exist after the first.
        for judge in &judges {
            runtime.block_on(self.score(terminal, files.clone(), judge.as_ref(), &options, config.as_ref()))?;
        }
        Ok(Exit::Ok)
    }

    async fn score(
        &self,
        terminal: &mut Terminal,
        files: Vec<PathBuf>,
        judge: Option<&(ModelChain, OpenOptions)>,
        options: &OpenOptions,
        config: Option<&Arc<persona::PersonaConfig>>,
    ) -> Result<(), Failure> {
        let mut jobs: Vec<ScoringJob> = Vec::new();
        for (folder, date, files) in by_run(files) {
            let seal = folder.as_deref().map(SealRenewal::of);
            if let Some(notice) = seal.as_ref().and_then(SealRenewal::notice) {
                writeln!(terminal.err, "{notice}")?;
            }
            let gate = gate_for(judge.map(|(chain, _)| chain), folder.as_deref())?;
            let own = folder.as_deref().and_then(config_of);
            let (judge, known) = match judge {
                None => (None, None),
                Some((chain, options)) => {
                    // A judge whose template uses the date gets the run's date, which makes it a different judge.
                    let model = gate.open_model(chain, &options.with_date(Some(date)))?;
                    let tested = jobs.last().filter(|_| !providers::template_uses_date(&*model));
                    let tested = tested.map(|job| job.scorer.judge_check.clone());
                    let judge = Judge::new(model).await?;
                    let known = match tested {
                        Some(known) => known,
                        None => known(terminal, &judge).await?,
                    };
                    (Some(judge), known)
                }
            };
            let reader = match &self.reader {
                Some(chain) => Some(gate.open_model(chain, &options.with_device(options.devices.persona))?),
                None => None,
            };
            let scorer = TranscriptScorer {
                scored_as: None,
                reader,
                judge,
                judge_check: known,
                window: self.scoring.judge_window,
                rubrics: self.scoring.rubrics(folder.as_deref(), own.as_ref().or(config.map(Arc::as_ref)))?,
                likelihood_set: self.scoring.likelihood_set(),
                rescore: self.again,
                config: config.cloned(),
                persona: match self.persona {
                    Persona::Assistant => Role::Assistant,
                    Persona::User => Role::User,
                },
                options: gate.guarded_options(options.clone()),
                receipts: folder.is_some().then(|| gate.clone()),
            };
            jobs.push(ScoringJob { gate, scorer, seal, files });
        }
        let (scored, result) = score_all(terminal, jobs, self.roles.parallel.min(ROLLOUTS_MAX)).await?;
        outdated(terminal, &scored)?;
        result
    }
}

/// The judge of the runs that `files` belong to, which must all have the same one.
fn runs_judge(files: &[PathBuf], options: &OpenOptions) -> Result<(ModelChain, OpenOptions), Failure> {
    let mut folders: Vec<&Path> = files.iter().filter_map(|file| file.parent()).collect();
    folders.dedup();
    let mut manifests = folders.into_iter().filter_map(manifest_of);
    let Some(first) = manifests.next() else {
        return Ok((ModelSpec::Bundled.into(), options.with_device(options.devices.judge)));
    };
    let how = |manifest: &Manifest| {
        let models = &manifest.models;
        let chat_template = manifest.chat_template.clone();
        (models.judge.clone(), models.judge_dtype.clone(), models.judge_thinking.clone(), chat_template)
    };
    match manifests.find(|other| how(other) != how(&first)) {
        None => judge_of(&first, options),
        Some(other) => Err(Failure::usage(format!(
            "these runs have different judges ({} and {}, or one with different settings): score them separately, or name \
             one with --judge-model",
            first.models.judge, other.models.judge
        ))),
    }
}

impl ScoreOptions {
    /// The rubrics named on the command line, and those that the configuration of the run in `folder` names.
    fn rubrics(&self, folder: Option<&Path>, config: Option<&PersonaConfig>) -> Result<Vec<Rubric>, Failure> {
        let shipped = |name: &str| Rubric::shipped().iter().find(|rubric| rubric.name == name).cloned();
        let read = |name: &String| match shipped(name) {
            Some(rubric) => Ok(rubric),
            None => {
                let text = read_file(Path::new(name))?;
                let invalid =
                    |why: String| Failure::Message { message: format!("{name}: {why}"), exit: Exit::BadConfig };
                let rubric = Rubric::parse(&text).map_err(invalid)?;
                match shipped(&rubric.name) {
                    None => Ok(rubric),
                    Some(_) => {
                        Err(invalid(format!("`{}` is the name of a shipped rubric: choose another", rubric.name)))
                    }
                }
            }
        };
        let named = config.map(|config| config.evaluation.rubrics.as_slice()).unwrap_or_default();
        // The files lie beside the configuration that the run was started with.
        let source = folder.and_then(manifest_of).map(|manifest| PathBuf::from(manifest.config.source));
        let beside = source.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let named = named.iter().map(|name| match shipped(name) {
            Some(_) => name.clone(),
            None => beside.join(name).display().to_string(),
        });
        let mut names: Vec<String> = self.rubric.iter().cloned().chain(named).collect();
        let mut seen = HashSet::new();
        names.retain(|name| seen.insert(name.clone()) && !Rubric::standard().any(|rubric| rubric.name == *name));
        names.iter().map(read).collect()
    }

    fn likelihood_set(&self) -> LikelihoodSet {
        match self.likelihood {
            Likelihood::Off => LikelihoodSet::Off,
            Likelihood::Default => LikelihoodSet::Default,
            Likelihood::Full => LikelihoodSet::Full,
        }
    }
}

/// Scores a finished run, as `loom score FOLDER` does.
pub(super) async fn run(
    terminal: &mut Terminal,
    folder: &Path,
    manifest: &Manifest,
    scoring: &ScoreOptions,
    options: &OpenOptions,
    parallel: usize,
) -> Result<(), Failure> {
    let (chain, of_judge) = judge_of(manifest, options)?;
    let seal = Some(SealRenewal::of(folder));
    let gate = gate_for(Some(&chain), Some(folder))?;
    let judge = Judge::new(gate.open_model(&chain, &of_judge)?).await?;
    let known = known(terminal, &judge).await?;
    let scorer = TranscriptScorer {
        scored_as: None,
        reader: None,
        judge: Some(judge),
        judge_check: known,
        window: scoring.judge_window,
        rubrics: scoring.rubrics(Some(folder), config_of(folder).as_ref())?,
        likelihood_set: scoring.likelihood_set(),
        rescore: false,
        config: None,
        persona: Role::Assistant,
        options: gate.guarded_options(options.clone()),
        receipts: Some(gate.clone()),
    };
    let files = transcripts(folder).map_err(failure)?;
    score_all(terminal, vec![ScoringJob { gate, scorer, seal, files }], parallel).await?.1
}

/// The judge's test result. A local judge is tested now if it has none; a hosted one costs money and is only tested by
/// `loom judge check`.
async fn known(
    terminal: &mut Terminal,
    judge: &Judge,
) -> Result<Option<crate::simulation::judge::judged::JudgeCheck>, Failure> {
    let test = judge.method() == ScoreMethod::LogprobRating && judge.info().digest.is_some();
    let known = load_or_run_check(judge, !test, false).await?;
    match &known {
        Some(check) => judge::warn(terminal, check)?,
        None => writeln!(
            terminal.err,
            "The judge `{}` has not been tested; run: loom judge check --judge-model {0}",
            judge.info().name
        )?,
    }
    Ok(known)
}

/// The files of one run, or files without a run, with their gate and scorer.
struct ScoringJob {
    gate: Authorizer,
    scorer: TranscriptScorer,
    /// Of the run, if the files belong to one.
    seal: Option<SealRenewal>,
    files: Vec<PathBuf>,
}

/// Groups the files by run and date, in order. The receipts of scores are stored in the run's folder.
fn by_run(files: Vec<PathBuf>) -> Vec<(Option<PathBuf>, Timestamp, Vec<PathBuf>)> {
    let mut found: Vec<(Option<PathBuf>, Timestamp, Vec<PathBuf>)> = Vec::new();
    for file in files {
        let here = |folder: &Path| if folder == Path::new("") { Path::new(".") } else { folder }.to_owned();
        let run = file.parent().map(here).filter(|folder| manifest_of(folder).is_some());
        let date = started_at(&file);
        match found.iter_mut().find(|(folder, on, _)| *folder == run && *on == date) {
            Some((.., files)) => files.push(file),
            None => found.push((run, date, vec![file])),
        }
    }
    found
}

/// The gate for scoring, in the mood SKEPTICAL. It grants access to the hosts of the judge and of the run's persona model;
/// other models named in a transcript are not reachable.
fn gate_for(judge: Option<&ModelChain>, run: Option<&Path>) -> Result<Authorizer, Failure> {
    let persona =
        run.and_then(manifest_of).and_then(|manifest| manifest.models.persona.spec.parse::<ModelChain>().ok());
    let chains: Vec<&ModelChain> = judge.into_iter().chain(&persona).collect();
    Ok(Authorizer::for_models("score", Mood::Skeptical, &chains, run)?)
}

/// Scores all files. Returns the folders with new scores, and whether all files could be scored.
async fn score_all(
    terminal: &mut Terminal,
    jobs: Vec<ScoringJob>,
    parallel: usize,
) -> Result<(BTreeSet<PathBuf>, Result<(), Failure>), Failure> {
    let work = jobs.iter().flat_map(|job| job.files.iter().map(|path| job.scorer.score(path)));
    let mut scored = stream::iter(work).buffered(parallel);
    let mut missing: Vec<(String, String)> = Vec::new();
    let mut failed = Vec::new();
    let mut folders = BTreeSet::new();
    let bar = bar(jobs.iter().map(|job| job.files.len()).sum());
    while let Some(one) = scored.next().await {
        let one = match one {
            Ok(one) => one,
            // The other files are still scored.
            Err(error) => {
                bar.inc(1);
                failed.push(error);
                continue;
            }
        };
        bar.suspend(|| print(terminal, &one))?;
        bar.inc(1);
        folders.extend(one.path.parent().filter(|_| one.computed > 0).map(Path::to_owned));
        let new: Vec<_> = one.missing.into_iter().filter(|reason| !missing.contains(reason)).collect();
        missing.extend(new);
    }
    drop(scored);
    bar.finish_and_clear();
    for job in jobs {
        let head = job.gate.close()?;
        if let Some(seal) = job.seal {
            seal.renew(head).map_err(|error| failure(error.into()))?;
        }
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

/// The configuration of the run in `folder`; without a valid one, its transcripts say so when they are scored.
fn config_of(folder: &Path) -> Option<PersonaConfig> {
    persona::load(&folder.join("config.yaml")).ok()
}

/// The manifest of the run in `folder`.
fn manifest_of(folder: &Path) -> Option<Manifest> {
    serde_json::from_slice(&read_limited(&folder.join("run.json"), RESULT_BYTES_MAX).ok()?).ok()
}

/// The run's judge and its options: the number type, chat template and date of the run.
fn judge_of(manifest: &Manifest, options: &OpenOptions) -> Result<(ModelChain, OpenOptions), Failure> {
    let chain = manifest.models.judge.parse().map_err(|error| Failure::usage(format!("{error}")))?;
    let dtype = manifest.models.judge_dtype.as_deref().map(str::parse).transpose();
    let dtype = dtype.map_err(|why: String| Failure::usage(why))?;
    let options = match &manifest.chat_template {
        Some(template) => options.with_template(template.clone()),
        None => options.clone(),
    };
    let now = manifest.created_at.parse().ok();
    let options = options.with_thinking(manifest.models.judge_thinking.clone());
    Ok((chain, options.with_dtype(dtype).with_device(options.devices.judge).with_date(now)))
}

fn failure(error: ScoringError) -> Failure {
    match error {
        ScoringError::Config(errors) => Failure::Config(errors),
        error => Failure::usage(error.to_string()),
    }
}
