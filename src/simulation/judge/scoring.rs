//! Computes the missing scores of transcript files and stores them: in the transcript, or in a file next to an imported
//! one. A transcript is replaced atomically, so an interruption leaves it scored or not scored.

mod import;
mod judge_check_file;
mod merge;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use self::import::ImportedConversation;
pub use self::judge_check_file::{JudgeCheckFile, judge_checks_folder};
pub use self::merge::merge_scores;
use self::merge::{insert_scores, same_definition};
use super::judged::{self, Judge, JudgeCheck, JudgeInput, RequestedScore, Rubric};
use super::likelihood::{self, LikelihoodInput, LikelihoodSet};
use super::measured;
use crate::foundation::base::Digest;
use crate::foundation::base::limits::TRANSCRIPT_BYTES_MAX;
use crate::foundation::chat::{LanguageModel, ModelChain, Role};
use crate::foundation::gate::LedgerError;
use crate::foundation::store::read_text;
use crate::inference::providers::{self, OpenOptions};
use crate::simulation::authorizer::Authorizer;
use crate::simulation::persona::{ConfigErrors, PersonaConfig, parse};
use crate::simulation::rollout::monitors::MonitorFinding;
use crate::simulation::rollout::{
    FileError, Manifest, Score, ScoreJudge, TRANSCRIPT_FORMAT, Transcript, json_bytes, observe, read_tokens,
    read_transcript, write_json, written,
};

/// The value of [`ScoresFile::format`].
pub const SCORES_FORMAT: &str = "loom-scores";
/// The version that this program writes.
pub const SCORES_VERSION: u32 = 1;

/// Scores transcript files with one judge and one set of options.
pub struct TranscriptScorer {
    /// The judge; without one, no judged scores are computed.
    pub judge: Option<Judge>,
    /// The result of the judge's test, if known.
    pub judge_check: Option<JudgeCheck>,
    /// Number of turns that the judge reads; overrides the configuration's `judge_window`.
    pub window: Option<usize>,
    /// Rubrics besides the standard ones.
    pub rubrics: Vec<Rubric>,
    /// Which likelihood scores are computed.
    pub likelihood_set: LikelihoodSet,
    /// Recompute scores that already exist.
    pub rescore: bool,
    /// The configuration of imported conversations.
    pub config: Option<Arc<PersonaConfig>>,
    /// The configuration whose persona the runs' transcripts are scored for, instead of their own. Needs a `reader`.
    pub scored_as: Option<Arc<PersonaConfig>>,
    /// The persona's role in imported chat messages.
    pub persona: Role,
    /// The model that computes the likelihood scores instead of the persona's own.
    pub reader: Option<Arc<dyn LanguageModel>>,
    /// How the persona's model is opened; the judge should have been opened with a clone of this.
    pub options: OpenOptions,
    /// Records the digest of a run's transcript before the file is replaced.
    pub receipts: Option<Authorizer>,
}

/// The result of scoring one file.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredFile {
    /// The file.
    pub path: PathBuf,
    /// The file that contains the scores.
    pub scores_path: PathBuf,
    /// How many scores were computed; 0 if all existed.
    pub computed: usize,
    /// Those without a value: `(id, why)`, each once.
    pub missing: Vec<(String, String)>,
    /// Seconds for the judged scores.
    pub judging_seconds: f64,
    /// Seconds for the likelihood scores of every turn.
    pub likelihood_seconds: f64,
    /// Seconds for the likelihood scores of a sample of turns.
    pub variants_seconds: f64,
    /// Seconds that the rollout took; 0 if unknown.
    pub rollout_seconds: f64,
}

/// An error in scoring a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScoringError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file has no known format.
    #[error("{path}: {why}", path = path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The configuration next to the transcript is invalid.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The receipt of a file could not be written.
    #[error("the receipts could not be written: {0}")]
    Receipts(#[from] LedgerError),
    /// There is nothing to score.
    #[error("{path} contains no finished transcript (`rollout_000.json` and so on); name a folder that `loom run` or `loom sweep` wrote, or a file", path = path.display())]
    Empty {
        /// The path.
        path: PathBuf,
    },
}

/// The scores of an imported file, in a file next to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoresFile {
    /// [`SCORES_FORMAT`].
    pub format: String,
    /// [`SCORES_VERSION`].
    pub version: u32,
    /// The scored file's name.
    pub source: String,
    /// The digest of its bytes.
    pub digest: Digest,
    /// The persona's role, if the file consists of chat messages.
    pub persona: Role,
    /// The digest of the configuration that was used, if any.
    pub config: Option<Digest>,
    /// Its conversations, in order.
    pub conversations: Vec<ConversationScores>,
}

/// The scores of one conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ConversationScores {
    /// Scores computed from the text.
    pub measured: Vec<measured::MeasuredScore>,
    /// Scores computed by models.
    pub scores: Vec<Score>,
    /// The monitors that ran over the conversation; empty in files of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub monitors: Vec<String>,
    /// The monitors' findings, with their turns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<TurnFinding>,
}

/// A monitor's finding in an imported conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnFinding {
    /// The turn, from 0.
    pub turn: usize,
    /// The finding.
    #[serde(flatten)]
    pub finding: MonitorFinding,
}

/// The first fields of a Loom transcript.
#[derive(Deserialize)]
struct Head {
    format: Option<String>,
    created_at: Option<String>,
}

impl ScoresFile {
    /// Reads the file at `path`, if it exists. An unreadable file is an error and not overwritten, since judged scores
    /// cost money.
    fn read_if_exists(path: &Path) -> Result<Option<Self>, ScoringError> {
        if !path.exists() {
            return Ok(None);
        }
        let of = |why| ScoringError::Format { path: path.to_owned(), why };
        let file: Self = serde_json::from_str(&read(path)?).map_err(|error| {
            of(format!("{error}; it should contain scores and is damaged: move it away to recompute them"))
        })?;
        if (file.format.as_str(), file.version) == (SCORES_FORMAT, SCORES_VERSION) {
            return Ok(Some(file));
        }
        let (format, version) = (file.format, file.version);
        Err(of(format!(
            "`{format}` version {version} is not known to this version of loom; move it away to recompute its scores"
        )))
    }
}

/// The transcripts to score at `path`: the finished ones of a run's folder or of a sweep's cells, or the file itself.
///
/// # Errors
/// If the path cannot be read or contains no transcript.
pub fn transcripts(path: &Path) -> Result<Vec<PathBuf>, ScoringError> {
    let at = |source| FileError::Io { path: path.to_owned(), source };
    if !path.is_dir() {
        return std::fs::metadata(path).map(|_| vec![path.to_owned()]).map_err(|source| at(source).into());
    }
    let mut files = numbered(path, "rollout_", ".json").map_err(at)?;
    if files.is_empty() {
        for cell in numbered(path, "cell_", "").map_err(at)? {
            files.extend(numbered(&cell, "rollout_", ".json").map_err(at)?);
        }
    }
    if files.is_empty() { Err(ScoringError::Empty { path: path.to_owned() }) } else { Ok(files) }
}

/// The entries of `folder` whose names are `prefix`, a number, and `suffix`, sorted.
fn numbered(folder: &Path, prefix: &str, suffix: &str) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix)).unwrap_or_default();
        if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

impl TranscriptScorer {
    /// A scorer without a judge, with the default likelihood scores. `options` open the persona's model again; use those
    /// of the run, whose models are shared.
    pub fn new(options: OpenOptions) -> Self {
        Self {
            judge: None,
            judge_check: None,
            window: None,
            likelihood_set: LikelihoodSet::default(),
            rescore: false,
            config: None,
            scored_as: None,
            rubrics: Vec::new(),
            persona: Role::Assistant,
            reader: None,
            options,
            receipts: None,
        }
    }

    /// Scores the file at `path` and stores the scores.
    ///
    /// # Errors
    /// If the file cannot be read, parsed or written. A value that a model does not provide is not an error.
    pub async fn score(&self, path: &Path) -> Result<ScoredFile, ScoringError> {
        let text = read(path)?;
        // A truncated Loom transcript is still recognised as one, for a better error message.
        let own = match serde_json::from_str::<Head>(&text) {
            Ok(head) => head.format.as_deref() == Some(TRANSCRIPT_FORMAT),
            Err(_) => text.lines().take(2).any(|line| line.contains(&format!("\"format\": \"{TRANSCRIPT_FORMAT}\""))),
        };
        if own { self.score_transcript(path).await } else { self.score_imported(path, &text).await }
    }

    async fn score_transcript(&self, path: &Path) -> Result<ScoredFile, ScoringError> {
        let mut transcript = read_transcript(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let config = match &self.scored_as {
            Some(config) => Ok(Arc::clone(config)),
            None => own_config(folder, &transcript)?,
        };
        let mut scored = ScoredFile::new(path, path, transcript.totals.timing.seconds);
        let input = self.judge_input(&transcript, config.as_deref().ok().or(self.config.as_deref()), None);
        let model = match &config {
            Ok(_) if self.likelihood_set != LikelihoodSet::Off => match &self.reader {
                Some(reader) => Ok(Arc::clone(reader)),
                None => self.open_persona_model(path, &transcript),
            },
            Ok(_) => Err("the likelihood scores are off".to_owned()),
            Err(why) => Err(why.clone()),
        };
        let mut computed = Vec::new();
        if self.likelihood_set != LikelihoodSet::Off
            && let Ok(config) = &config
        {
            let info = model.as_ref().ok().map(AsRef::as_ref);
            let existing = &transcript.scores;
            let all = |likelihood_set| {
                let wanted = likelihood::missing(config, info, "", likelihood_set);
                wanted.iter().all(|wanted| existing.iter().any(|score| same_definition(score, wanted)))
            };
            // Scores of every turn are not replaced by scores of a sample.
            if self.rescore || !(all(self.likelihood_set) || all(LikelihoodSet::Full)) {
                match &model {
                    Ok(model) => {
                        // Without the side file all log-probabilities are recomputed.
                        let tokens = read_tokens(path).unwrap_or_default();
                        let subject = LikelihoodInput {
                            transcript: &transcript,
                            tokens: &tokens,
                            config,
                            model,
                            reader: self.reader.is_some(),
                        };
                        let likelihoods = likelihood::scores(subject, self.likelihood_set).await;
                        (scored.likelihood_seconds, scored.variants_seconds) =
                            (likelihoods.seconds, likelihoods.variants_seconds);
                        computed.extend(likelihoods.scores);
                    }
                    Err(why) => computed.extend(likelihood::missing(config, None, why, self.likelihood_set)),
                }
            }
        }
        computed.extend(self.judged(input, &transcript.scores, &mut scored).await);
        if let (Err(why), true) = (&config, self.likelihood_set != LikelihoodSet::Off) {
            scored.missing.push(("likelihoods".to_owned(), why.clone()));
        }
        scored.note_missing(&computed);
        scored.computed = insert_scores(&mut transcript.scores, computed);
        let observed = observe(&mut transcript, config.as_deref().ok().or(self.config.as_deref()));
        if scored.computed > 0 || observed {
            if let Some(receipts) = &self.receipts {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let files = BTreeMap::from([(name, Digest::of(json_bytes(path, &transcript)?))]);
                receipts.record(vec![written("score.wrote", &files)])?;
            }
            write_json(path, &transcript)?;
        }
        Ok(scored)
    }

    async fn score_imported(&self, path: &Path, text: &str) -> Result<ScoredFile, ScoringError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let format = |why| ScoringError::Format { path: path.to_owned(), why };
        let imported = import::read(&name, text, self.persona, self.config.as_deref()).map_err(format)?;
        let scores_path = path.with_file_name(format!("{name}.scores.json"));
        let digest = Digest::of(text);
        let config = self.config.as_ref().map(|config| config.digest);
        let before = ScoresFile::read_if_exists(&scores_path)?;
        // Stored scores count only for the same text, persona role and configuration.
        let matches = |file: &ScoresFile| (file.digest, file.persona, file.config) == (digest, self.persona, config);
        let before = before.filter(matches).map(|file| file.conversations).filter(|of| of.len() == imported.len());
        let mut conversations = before.clone().unwrap_or_else(|| vec![ConversationScores::default(); imported.len()]);
        let mut scored = ScoredFile::new(path, &scores_path, 0.0);
        for (ImportedConversation { transcript, profile }, stored) in imported.iter().zip(&mut conversations) {
            stored.measured = measured::measure(transcript).scores;
            let mut observed = transcript.clone();
            observe(&mut observed, self.config.as_deref());
            stored.monitors = observed.monitors.unwrap_or_default();
            let findings = observed.turns.into_iter().flat_map(|turn| {
                let index = turn.index;
                turn.monitor_events.into_iter().map(move |event| TurnFinding { turn: index, finding: event.finding })
            });
            stored.findings = findings.collect();
            let input = self.judge_input(transcript, self.config.as_deref(), profile.as_deref());
            let mut computed = self.read_imported(transcript, &stored.scores, &mut scored).await;
            computed.extend(self.judged(input, &stored.scores, &mut scored).await);
            scored.note_missing(&computed);
            scored.computed += insert_scores(&mut stored.scores, computed);
        }
        if before.as_ref() != Some(&conversations) {
            let measured = conversations.iter().map(|of| of.measured.len()).sum::<usize>();
            scored.computed += if before.is_none() { measured } else { 0 };
            let file = ScoresFile {
                format: SCORES_FORMAT.to_owned(),
                version: SCORES_VERSION,
                source: name,
                digest,
                persona: self.persona,
                config,
                conversations,
            };
            write_json(&scores_path, &file)?;
        }
        Ok(scored)
    }

    /// The likelihood scores of an imported conversation that do not exist yet, if a model reads it and its persona's
    /// configuration is known.
    async fn read_imported(&self, transcript: &Transcript, existing: &[Score], scored: &mut ScoredFile) -> Vec<Score> {
        let (Some(model), Some(config)) = (&self.reader, &self.config) else { return Vec::new() };
        let wanted = likelihood::missing(config, Some(model.as_ref()), "", self.likelihood_set);
        let exists = |wanted: &Score| existing.iter().any(|score| same_definition(score, wanted));
        if self.likelihood_set == LikelihoodSet::Off || (!self.rescore && wanted.iter().all(exists)) {
            return Vec::new();
        }
        let input = LikelihoodInput { transcript, tokens: &[], config, model, reader: true };
        let likelihoods = likelihood::scores(input, self.likelihood_set).await;
        scored.likelihood_seconds += likelihoods.seconds;
        scored.variants_seconds += likelihoods.variants_seconds;
        likelihoods.scores
    }

    fn judge_input<'a>(
        &'a self,
        transcript: &'a Transcript,
        config: Option<&'a PersonaConfig>,
        profile: Option<&'a str>,
    ) -> JudgeInput<'a> {
        JudgeInput { transcript, config, profile, window: self.window, rubrics: &self.rubrics }
    }

    /// Computes the judged scores that do not exist yet.
    async fn judged(&self, input: JudgeInput<'_>, existing: &[Score], scored: &mut ScoredFile) -> Vec<Score> {
        let Some(judge) = &self.judge else { return Vec::new() };
        let judge_check = self.judge_check.as_ref();
        let wanted = |RequestedScore { id, dimension, prompt, about, rubric }: &RequestedScore| {
            // A score without a reliability is recomputed once the judge was tested on its rubric.
            let tested = judge_check.is_some_and(|check| check.rubrics.contains_key(rubric));
            let is = |score: &Score| {
                (&score.id, &score.dimension, score.prompt_digest) == (id, dimension, Some(*prompt))
                    && (score.method, score.about) == (judge.method(), *about)
            };
            let by = |score: &ScoreJudge| {
                (&score.model, score.digest) == (&judge.info().name, judge.info().digest)
                    && (!tested || score.reliability.is_some())
            };
            self.rescore || !existing.iter().any(|score| is(score) && score.judge.as_ref().is_some_and(by))
        };
        let begun = Instant::now();
        let scores = judged::scores(input, judge, judge_check, &wanted).await;
        if !scores.is_empty() {
            scored.judging_seconds += begun.elapsed().as_secs_f64();
        }
        scores
    }

    /// Opens the persona's model as the run did.
    fn open_persona_model(&self, path: &Path, transcript: &Transcript) -> Result<Arc<dyn LanguageModel>, String> {
        let spec = &transcript.models.persona.spec;
        let chain: ModelChain = spec.parse().map_err(|error| format!("`{spec}` cannot be opened: {error}"))?;
        let template = path.parent().and_then(manifest).and_then(|manifest| manifest.chat_template);
        let options = template.map_or_else(|| self.options.clone(), |template| self.options.with_template(template));
        let options = options.with_date(Some(started_at(path)));
        let options = options.with_thinking(transcript.models.persona.info.thinking_settings.clone());
        // The number type of the run.
        let dtype = transcript.models.persona.dtype.as_deref().map(str::parse).transpose()?;
        providers::open(&chain, &options.with_dtype(dtype).with_device(options.devices.persona))
            .map_err(|error| error.to_string())
    }
}

/// When the run of the transcript at `path` started, or else the conversation. Chat templates that use the date get this
/// one, so that scores do not depend on the day they are computed on.
pub fn started_at(path: &Path) -> Timestamp {
    let run = path.parent().and_then(manifest).map(|manifest| manifest.created_at);
    let own = || serde_json::from_str::<Head>(&read(path).ok()?).ok()?.created_at;
    run.or_else(own).and_then(|time| time.parse().ok()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The manifest of the run in `folder`.
fn manifest(folder: &Path) -> Option<Manifest> {
    serde_json::from_str(&read(&folder.join("run.json")).ok()?).ok()
}

impl ScoredFile {
    fn new(path: &Path, scores_path: &Path, rollout_seconds: f64) -> Self {
        Self {
            path: path.to_owned(),
            scores_path: scores_path.to_owned(),
            computed: 0,
            missing: Vec::new(),
            judging_seconds: 0.0,
            likelihood_seconds: 0.0,
            variants_seconds: 0.0,
            rollout_seconds,
        }
    }

    fn note_missing(&mut self, scores: &[Score]) {
        for score in scores {
            if let Some(why) = &score.why {
                let missing = (score.id.clone(), why.clone());
                if !self.missing.contains(&missing) {
                    self.missing.push(missing);
                }
            }
        }
    }
}

/// The configuration of the transcript's run, or why it is not available.
fn own_config(folder: &Path, transcript: &Transcript) -> Result<Result<Arc<PersonaConfig>, String>, ScoringError> {
    let path = folder.join("config.yaml");
    let Ok(yaml) = read(&path) else {
        return Ok(Err("there is no config.yaml beside the transcript".to_owned()));
    };
    let config = parse(&path.display().to_string(), &yaml)?;
    let same = config.digest == transcript.config.digest;
    let why = || "config.yaml beside the transcript is not the one that it was made with".to_owned();
    Ok(if same { Ok(Arc::new(config)) } else { Err(why()) })
}

fn read(path: &Path) -> Result<String, FileError> {
    let at = |source| FileError::Io { path: path.to_owned(), source };
    match read_text(path, TRANSCRIPT_BYTES_MAX) {
        Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {
            Err(FileError::TooLarge { path: path.to_owned() })
        }
        read => read.map_err(at),
    }
}
