//! Merges parts of a sweep that different processes ran into one folder.

use std::fs;
use std::path::{Path, PathBuf};

use super::folder::{MANIFEST, SweepManifest, within};
use super::{SweepError, at};
use crate::foundation::store::copy_inside;
use crate::simulation::judge::scoring::merge_scores;
use crate::simulation::rollout::{FileError, Outcome, Transcript, read_transcript, write_json};

/// Maximum number of cells named in a message.
const NAMED_MAX: usize = 20;

/// Copies the cells of `parts` into `output`. Parts may contain the same cell if the messages are the same; scores are
/// merged.
///
/// # Errors
/// If the parts belong to different sweeps, a cell is missing or unfinished, or two parts differ in messages or scores.
/// All of that is checked before anything is written.
pub fn merge(parts: &[PathBuf], output: &Path) -> Result<SweepManifest, SweepError> {
    let Some((first, others)) = parts.split_first() else {
        return Err(SweepError::NoSweep { path: output.to_owned(), why: "no part is named".to_owned() });
    };
    let manifest = SweepManifest::read(first)?;
    for other in others {
        if SweepManifest::read(other)? != manifest {
            return Err(SweepError::DifferentSweep { path: other.clone() });
        }
    }
    if output.join(MANIFEST).exists() && SweepManifest::read(output)? != manifest {
        return Err(SweepError::DifferentSweep { path: output.to_owned() });
    }
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for cell in &manifest.cells {
        let copies: Vec<PathBuf> = parts
            .iter()
            .map(|part| part.join(cell.folder()))
            .filter(|folder| is_complete(folder, cell.rollouts))
            .collect();
        match copies.split_first() {
            Some((one, rest)) => {
                let changed = merged_transcripts(cell.cell, cell.rollouts, one, rest)?;
                found.push((cell.cell, cell.folder(), one.clone(), changed));
            }
            None => missing.push(cell.cell.to_string()),
        }
    }
    if !missing.is_empty() {
        let (count, all) = (missing.len(), manifest.cells.len());
        missing.truncate(NAMED_MAX);
        let more = if count > NAMED_MAX { ", …" } else { "" };
        return Err(SweepError::Incomplete { missing: count, all, cells: missing.join(", ") + more });
    }
    for (cell, name, from, changed) in &found {
        let to = within(output, name)?;
        if to != *from && !same_folder(from, &to) {
            copy(from, &to)?;
        }
        for (file, transcript) in changed {
            write_json(&to.join(file), transcript).map_err(unreadable(*cell))?;
        }
    }
    // The manifest is written last: it marks the folder as complete.
    for name in ["sweep.yaml", MANIFEST] {
        let (from, to) = (first.join(name), output.join(name));
        if !same_folder(&from, &to) {
            copy_inside(&from, &to).map_err(at(&to))?;
        }
    }
    Ok(manifest)
}

/// Whether all rollouts of the cell are finished.
pub(super) fn is_complete(folder: &Path, rollouts: usize) -> bool {
    (0..rollouts).all(|rollout| folder.join(format!("rollout_{rollout:03}.json")).is_file())
}

fn same_folder(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

fn unreadable(cell: usize) -> impl Fn(FileError) -> SweepError {
    move |error| SweepError::Run { cell, source: error.into() }
}

/// Merges the scores of several copies of a cell, which may differ only in times and scores. Returns the transcripts of
/// `one` that gain scores, with their file names.
fn merged_transcripts(
    cell: usize,
    rollouts: usize,
    one: &Path,
    others: &[PathBuf],
) -> Result<Vec<(String, Transcript)>, SweepError> {
    let mut changed = Vec::new();
    for rollout in 0..if others.is_empty() { 0 } else { rollouts } {
        let file = format!("rollout_{rollout:03}.json");
        let read = |folder: &Path| read_transcript(&folder.join(&file)).map_err(unreadable(cell));
        let mut transcript = read(one)?;
        let before = transcript.scores.clone();
        for other in others {
            let (file, a, b) = (file.clone(), one.to_owned(), other.clone());
            let theirs = read(other)?;
            if content(&transcript) != content(&theirs) {
                return Err(SweepError::Differs { cell, file, a, b });
            }
            merge_scores(&mut transcript.scores, theirs.scores).map_err(|score| SweepError::Scores {
                cell,
                file,
                score,
                a,
                b,
            })?;
        }
        if transcript.scores != before {
            changed.push((file, transcript));
        }
    }
    Ok(changed)
}

/// The outcome and the messages.
fn content(transcript: &Transcript) -> (&Outcome, Vec<(&str, &str)>) {
    let messages =
        transcript.turns.iter().map(|turn| (turn.persona.content.as_str(), turn.interlocutor.content.as_str()));
    (&transcript.outcome, messages.collect())
}

fn copy(from: &Path, to: &Path) -> Result<(), SweepError> {
    fs::create_dir_all(to).map_err(at(to))?;
    for entry in fs::read_dir(from).map_err(at(from))? {
        let path = entry.map_err(at(from))?.path();
        if let (true, Some(name)) = (path.is_file(), path.file_name()) {
            copy_inside(&path, &to.join(name)).map_err(at(&path))?;
        }
    }
    Ok(())
}
