//! A run's folder, written so that a crash at any point loses at most the turn in progress. `docs/FORMATS.md` describes its
//! contents.
//!
//! A finished file appears completely or not at all: it is written to a temporary file, synced, renamed, and the folder
//! synced. An unfinished rollout is an append-only file of lines, each synced before the next turn begins; an incomplete
//! last line is truncated.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::manifest::Manifest;
use super::transcript::{TokenLine, Transcript, Turn};
use crate::foundation::base::Digest;
use crate::foundation::base::limits::{CONFIG_BYTES_MAX, TRANSCRIPT_BYTES_MAX};
use crate::foundation::store::{
    FileLock, append_inside, create_inside, open_regular, read_text, sync_parent, write_inside,
};

/// Why a run's files cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file system reported an error.
    #[error("{path} cannot be read or written: {source}", path = path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The path of the run's folder is a file.
    #[error("{path} is a file, and a run needs a folder; name another with --output", path = path.display())]
    NoFolder {
        /// Where.
        path: PathBuf,
    },
    /// The folder already contains a run.
    #[error(
        "{path} already contains a run, and a run is never overwritten; continue it with `loom run --resume {path}`, or name \
         another folder with --output",
        path = path.display()
    )]
    Exists {
        /// Where.
        path: PathBuf,
    },
    /// The folder contains no run.
    #[error("{path} contains no run: it has no run.json; name the folder that an earlier `loom run` wrote", path = path.display())]
    NoRun {
        /// Where.
        path: PathBuf,
    },
    /// Another process is using it.
    #[error("{path} is in use by another `loom`; wait for it to end", path = path.display())]
    Busy {
        /// Where.
        path: PathBuf,
    },
    /// Not in the format that `docs/FORMATS.md` describes.
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

/// Adds the path to an I/O error.
pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |source| FileError::Io { path, source }
}

/// A run's folder, locked by this process.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// The lock on its manifest.
    _lock: FileLock,
}

impl RunFolder {
    /// Opens the folder of an existing run and returns its manifest and the configuration's text.
    ///
    /// # Errors
    /// [`FileError::NoRun`] when there is none, [`FileError::Busy`] when another process has locked it.
    pub fn open(path: &Path) -> Result<(Self, Manifest, String), FileError> {
        if !path.join("run.json").is_file() {
            return Err(FileError::NoRun { path: path.to_owned() });
        }
        let folder = Self::lock(path)?;
        let manifest = read_json(&path.join("run.json"))?;
        let yaml = path.join("config.yaml");
        let yaml = read_text(&yaml, CONFIG_BYTES_MAX).map_err(at(&yaml))?;
        Ok((folder, manifest, yaml))
    }

    fn lock(path: &Path) -> Result<Self, FileError> {
        let file = path.join("run.json");
        let manifest = open_regular(&file).map_err(at(&file))?;
        let lock = FileLock::exclusive(manifest).map_err(at(&file))?;
        let lock = lock.ok_or_else(|| FileError::Busy { path: path.to_owned() })?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files of rollout number `rollout`.
    pub(super) fn rollout(&self, rollout: usize) -> RolloutFiles {
        let file = |ending: &str| self.path.join(format!("rollout_{rollout:03}.{ending}"));
        RolloutFiles { transcript: file("json"), tokens: file("tokens.jsonl"), partial: file("partial.jsonl") }
    }
}

/// The folder of a new run that has no manifest yet. If it is dropped without one, a folder that it created is removed.
#[derive(Debug)]
pub(super) struct NewRunFolder {
    path: PathBuf,
    /// The folders that were created, the innermost first.
    created: Vec<PathBuf>,
    claim: Option<FolderClaim>,
}

impl NewRunFolder {
    /// Creates the folder, if it does not exist, and claims it.
    ///
    /// # Errors
    /// [`FileError::Exists`] when it already contains a run, [`FileError::Busy`] when another process has claimed it.
    pub(super) fn claim(path: &Path) -> Result<Self, FileError> {
        if path.is_file() {
            return Err(FileError::NoFolder { path: path.to_owned() });
        }
        let missing = path.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
        let created: Vec<_> = missing.map(Path::to_owned).collect();
        fs::create_dir_all(path).map_err(at(path))?;
        for folder in created.iter().rev() {
            sync_folder(folder)?;
        }
        // Two processes may choose the same name: the one that locks the claim file first writes, the other one then finds
        // the claim or the run.
        let claim = FolderClaim::take(path)?;
        if path.join("run.json").exists() {
            return Err(FileError::Exists { path: path.to_owned() });
        }
        Ok(Self { path: path.to_owned(), created, claim: Some(claim) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the configuration and the manifest, and locks the run.
    pub(super) fn finish(mut self, manifest: &Manifest, yaml: &str) -> Result<RunFolder, FileError> {
        let file = self.path.join("run.json");
        write_atomically(&self.path.join("config.yaml"), yaml.as_bytes())?;
        let mut text = serde_json::to_string_pretty(manifest).map_err(|error| at(&file)(error.into()))?;
        text.push('\n');
        write_atomically(&file, text.as_bytes())?;
        let locked = RunFolder::lock(&self.path);
        self.created.clear();
        locked
    }
}

impl Drop for NewRunFolder {
    fn drop(&mut self) {
        drop(self.claim.take());
        // Best effort: a folder without a manifest contains no run, and can be used for one.
        if self.created.contains(&self.path) {
            let _removed = fs::remove_dir_all(&self.path);
        }
        for folder in self.created.iter().skip(1) {
            let _removed = fs::remove_dir(folder);
        }
    }
}

/// The lock on a new run's folder while its first files are written.
#[derive(Debug)]
struct FolderClaim {
    path: PathBuf,
    _lock: FileLock,
}

impl FolderClaim {
    fn take(folder: &Path) -> Result<Self, FileError> {
        let path = folder.join("run.claim");
        let file = create_inside(&path).map_err(at(&path))?;
        let lock = FileLock::exclusive(file).map_err(at(&path))?;
        let lock = lock.ok_or_else(|| FileError::Busy { path: folder.to_owned() })?;
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for FolderClaim {
    fn drop(&mut self) {
        // A leftover file is harmless: only the lock matters.
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

/// A finished turn, as stored in the partial file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct TurnLine {
    pub(super) turn: Turn,
    pub(super) tokens: Vec<TokenLine>,
}

/// The files that an earlier process wrote for a rollout.
pub(super) enum ExistingFiles {
    /// Nothing usable.
    Nothing,
    /// The finished transcript.
    Finished(PathBuf),
    /// Its first turns, and whether an incomplete line was truncated after them.
    Begun {
        /// The transcript without turns.
        head: Box<Transcript>,
        turns: Vec<TurnLine>,
        torn: bool,
    },
}

impl RolloutFiles {
    /// Finds the rollout's files; truncates an incomplete last line of the partial file.
    pub(super) fn find(&self) -> Result<ExistingFiles, FileError> {
        if self.transcript.exists() {
            if self.partial.exists() {
                fs::remove_file(&self.partial).map_err(at(&self.partial))?;
            }
            return Ok(ExistingFiles::Finished(self.transcript.clone()));
        }
        let text = match open_regular(&self.partial) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ExistingFiles::Nothing),
            Err(error) => return Err(at(&self.partial)(error)),
        };
        let mut reader = BufReader::new(text.take(TRANSCRIPT_BYTES_MAX));
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
        let Some(head) = head else { return Ok(ExistingFiles::Nothing) };
        if torn {
            let file = append_inside(&self.partial).map_err(at(&self.partial))?;
            file.set_len(whole).and_then(|()| file.sync_all()).map_err(at(&self.partial))?;
        }
        Ok(ExistingFiles::Begun { head, turns, torn })
    }

    /// The error for an invalid partial file.
    pub(super) fn corrupt(&self, line: usize, why: &str) -> FileError {
        FileError::Corrupt { path: self.partial.clone(), line, why: why.to_owned() }
    }

    /// Creates the partial file with `head`, the transcript without turns.
    pub(super) fn create_partial(&self, head: &Transcript) -> Result<PartialLog, FileError> {
        let file = create_inside(&self.partial).map_err(at(&self.partial))?;
        let mut log = PartialLog { path: self.partial.clone(), file };
        log.append(head)?;
        sync_folder(&self.partial)?;
        Ok(log)
    }

    /// Opens the partial file for appending.
    pub(super) fn reopen_partial(&self) -> Result<PartialLog, FileError> {
        let file = append_inside(&self.partial).map_err(at(&self.partial))?;
        Ok(PartialLog { path: self.partial.clone(), file })
    }

    /// Writes the finished rollout; the transcript last, because its presence implies that the other files exist. The
    /// digests of the files are given to `record` before.
    pub(super) fn finish<E: From<FileError>>(
        &self,
        transcript: &Transcript,
        tokens: &[TokenLine],
        record: impl FnOnce(&BTreeMap<String, Digest>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut lines = Vec::new();
        for line in tokens {
            serde_json::to_writer(&mut lines, line).map_err(|error| at(&self.tokens)(error.into()))?;
            lines.push(b'\n');
        }
        let text = json_bytes(&self.transcript, transcript)?;
        let named = |path: &Path, bytes: &[u8]| {
            (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), Digest::of(bytes))
        };
        record(&BTreeMap::from([named(&self.tokens, &lines), named(&self.transcript, &text)]))?;
        write_atomically(&self.tokens, &lines)?;
        write_atomically(&self.transcript, &text)?;
        Ok(fs::remove_file(&self.partial).map_err(at(&self.partial))?)
    }
}

/// The append-only file of an unfinished rollout.
#[derive(Debug)]
pub(super) struct PartialLog {
    path: PathBuf,
    file: File,
}

impl PartialLog {
    /// Appends one line and syncs it.
    pub(super) fn append<T: Serialize>(&mut self, value: &T) -> Result<(), FileError> {
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
    let why =
        || format!("`{}` version {} is not supported by this version of loom", transcript.format, transcript.version);
    if known { Ok(transcript) } else { Err(FileError::Corrupt { path: path.to_owned(), line: 1, why: why() }) }
}

/// Writes `value` as indented JSON to `path`, atomically.
///
/// # Errors
/// When it cannot be written.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), FileError> {
    write_atomically(path, &json_bytes(path, value)?)
}

/// The bytes that [`write_json`] writes to `path`.
///
/// # Errors
/// When `value` cannot be written as JSON.
pub fn json_bytes<T: Serialize>(path: &Path, value: &T) -> Result<Vec<u8>, FileError> {
    let mut text = serde_json::to_vec_pretty(value).map_err(|error| at(path)(error.into()))?;
    text.push(b'\n');
    Ok(text)
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
    match read_text(path, TRANSCRIPT_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(FileError::TooLarge { path: path.to_owned() }),
        read => read.map_err(at(path)),
    }
}

/// Writes `bytes` to `path` atomically; a link there is replaced.
pub(super) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    write_inside(path, bytes).map_err(at(path))
}

/// Makes the name of `path` durable.
fn sync_folder(path: &Path) -> Result<(), FileError> {
    sync_parent(path).map_err(at(path))
}
