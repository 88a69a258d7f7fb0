//! Parts of a sweep, played by different processes, put into one folder.

use std::fs;
use std::path::{Path, PathBuf};

use super::folder::{MANIFEST, SweepManifest};
use super::{SweepError, at};
use crate::simulation::rollout::{Outcome, read_transcript};

/// The most cells that a message names.
const NAMED_MAX: usize = 20;

/// Copies the cells of `parts` into `output`. Parts may overlap where they hold the same words.
///
/// # Errors
/// When the parts are not of one sweep, a cell is missing or unfinished, or two parts differ. Nothing is written before
/// all of that is known.
pub fn merge(parts: &[PathBuf], output: &Path) -> Result<SweepManifest, SweepError> {
    let Some((first, others)) = parts.split_first() else {
        return Err(SweepError::NoSweep { path: output.to_owned(), why: "no part is named".to_owned() });
    };
    let manifest = SweepManifest::read(first)?;
    for other in others {
        if SweepManifest::read(other)? != manifest {
            return Err(SweepError::Another { path: other.clone() });
        }
    }
    if output.join(MANIFEST).exists() && SweepManifest::read(output)? != manifest {
        return Err(SweepError::Another { path: output.to_owned() });
    }
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for cell in &manifest.cells {
        let holding: Vec<PathBuf> = parts
            .iter()
            .map(|part| part.join(cell.folder()))
            .filter(|folder| complete(folder, cell.rollouts))
            .collect();
        match holding.split_first() {
            Some((one, rest)) => {
                for other in rest {
                    same(cell.cell, cell.rollouts, one, other)?;
                }
                found.push((cell.folder(), one.clone()));
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
    for (name, from) in &found {
        let to = output.join(name);
        if to != *from && !same_folder(from, &to) {
            copy(from, &to)?;
        }
    }
    // The manifest last: it says that the cells are there.
    for name in ["sweep.yaml", MANIFEST] {
        let (from, to) = (first.join(name), output.join(name));
        if !same_folder(&from, &to) {
            fs::copy(&from, &to).map_err(at(&to))?;
        }
    }
    Ok(manifest)
}

/// Every rollout of the cell is there and ended.
pub(super) fn complete(folder: &Path, rollouts: usize) -> bool {
    (0..rollouts).all(|rollout| folder.join(format!("rollout_{rollout:03}.json")).is_file())
}

fn same_folder(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Two parts may both hold a cell, if it is the same but for what a clock measured.
fn same(cell: usize, rollouts: usize, a: &Path, b: &Path) -> Result<(), SweepError> {
    for rollout in 0..rollouts {
        let file = format!("rollout_{rollout:03}.json");
        let words = |folder: &Path| {
            let transcript =
                read_transcript(&folder.join(&file)).map_err(|error| SweepError::Run { cell, source: error.into() })?;
            let said: Vec<(String, String)> = transcript
                .turns
                .iter()
                .map(|turn| (turn.persona.content.clone(), turn.interlocutor.content.clone()))
                .collect();
            Ok::<(Outcome, _), SweepError>((transcript.outcome, said))
        };
        if words(a)? != words(b)? {
            return Err(SweepError::Differs { cell, file, a: a.to_owned(), b: b.to_owned() });
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), SweepError> {
    fs::create_dir_all(to).map_err(at(to))?;
    for entry in fs::read_dir(from).map_err(at(from))? {
        let path = entry.map_err(at(from))?.path();
        if let (true, Some(name)) = (path.is_file(), path.file_name()) {
            fs::copy(&path, to.join(name)).map_err(at(&path))?;
        }
    }
    Ok(())
}
