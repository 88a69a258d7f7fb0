//! Reading a results folder: finished transcripts, and the turns of those that are not finished.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::foundation::base::limits::TRANSCRIPT_BYTES_MAX;
use crate::foundation::plot::PlotError;
use crate::simulation::persona::Speaker;
use crate::simulation::rollout::{FileError, TokenLine, Totals, Transcript, Turn, read_tokens, read_transcript};

/// A transcript and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The file's name.
    pub file: String,
    /// What it holds.
    pub transcript: Transcript,
    /// It is a rollout under way: its turns so far.
    pub partial: bool,
    /// Its tokens, message by message.
    pub tokens: Vec<TokenLine>,
    /// Why tokens are missing: the side file is not there, cannot be read, or lacks messages.
    pub tokens_missing: Option<String>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A transcript cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// Nothing is there.
    #[error("there is no {path}; name the folder that `loom run` wrote, or one of its transcripts", path = path.display())]
    Missing {
        /// Where.
        path: PathBuf,
    },
    /// The file system said no.
    #[error("{path} cannot be read or written: {source}", path = path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// There is nothing to report on.
    #[error("{path} holds no transcript (`rollout_000.json` and so on); name the folder that `loom run` wrote", path = path.display())]
    Empty {
        /// Where.
        path: PathBuf,
    },
    /// A sweep, or the folder in which runs lie.
    #[error("{path} is no run itself; name one that lies in it, such as {run}", path = path.display(), run = run.display())]
    Above {
        /// Where.
        path: PathBuf,
        /// The last of the runs in it.
        run: PathBuf,
    },
    /// What was named is neither a folder nor a transcript.
    #[error("{path} is no transcript ({why}); name the folder that `loom run` wrote, or one of its transcripts", path = path.display())]
    Foreign {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The transcripts are not of one persona.
    #[error("{path} mixes transcripts of several configurations ({first}, {other}); report on each in a folder of its own", path = path.display())]
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
    /// The report cannot be written as JSON.
    #[error("the report cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// The transcripts at `path`: a results folder, one transcript, or one rollout under way. In order of their rollouts.
///
/// # Errors
/// When there is none, one cannot be read, or they are not of one configuration.
pub fn load(path: &Path) -> Result<Vec<Loaded>, ReportError> {
    if !path.exists() {
        return Err(ReportError::Missing { path: path.to_owned() });
    }
    let mut loaded = if path.is_dir() { folder(path)? } else { vec![file(path).map_err(|error| named(path, error))?] };
    loaded.sort_by(|a, b| (a.transcript.run.rollout, &a.file).cmp(&(b.transcript.run.rollout, &b.file)));
    let Some(first) = loaded.first().map(|loaded| &loaded.transcript.config) else {
        return Err(match last_run_in(path) {
            Some(run) => ReportError::Above { path: path.to_owned(), run },
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

/// A file that a person named is more often the wrong one than a damaged one.
fn named(path: &Path, error: ReportError) -> ReportError {
    match error {
        ReportError::File(FileError::Corrupt { why, .. }) => ReportError::Foreign { path: path.to_owned(), why },
        error => error,
    }
}

/// The run with the last name among those that lie in `folder`: of dated ones the newest.
fn last_run_in(folder: &Path) -> Option<PathBuf> {
    let inside = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    inside.filter(|path| path.join("run.json").is_file()).max()
}

fn folder(path: &Path) -> Result<Vec<Loaded>, ReportError> {
    let at = |source| ReportError::Io { path: path.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(at)? {
        let file = entry.map_err(at)?.path();
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(rest) = name.strip_prefix("rollout_") else { continue };
        let number = |ending| rest.strip_suffix(ending).filter(|number| number.bytes().all(|b| b.is_ascii_digit()));
        let finished = |number: &str| path.join(format!("rollout_{number}.json")).exists();
        // A crash between writing the transcript and removing the partial file leaves both: the transcript counts.
        if number(".json").is_some() || number(".partial.jsonl").is_some_and(|number| !finished(number)) {
            files.push(file);
        }
    }
    // A partial file whose first line was torn holds nothing yet.
    files
        .iter()
        .map(|file| self::file(file))
        .filter(|loaded| !matches!(loaded, Err(ReportError::Empty { .. })))
        .collect()
}

fn file(path: &Path) -> Result<Loaded, ReportError> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if name.ends_with(".partial.jsonl") {
        return partial(path, name);
    }
    let transcript = read_transcript(path)?;
    // What was said can be reported without its tokens, but not silently.
    let (tokens, unread) = match read_tokens(path) {
        Ok(tokens) => (tokens, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let tokens_missing = unread.or_else(|| lacking(&transcript, &tokens));
    Ok(Loaded { file: name, transcript, partial: false, tokens, tokens_missing })
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

/// One line of a rollout under way, after the first.
#[derive(Deserialize)]
struct TurnLine {
    turn: Turn,
    tokens: Vec<TokenLine>,
}

/// Reads a rollout under way without touching it: whoever writes it may be at it right now, so a last line without its
/// end is left out.
fn partial(path: &Path, file: String) -> Result<Loaded, ReportError> {
    let at = |source| ReportError::Io { path: path.to_owned(), source };
    if fs::metadata(path).map_err(at)?.len() > TRANSCRIPT_BYTES_MAX {
        return Err(FileError::TooLarge { path: path.to_owned() }.into());
    }
    let mut bytes = fs::read(path).map_err(at)?;
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
    Ok(Loaded { file, transcript, partial: true, tokens, tokens_missing })
}
