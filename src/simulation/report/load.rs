//! Reads a results folder: finished transcripts, and the completed turns of running rollouts.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::foundation::base::limits::TRANSCRIPT_BYTES_MAX;
use crate::foundation::plot::PlotError;
use crate::foundation::store::read_limited;
use crate::simulation::persona::Speaker;
use crate::simulation::rollout::{FileError, TokenLine, Totals, Transcript, Turn, read_tokens, read_transcript};

/// A transcript with its file and tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedRollout {
    /// The file's name.
    pub file: String,
    /// The transcript.
    pub transcript: Transcript,
    /// The rollout is not finished; the transcript contains its completed turns.
    pub partial: bool,
    /// The tokens, one line per message.
    pub tokens: Vec<TokenLine>,
    /// Why tokens are missing: the side file does not exist, cannot be read, or lacks messages.
    pub tokens_missing: Option<String>,
}

/// An error in reading or writing a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A transcript cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The path does not exist.
    #[error("{path} does not exist; name the folder that `loom run` wrote, or one of its transcripts", path = path.display())]
    Missing {
        /// Where.
        path: PathBuf,
    },
    /// An I/O error.
    #[error("{path} cannot be read or written: {source}", path = path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// There is no transcript.
    #[error("{path} contains no transcript (`rollout_000.json` and so on); name the folder that `loom run` wrote", path = path.display())]
    Empty {
        /// Where.
        path: PathBuf,
    },
    /// A sweep, or the parent folder of runs.
    #[error("{path} is not a run but contains runs; name one of them, such as {run}", path = path.display(), run = run.display())]
    ParentFolder {
        /// The path.
        path: PathBuf,
        /// The last run in it.
        run: PathBuf,
    },
    /// The path is neither a folder nor a transcript.
    #[error("{path} is not a transcript ({why}); name the folder that `loom run` wrote, or one of its transcripts", path = path.display())]
    NotATranscript {
        /// The path.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The transcripts have different configurations.
    #[error("{path} contains transcripts of several configurations ({first}, {other}); move each into its own folder", path = path.display())]
    Mixed {
        /// Where.
        path: PathBuf,
        /// One configuration.
        first: String,
        /// Another.
        other: String,
    },
    /// The curves cannot be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// The page cannot be rendered.
    #[error("the HTML page cannot be rendered: {0}")]
    Page(#[from] minijinja::Error),
    /// The report cannot be serialised.
    #[error("the report cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// The transcripts at `path` (a results folder, one transcript, or one unfinished rollout), ordered by rollout.
///
/// # Errors
/// If there is none, one cannot be read, or they have different configurations.
pub fn load(path: &Path) -> Result<Vec<LoadedRollout>, ReportError> {
    if !path.exists() {
        return Err(ReportError::Missing { path: path.to_owned() });
    }
    let mut loaded =
        if path.is_dir() { folder(path)? } else { vec![file(path).map_err(|error| not_a_transcript(path, error))?] };
    loaded.sort_by(|a, b| (a.transcript.run.rollout, &a.file).cmp(&(b.transcript.run.rollout, &b.file)));
    let Some(first) = loaded.first().map(|loaded| &loaded.transcript.config) else {
        return Err(match last_run_in(path) {
            Some(run) => ReportError::ParentFolder { path: path.to_owned(), run },
            None => ReportError::Empty { path: path.to_owned() },
        });
    };
    match loaded.iter().map(|loaded| &loaded.transcript.config).find(|config| config.digest != first.digest) {
        None => Ok(loaded),
        Some(other) => {
            let name = |digest: &crate::foundation::base::Digest| digest.short();
            Err(ReportError::Mixed { path: path.to_owned(), first: name(&first.digest), other: name(&other.digest) })
        }
    }
}

/// A file named by the user is more likely the wrong file than a damaged one.
fn not_a_transcript(path: &Path, error: ReportError) -> ReportError {
    match error {
        ReportError::File(FileError::Corrupt { why, .. }) => ReportError::NotATranscript { path: path.to_owned(), why },
        error => error,
    }
}

/// The run in `folder` whose name sorts last; for dated names, the newest.
fn last_run_in(folder: &Path) -> Option<PathBuf> {
    let inside = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    inside.filter(|path| path.join("run.json").is_file()).max()
}

fn folder(path: &Path) -> Result<Vec<LoadedRollout>, ReportError> {
    let at = |source| ReportError::Io { path: path.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(at)? {
        let file = entry.map_err(at)?.path();
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(rest) = name.strip_prefix("rollout_") else { continue };
        let number = |ending| rest.strip_suffix(ending).filter(|number| number.bytes().all(|b| b.is_ascii_digit()));
        let finished = |number: &str| path.join(format!("rollout_{number}.json")).exists();
        // A crash between writing the transcript and removing the partial file leaves both; the transcript takes precedence.
        if number(".json").is_some() || number(".partial.jsonl").is_some_and(|number| !finished(number)) {
            files.push(file);
        }
    }
    // A partial file with an incomplete first line is empty.
    files
        .iter()
        .map(|file| self::file(file))
        .filter(|loaded| !matches!(loaded, Err(ReportError::Empty { .. })))
        .collect()
}

fn file(path: &Path) -> Result<LoadedRollout, ReportError> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if name.ends_with(".partial.jsonl") {
        return partial(path, name);
    }
    let transcript = read_transcript(path)?;
    // Missing tokens do not prevent a report, but are reported.
    let (tokens, unread) = match read_tokens(path) {
        Ok(tokens) => (tokens, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let tokens_missing = unread.or_else(|| lacking(&transcript, &tokens));
    Ok(LoadedRollout { file: name, transcript, partial: false, tokens, tokens_missing })
}

/// Messages whose tokens were counted, but are not among `tokens`.
fn lacking(transcript: &Transcript, tokens: &[TokenLine]) -> Option<String> {
    let there: BTreeSet<(usize, bool)> =
        tokens.iter().map(|line| (line.turn, line.speaker == Speaker::Persona)).collect();
    let messages =
        transcript.turns.iter().flat_map(|turn| [(turn.index, &turn.persona), (turn.index, &turn.interlocutor)]);
    let counted = messages.filter(|(_, message)| message.tokens.count > 0);
    let lacking =
        counted.filter(|(turn, message)| !there.contains(&(*turn, message.speaker == Speaker::Persona))).count();
    (lacking > 0).then(|| format!("the side file lacks {lacking} of the messages"))
}

/// A line of a partial file, after the first.
#[derive(Deserialize)]
struct TurnLine {
    turn: Turn,
    tokens: Vec<TokenLine>,
}

/// Reads a running rollout without changing it. Its process may be writing, so an incomplete last line is left out.
fn partial(path: &Path, file: String) -> Result<LoadedRollout, ReportError> {
    let at = |source| ReportError::Io { path: path.to_owned(), source };
    let mut bytes = match read_limited(path, TRANSCRIPT_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            return Err(FileError::TooLarge { path: path.to_owned() }.into());
        }
        read => read.map_err(at)?,
    };
    bytes.truncate(bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or(0));
    let text = String::from_utf8(bytes).map_err(|error| at(io::Error::new(io::ErrorKind::InvalidData, error)))?;
    let wrong = |line: usize, error: &serde_json::Error| FileError::Corrupt {
        path: path.to_owned(),
        line,
        why: error.to_string(),
    };
    let mut lines = text.lines().enumerate();
    let Some((_, head)) = lines.next() else { return Err(ReportError::Empty { path: path.to_owned() }) };
    let mut transcript: Transcript = serde_json::from_str(head).map_err(|error| wrong(1, &error))?;
    let mut tokens = Vec::new();
    for (index, line) in lines {
        let line: TurnLine = serde_json::from_str(line).map_err(|error| wrong(index + 1, &error))?;
        transcript.turns.push(line.turn);
        tokens.extend(line.tokens);
    }
    transcript.totals = Totals::of(&transcript.turns);
    let tokens_missing = lacking(&transcript, &tokens);
    Ok(LoadedRollout { file, transcript, partial: true, tokens, tokens_missing })
}
