//! A run's folder: written so that a crash at any point loses at most the turn under way. `docs/FORMATS.md` says what is
//! in it.
//!
//! A finished file appears whole or not at all: it is written beside its place, synced, renamed, and the folder synced.
//! A rollout under way is an append-only file of lines, each synced before the next turn begins; a last line that was
//! torn by a crash is cut away.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::manifest::Manifest;
use super::transcript::{TokenLine, Transcript, Turn};
use crate::foundation::base::limits::TRANSCRIPT_BYTES_MAX;
use crate::foundation::store::{FileLock, sync_names, write_whole};

/// Why a run's files cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file system said no.
    #[error("{path} cannot be read or written: {source}", path = path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// A file stands where the run's folder should be.
    #[error("{path} is a file, and a run needs a folder; name another with --output", path = path.display())]
    NoFolder {
        /// Where.
        path: PathBuf,
    },
    /// There is a run already.
    #[error(
        "{path} holds a run already, and a run is never overwritten; continue it with `loom run --resume {path}`, or name \
         another folder with --output",
        path = path.display()
    )]
    Exists {
        /// Where.
        path: PathBuf,
    },
    /// There is no run.
    #[error("{path} holds no run: there is no run.json in it; name the folder that an earlier `loom run` wrote", path = path.display())]
    NoRun {
        /// Where.
        path: PathBuf,
    },
    /// Someone else is at it.
    #[error("{path} is in use by another `loom`; wait for it to end", path = path.display())]
    Busy {
        /// Where.
        path: PathBuf,
    },
    /// Not in the form that `docs/FORMATS.md` describes.
    #[error("{path}, line {line}: {why}", path = path.display())]
    Corrupt {
        /// Where.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong, and what to do.
        why: String,
    },
    /// Larger than the named limit.
    #[error("{path} is larger than {TRANSCRIPT_BYTES_MAX} bytes (TRANSCRIPT_BYTES_MAX)", path = path.display())]
    TooLarge {
        /// Where.
        path: PathBuf,
    },
}

/// Puts the path to an I/O error.
pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |source| FileError::Io { path, source }
}

/// A run's folder, held by this process alone.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// On its manifest.
    _lock: FileLock,
}

impl RunFolder {
    /// Makes the folder of a new run.
    ///
    /// # Errors
    /// [`FileError::Exists`] when there is a run in it.
    pub fn create(path: &Path, manifest: &Manifest, yaml: &str) -> Result<Self, FileError> {
        if path.is_file() {
            return Err(FileError::NoFolder { path: path.to_owned() });
        }
        let made: Vec<_> =
            path.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists()).collect();
        fs::create_dir_all(path).map_err(at(path))?;
        for folder in made.into_iter().rev() {
            sync_folder(folder)?;
        }
        let file = path.join("run.json");
        // Two processes may choose one name in the same second: whoever holds the claim writes, and whoever gets it later
        // finds the run.
        let claim = Claim::on(path)?;
        if file.exists() {
            return Err(FileError::Exists { path: path.to_owned() });
        }
        write_atomically(&path.join("config.yaml"), yaml.as_bytes())?;
        let mut text = serde_json::to_string_pretty(manifest).map_err(|error| at(&file)(error.into()))?;
        text.push('\n');
        write_atomically(&file, text.as_bytes())?;
        let locked = Self::lock(path);
        drop(claim);
        locked
    }

    /// Opens the folder of an earlier run: its manifest and its configuration's text.
    ///
    /// # Errors
    /// [`FileError::NoRun`] when there is none, [`FileError::Busy`] when another process has it.
    pub fn open(path: &Path) -> Result<(Self, Manifest, String), FileError> {
        if !path.join("run.json").is_file() {
            return Err(FileError::NoRun { path: path.to_owned() });
        }
        let folder = Self::lock(path)?;
        let manifest = read_json(&path.join("run.json"))?;
        let yaml = path.join("config.yaml");
        let yaml = fs::read_to_string(&yaml).map_err(at(&yaml))?;
        Ok((folder, manifest, yaml))
    }

    fn lock(path: &Path) -> Result<Self, FileError> {
        let file = path.join("run.json");
        let manifest = File::open(&file).map_err(at(&file))?;
        let lock = FileLock::exclusive(manifest).map_err(at(&file))?;
        let lock = lock.ok_or_else(|| FileError::Busy { path: path.to_owned() })?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files of rollout number `rollout`.
    pub(super) fn rollout(&self, rollout: usize) -> RolloutFiles {
        let file = |ending: &str| self.path.join(format!("rollout_{rollout:03}.{ending}"));
        RolloutFiles { transcript: file("json"), tokens: file("tokens.jsonl"), partial: file("partial.jsonl") }
    }
}

/// A new run's folder while its first files are written.
struct Claim {
    path: PathBuf,
    _lock: FileLock,
}

impl Claim {
    fn on(folder: &Path) -> Result<Self, FileError> {
        let path = folder.join("run.claim");
        let file = File::create(&path).map_err(at(&path))?;
        let lock = FileLock::exclusive(file).map_err(at(&path))?;
        let lock = lock.ok_or_else(|| FileError::Busy { path: folder.to_owned() })?;
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Left behind it does no harm: the lock is what counts.
        let _best_effort = fs::remove_file(&self.path);
    }
}

/// The files of one rollout.
#[derive(Debug, Clone)]
pub(super) struct RolloutFiles {
    transcript: PathBuf,
    tokens: PathBuf,
    partial: PathBuf,
}

/// A finished turn, as the partial file holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct TurnLine {
    pub(super) turn: Turn,
    pub(super) tokens: Vec<TokenLine>,
}

/// What an earlier process left of a rollout.
pub(super) enum Found {
    /// Nothing that can be used.
    Nothing,
    /// All of it: the transcript is here.
    Finished(PathBuf),
    /// Its first turns, and whether a torn line was cut away after them.
    Begun {
        /// The transcript without turns.
        head: Box<Transcript>,
        turns: Vec<TurnLine>,
        torn: bool,
    },
}

impl RolloutFiles {
    /// What there is of the rollout; the partial file is cut to what is whole.
    pub(super) fn find(&self) -> Result<Found, FileError> {
        if self.transcript.exists() {
            if self.partial.exists() {
                fs::remove_file(&self.partial).map_err(at(&self.partial))?;
            }
            return Ok(Found::Finished(self.transcript.clone()));
        }
        let text = match File::open(&self.partial) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(error) => return Err(at(&self.partial)(error)),
        };
        let mut reader = BufReader::new(text);
        let mut head: Option<Box<Transcript>> = None;
        let mut turns = Vec::new();
        let mut whole = 0;
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let length = reader.read_until(b'\n', &mut line).map_err(at(&self.partial))?;
            if length == 0 || line.last() != Some(&b'\n') {
                break;
            }
            let wrong = |error: serde_json::Error| FileError::Corrupt {
                path: self.partial.clone(),
                line: number,
                why: format!("{error}; move the file away to run this rollout again from its beginning"),
            };
            if head.is_none() {
                head = Some(serde_json::from_slice(&line).map_err(wrong)?);
            } else {
                turns.push(serde_json::from_slice(&line).map_err(wrong)?);
            }
            whole += length as u64;
        }
        let torn = !line.is_empty() && line.last() != Some(&b'\n');
        let Some(head) = head else { return Ok(Found::Nothing) };
        if torn {
            let file = OpenOptions::new().write(true).open(&self.partial).map_err(at(&self.partial))?;
            file.set_len(whole).and_then(|()| file.sync_all()).map_err(at(&self.partial))?;
        }
        Ok(Found::Begun { head, turns, torn })
    }

    /// The partial file is not what it should be.
    pub(super) fn corrupt(&self, line: usize, why: &str) -> FileError {
        FileError::Corrupt { path: self.partial.clone(), line, why: why.to_owned() }
    }

    /// Begins the partial file anew with `head`, the transcript without turns.
    pub(super) fn begin(&self, head: &Transcript) -> Result<PartialLog, FileError> {
        let file = File::create(&self.partial).map_err(at(&self.partial))?;
        let mut log = PartialLog { path: self.partial.clone(), file };
        log.line(head)?;
        sync_folder(&self.partial)?;
        Ok(log)
    }

    /// Goes on with the partial file.
    pub(super) fn go_on(&self) -> Result<PartialLog, FileError> {
        let file = OpenOptions::new().append(true).open(&self.partial).map_err(at(&self.partial))?;
        Ok(PartialLog { path: self.partial.clone(), file })
    }

    /// Writes the finished rollout; the transcript last, because its presence says that the rest is there.
    pub(super) fn finish(&self, transcript: &Transcript, tokens: &[TokenLine]) -> Result<(), FileError> {
        let mut lines = Vec::new();
        for line in tokens {
            serde_json::to_writer(&mut lines, line).map_err(|error| at(&self.tokens)(error.into()))?;
            lines.push(b'\n');
        }
        write_atomically(&self.tokens, &lines)?;
        write_json(&self.transcript, transcript)?;
        fs::remove_file(&self.partial).map_err(at(&self.partial))
    }
}

/// The append-only file of a rollout under way.
#[derive(Debug)]
pub(super) struct PartialLog {
    path: PathBuf,
    file: File,
}

impl PartialLog {
    /// One more line, on the disk when this returns.
    pub(super) fn line<T: Serialize>(&mut self, value: &T) -> Result<(), FileError> {
        let mut line = serde_json::to_vec(value).map_err(|error| at(&self.path)(error.into()))?;
        line.push(b'\n');
        self.file.write_all(&line).and_then(|()| self.file.sync_data()).map_err(at(&self.path))
    }
}

/// Reads a finished transcript.
///
/// # Errors
/// When it cannot be read, or is newer than this program.
pub fn read_transcript(path: &Path) -> Result<Transcript, FileError> {
    let transcript: Transcript = read_json(path)?;
    let known = transcript.format == super::TRANSCRIPT_FORMAT && transcript.version <= super::TRANSCRIPT_VERSION;
    let why = || format!("`{}` version {} is not known to this version of loom", transcript.format, transcript.version);
    if known { Ok(transcript) } else { Err(FileError::Corrupt { path: path.to_owned(), line: 1, why: why() }) }
}

/// Writes `value` as indented JSON at `path`, whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), FileError> {
    let mut text = serde_json::to_vec_pretty(value).map_err(|error| at(path)(error.into()))?;
    text.push(b'\n');
    write_atomically(path, &text)
}

/// Reads the side file of the transcript at `path`.
///
/// # Errors
/// When it cannot be read.
pub fn read_tokens(path: &Path) -> Result<Vec<TokenLine>, FileError> {
    let path = path.with_extension("tokens.jsonl");
    let text = read_limited(&path)?;
    let parse = |(index, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| FileError::Corrupt {
            path: path.clone(),
            line: index + 1,
            why: error.to_string(),
        })
    };
    text.lines().enumerate().map(parse).collect()
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, FileError> {
    serde_json::from_str(&read_limited(path)?).map_err(|error| FileError::Corrupt {
        path: path.to_owned(),
        line: error.line(),
        why: error.to_string(),
    })
}

fn read_limited(path: &Path) -> Result<String, FileError> {
    if fs::metadata(path).map_err(at(path))?.len() > TRANSCRIPT_BYTES_MAX {
        return Err(FileError::TooLarge { path: path.to_owned() });
    }
    fs::read_to_string(path).map_err(at(path))
}

/// `bytes` at `path`, whole or not at all.
pub(super) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    write_whole(path, bytes).map_err(at(path))
}

/// Makes the name of `path` durable.
fn sync_folder(path: &Path) -> Result<(), FileError> {
    sync_names(path).map_err(at(path))
}
