//! Scores taken of transcripts and kept with them: which are wanted, which are there already, who takes them, where they
//! go. A transcript is written anew as a whole, so that a kill leaves it scored or not.

mod foreign;
mod keep;
mod lists;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use self::foreign::Foreign;
pub use self::keep::{CheckFile, checks_folder};
pub use self::lists::join;
use self::lists::{put, same};
use super::judged::{self, Case, Check, Judge, Wanted};
use super::likelihood::{self, Extent, Subject};
use super::measured;
use crate::foundation::base::Digest;
use crate::foundation::base::limits::TRANSCRIPT_BYTES_MAX;
use crate::foundation::chat::{LanguageModel, ModelChain, Role};
use crate::inference::providers::{self, OpenOptions};
use crate::simulation::persona::{ConfigErrors, PersonaConfig, parse};
use crate::simulation::rollout::{
    FileError, Manifest, Score, ScoreJudge, TRANSCRIPT_FORMAT, Transcript, read_tokens, read_transcript, write_json,
};

/// The value of [`ScoresFile::format`].
pub const SCORES_FORMAT: &str = "loom-scores";
/// The version that this program writes.
pub const SCORES_VERSION: u32 = 1;

/// What is to be scored, and how.
pub struct Scoring {
    /// Who judges; nothing is judged without.
    pub judge: Option<Judge>,
    /// What is known of the judge.
    pub known: Option<Check>,
    /// How many turns the judge reads, instead of the configuration's `judge_window`.
    pub window: Option<usize>,
    /// How many likelihood scores are taken.
    pub extent: Extent,
    /// Scores that are there are taken again.
    pub again: bool,
    /// The configuration of conversations that Loom did not hold.
    pub config: Option<Arc<PersonaConfig>>,
    /// The persona's role in lines of messages.
    pub persona: Role,
    /// How the persona's models are opened; the judge should have been opened with a clone of it.
    pub options: OpenOptions,
}

/// What came of one file.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    /// The file.
    pub path: PathBuf,
    /// Where the scores are.
    pub kept_in: PathBuf,
    /// How many scores were taken; 0 when all were there already.
    pub taken: usize,
    /// Those without a value: `(id, why)`, each once.
    pub missing: Vec<(String, String)>,
    /// What judging took, seconds.
    pub judging_seconds: f64,
    /// What the likelihood scores of every turn took, seconds.
    pub likelihood_seconds: f64,
    /// What those of a sample of turns took, seconds.
    pub variants_seconds: f64,
    /// What the rollout itself took, seconds; 0 where that is not known.
    pub rollout_seconds: f64,
}

/// Why a file cannot be scored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScoringError {
    /// It cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is not in a form that is known.
    #[error("{path}: {why}", path = path.display())]
    Form {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The configuration beside it is wrong.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// There is nothing to score.
    #[error("{path} holds no finished transcript (`rollout_000.json` and so on); name a folder that `loom run` or `loom sweep` wrote, or a file", path = path.display())]
    Empty {
        /// Where.
        path: PathBuf,
    },
}

/// The scores of a file that Loom did not write, kept beside it.
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
    /// The persona's role in it, where it is lines of messages.
    pub persona: Role,
    /// The digest of the configuration that it was scored by; absent where none was named.
    pub config: Option<Digest>,
    /// Its conversations, in order.
    pub conversations: Vec<Conversation>,
}

/// The scores of one conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// Taken from the words alone.
    pub measured: Vec<measured::Score>,
    /// Taken by models.
    pub scores: Vec<Score>,
}

/// The beginning of a transcript of our own.
#[derive(Deserialize)]
struct Head {
    format: Option<String>,
    created_at: Option<String>,
}

impl ScoresFile {
    /// The one at `path`, if there is any. One that cannot be read is not written over: judges may have been paid for it.
    fn at(path: &Path) -> Result<Option<Self>, ScoringError> {
        if !path.exists() {
            return Ok(None);
        }
        let of = |why| ScoringError::Form { path: path.to_owned(), why };
        let kept: Self = serde_json::from_str(&read(path)?).map_err(|error| {
            of(format!("{error}; it should hold scores and is damaged: move it away to have them taken again"))
        })?;
        if (kept.format.as_str(), kept.version) == (SCORES_FORMAT, SCORES_VERSION) {
            return Ok(Some(kept));
        }
        let (format, version) = (kept.format, kept.version);
        Err(of(format!(
            "`{format}` version {version} is not known to this version of loom; move it away to have its scores taken again"
        )))
    }
}

/// What is at `path` to be scored: the finished transcripts of a run's folder or of a sweep's cells, or the one file.
///
/// # Errors
/// When it cannot be read, or there is none.
pub fn transcripts(path: &Path) -> Result<Vec<PathBuf>, ScoringError> {
    let at = |source| FileError::Io { path: path.to_owned(), source };
    if !path.is_dir() {
        // A missing file is told as such.
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

/// What lies in `folder` and is called `before`, a number, and `after`, in order.
fn numbered(folder: &Path, before: &str, after: &str) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)).unwrap_or_default();
        if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

impl Scoring {
    /// Scores the file at `path` and keeps what was found.
    ///
    /// # Errors
    /// When the file cannot be read, understood or written; what a model does not give is no error.
    pub async fn score(&self, path: &Path) -> Result<Scored, ScoringError> {
        let text = read(path)?;
        // One that is cut off is ours still, and is told as such.
        let own = match serde_json::from_str::<Head>(&text) {
            Ok(head) => head.format.as_deref() == Some(TRANSCRIPT_FORMAT),
            Err(_) => text.lines().take(2).any(|line| line.contains(&format!("\"format\": \"{TRANSCRIPT_FORMAT}\""))),
        };
        if own { self.own(path).await } else { self.foreign(path, &text).await }
    }

    async fn own(&self, path: &Path) -> Result<Scored, ScoringError> {
        let mut transcript = read_transcript(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let config = own_config(folder, &transcript)?;
        let mut scored = Scored::new(path, path, transcript.totals.timing.seconds);
        let case = self.case(&transcript, config.as_deref().ok().or(self.config.as_deref()), None);
        let model = match &config {
            Ok(_) if self.extent != Extent::Off => self.persona(path, &transcript),
            Ok(_) => Err("the likelihood scores are off".to_owned()),
            Err(why) => Err(why.clone()),
        };
        let mut taken = Vec::new();
        if self.extent != Extent::Off
            && let Ok(config) = &config
        {
            let info = model.as_ref().ok().map(AsRef::as_ref);
            let there = &transcript.scores;
            let all = |extent| {
                let wanted = likelihood::missing(config, info, "", extent);
                wanted.iter().all(|wanted| there.iter().any(|there| same(there, wanted)))
            };
            // What was taken on every turn is not taken again on a sample.
            if self.again || !(all(self.extent) || all(Extent::Full)) {
                match &model {
                    Ok(model) => {
                        // Without its side file everything is computed again.
                        let tokens = read_tokens(path).unwrap_or_default();
                        let subject = Subject { transcript: &transcript, tokens: &tokens, config, model };
                        let likelihoods = likelihood::scores(subject, self.extent).await;
                        (scored.likelihood_seconds, scored.variants_seconds) =
                            (likelihoods.seconds, likelihoods.variants_seconds);
                        taken.extend(likelihoods.scores);
                    }
                    Err(why) => taken.extend(likelihood::missing(config, None, why, self.extent)),
                }
            }
        }
        taken.extend(self.judged(case, &transcript.scores, &mut scored).await);
        if let (Err(why), true) = (&config, self.extent != Extent::Off) {
            scored.missing.push(("likelihoods".to_owned(), why.clone()));
        }
        scored.note(&taken);
        scored.taken = put(&mut transcript.scores, taken);
        if scored.taken > 0 {
            write_json(path, &transcript)?;
        }
        Ok(scored)
    }

    async fn foreign(&self, path: &Path, text: &str) -> Result<Scored, ScoringError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let form = |why| ScoringError::Form { path: path.to_owned(), why };
        let foreign = foreign::read(&name, text, self.persona, self.config.as_deref()).map_err(form)?;
        let kept_in = path.with_file_name(format!("{name}.scores.json"));
        let digest = Digest::of(text);
        let config = self.config.as_ref().map(|config| config.digest);
        let before = ScoresFile::at(&kept_in)?;
        // Of other words, of the other side's, or by another configuration: not the scores of this.
        let of = |before: &ScoresFile| (before.digest, before.persona, before.config) == (digest, self.persona, config);
        let before = before.filter(of).map(|before| before.conversations).filter(|of| of.len() == foreign.len());
        let mut conversations = before.clone().unwrap_or_else(|| vec![Conversation::default(); foreign.len()]);
        let mut scored = Scored::new(path, &kept_in, 0.0);
        for (Foreign { transcript, profile }, kept) in foreign.iter().zip(&mut conversations) {
            kept.measured = measured::measure(transcript).scores;
            let case = self.case(transcript, self.config.as_deref(), profile.as_deref());
            let taken = self.judged(case, &kept.scores, &mut scored).await;
            scored.note(&taken);
            scored.taken += put(&mut kept.scores, taken);
        }
        if before.as_ref() != Some(&conversations) {
            let measured = conversations.iter().map(|of| of.measured.len()).sum::<usize>();
            scored.taken += if before.is_none() { measured } else { 0 };
            let file = ScoresFile {
                format: SCORES_FORMAT.to_owned(),
                version: SCORES_VERSION,
                source: name,
                digest,
                persona: self.persona,
                config,
                conversations,
            };
            write_json(&kept_in, &file)?;
        }
        Ok(scored)
    }

    fn case<'a>(
        &self,
        transcript: &'a Transcript,
        config: Option<&'a PersonaConfig>,
        profile: Option<&'a str>,
    ) -> Case<'a> {
        Case { transcript, config, profile, window: self.window }
    }

    /// The judged scores that are wanted and not there.
    async fn judged(&self, case: Case<'_>, there: &[Score], scored: &mut Scored) -> Vec<Score> {
        let Some(judge) = &self.judge else { return Vec::new() };
        let known = self.known.as_ref();
        let wanted = |Wanted { id, dimension, prompt, about, rubric }: &Wanted| {
            // A rubric that the judge could not be tested on has no reliability to wait for.
            let tested = known.is_some_and(|known| known.rubrics.contains_key(rubric));
            let is = |score: &Score| {
                (score.id.as_str(), &score.dimension, score.prompt_digest) == (*id, dimension, Some(*prompt))
                    && (score.method, score.about) == (judge.method(), *about)
            };
            let by = |score: &ScoreJudge| {
                (&score.model, score.digest) == (&judge.info().name, judge.info().digest)
                    && (!tested || score.reliability.is_some())
            };
            self.again || !there.iter().any(|score| is(score) && score.judge.as_ref().is_some_and(by))
        };
        let begun = Instant::now();
        let found = judged::scores(case, judge, known, &wanted).await;
        if !found.is_empty() {
            scored.judging_seconds += begun.elapsed().as_secs_f64();
        }
        found
    }

    /// The persona's model, opened as it was for the run.
    fn persona(&self, path: &Path, transcript: &Transcript) -> Result<Arc<dyn LanguageModel>, String> {
        let spec = &transcript.models.persona.spec;
        let chain: ModelChain = spec.parse().map_err(|error| format!("`{spec}` cannot be opened: {error}"))?;
        let template = path.parent().and_then(manifest).and_then(|manifest| manifest.chat_template);
        let options = template.map_or_else(|| self.options.clone(), |template| self.options.with_template(template));
        let options = options.dated(Some(begun(path)));
        // The numbers that the persona spoke by.
        let dtype = transcript.models.persona.dtype.as_deref().map(str::parse).transpose()?;
        providers::open(&chain, &options.at(dtype).on(options.devices.persona)).map_err(|error| error.to_string())
    }
}

/// When what is at `path` began: its run, else the conversation. A chat template that asks for the date is told this one,
/// so that scores do not depend on the day they are taken on.
pub fn begun(path: &Path) -> Timestamp {
    let run = path.parent().and_then(manifest).map(|manifest| manifest.created_at);
    let own = || serde_json::from_str::<Head>(&read(path).ok()?).ok()?.created_at;
    let told = run.or_else(own).and_then(|told| told.parse().ok());
    told.unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The manifest of the run in `folder`.
fn manifest(folder: &Path) -> Option<Manifest> {
    serde_json::from_str(&read(&folder.join("run.json")).ok()?).ok()
}

impl Scored {
    fn new(path: &Path, kept_in: &Path, rollout_seconds: f64) -> Self {
        Self {
            path: path.to_owned(),
            kept_in: kept_in.to_owned(),
            taken: 0,
            missing: Vec::new(),
            judging_seconds: 0.0,
            likelihood_seconds: 0.0,
            variants_seconds: 0.0,
            rollout_seconds,
        }
    }

    fn note(&mut self, scores: &[Score]) {
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

/// The configuration that the transcript was made with, or why it is not known.
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
    if std::fs::metadata(path).map_err(at)?.len() > TRANSCRIPT_BYTES_MAX {
        return Err(FileError::TooLarge { path: path.to_owned() });
    }
    std::fs::read_to_string(path).map_err(at)
}
