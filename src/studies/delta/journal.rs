//! A sweep that can be interrupted: one line of `cells.jsonl` for each passage and setting, on the disk before the next.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};

use super::measure::{Figures, How, Read, figures, read};
use super::passage::Passage;
use super::plan::Plan;
use super::setting::{Setting, Window};
use super::{DeltaStudyError, at};
use crate::foundation::base::Digest;
use crate::foundation::chat::{LanguageModel, ModelError};
use crate::foundation::store::write_whole;

/// What fixes a sweep.
const PLAN: &str = "sweep.json";
/// What is finished of it.
const CELLS: &str = "cells.jsonl";
/// Settings of one passage that are read at the same time.
const AT_ONCE: usize = 8;
/// The largest vocabulary that divergences are taken over in full unless something else is asked for.
const EXACT_MAX: usize = 8_192;
/// Alternatives with a larger one.
const ALTERNATIVES: usize = 256;

/// A sweep, finished.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// What was done.
    pub plan: Plan,
    /// Every setting, in the plan's order.
    pub settings: Vec<Setting>,
    /// The model's layers.
    pub layers: usize,
    /// The passages' names.
    pub passages: Vec<String>,
    /// By passage, and for each the model as it is first, then the settings. In words where the model's output was no
    /// distribution any more.
    pub cells: Vec<Vec<Result<Figures, String>>>,
}

/// The first words of a folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Head {
    format: String,
    version: u32,
    plan: Plan,
    model: Option<Digest>,
    passages: Vec<(String, Digest)>,
}

/// One line: which passage under which setting; 0 is the model as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Line {
    passage: usize,
    setting: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    figures: Option<Figures>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

/// Reads every passage under every setting of `plan`, or goes on where `folder` says that it stopped. `told` hears how many
/// cells are done, and of how many.
///
/// # Errors
/// See [`DeltaStudyError`]. A setting under which the model breaks down is no error: its cells say so.
pub async fn sweep(
    model: &Arc<dyn LanguageModel>,
    plan: &Plan,
    passages: &[Passage],
    folder: &Path,
    mut told: impl FnMut(usize, usize),
) -> Result<Sweep, DeltaStudyError> {
    let info = model.info();
    let layers = info.layers.filter(|_| info.delta).ok_or_else(|| DeltaStudyError::NoDelta(info.name.clone()))?;
    let settings = plan.settings(layers)?;
    let mut journal = Journal::open(folder, &Head::of(plan, info.digest, passages))?;
    let vocabulary = info.vocabulary.unwrap_or_default();
    let top = plan.top.unwrap_or(if vocabulary <= EXACT_MAX { vocabulary } else { ALTERNATIVES });
    let how = How { top: top.clamp(1, vocabulary.max(1)), continuation: plan.continuation, readings: true };
    let all = passages.len() * (settings.len() + 1);
    told(journal.done.len(), all);
    for (number, passage) in passages.iter().enumerate() {
        let missing: Vec<usize> =
            (0..=settings.len()).filter(|setting| !journal.done.contains_key(&(number, *setting))).collect();
        if missing.is_empty() {
            continue;
        }
        let base = read(&**model, &passage.ids, None, Window::ALL, how).await?;
        let cell = |setting: usize| {
            let (model, settings, base) = (&**model, &settings, &base);
            async move {
                let setting = setting.checked_sub(1).and_then(|at| settings.get(at));
                one(model, passage, setting.map(|setting| (setting, layers)), base, how).await
            }
        };
        let mut cells = stream::iter(missing)
            .map(|setting| {
                let cell = cell(setting);
                async move { Ok::<_, DeltaStudyError>((setting, cell.await?)) }
            })
            .buffered(AT_ONCE);
        while let Some((setting, outcome)) = cells.try_next().await? {
            let (figures, failed) = match outcome {
                Ok(figures) => (Some(figures), None),
                Err(why) => (None, Some(why)),
            };
            journal.add(Line { passage: number, setting, figures, failed })?;
            told(journal.done.len(), all);
        }
    }
    let of = |passage: usize, setting: usize| match journal.done.get(&(passage, setting)) {
        Some(Line { figures: Some(figures), .. }) => Ok(figures.clone()),
        Some(Line { failed: Some(why), .. }) => Err(why.clone()),
        _ => Err("it was not measured".to_owned()),
    };
    let cells =
        (0..passages.len()).map(|passage| (0..=settings.len()).map(|setting| of(passage, setting)).collect()).collect();
    let passages = passages.iter().map(|passage| passage.name.clone()).collect();
    Ok(Sweep { plan: plan.clone(), settings, layers, passages, cells })
}

/// A cell; in words where the gains break the model.
async fn one(
    model: &dyn LanguageModel,
    passage: &Passage,
    setting: Option<(&Setting, usize)>,
    base: &Read,
    how: How,
) -> Result<Result<Figures, String>, DeltaStudyError> {
    let Some((setting, layers)) = setting else { return Ok(Ok(figures(model, passage, base, base)?)) };
    match read(model, &passage.ids, Some(&setting.gains(layers)), setting.window, how).await {
        Ok(read) => {
            let figures = figures(model, passage, &read, base)?;
            let sane = figures.kl.is_finite() && figures.layers.iter().all(|layer| layer.state_norm.is_finite());
            Ok(if sane { Ok(figures) } else { Err("its state is no longer finite".to_owned()) })
        }
        Err(ModelError::Failed { why, .. }) => Ok(Err(why)),
        Err(error) => Err(error.into()),
    }
}

impl Head {
    fn of(plan: &Plan, model: Option<Digest>, passages: &[Passage]) -> Self {
        let digest = |passage: &Passage| {
            let bytes: Vec<u8> = passage.ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            (passage.name.clone(), Digest::of(bytes))
        };
        Self {
            format: "loom-delta-sweep".to_owned(),
            version: 1,
            plan: plan.clone(),
            model,
            passages: passages.iter().map(digest).collect(),
        }
    }
}

struct Journal {
    file: File,
    path: std::path::PathBuf,
    done: BTreeMap<(usize, usize), Line>,
}

impl Journal {
    /// Begins in an empty folder, or goes on in one that holds the same sweep.
    fn open(folder: &Path, head: &Head) -> Result<Self, DeltaStudyError> {
        fs::create_dir_all(folder).map_err(at(folder))?;
        let plan = folder.join(PLAN);
        let path = folder.join(CELLS);
        match fs::read(&plan) {
            Ok(bytes) => {
                let there: Option<Head> = serde_json::from_slice(&bytes).ok();
                if there.as_ref() != Some(head) {
                    return Err(DeltaStudyError::Another { path: folder.to_owned() });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.exists() => {
                let mut bytes = serde_json::to_vec_pretty(head)?;
                bytes.push(b'\n');
                write_whole(&plan, &bytes).map_err(at(&plan))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(DeltaStudyError::Another { path: folder.to_owned() });
            }
            Err(error) => return Err(at(&plan)(error)),
        }
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(at(&path))?;
        let text = fs::read_to_string(&path).map_err(at(&path))?;
        // A line without its end was being written when the machine stopped: it is measured again.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).map_err(at(&path))?;
        let mut done = BTreeMap::new();
        for line in text.get(..whole).unwrap_or_default().lines() {
            let line: Line = serde_json::from_str(line)?;
            done.insert((line.passage, line.setting), line);
        }
        Ok(Self { file, path, done })
    }

    fn add(&mut self, line: Line) -> Result<(), DeltaStudyError> {
        let mut bytes = serde_json::to_vec(&line)?;
        bytes.push(b'\n');
        self.file.write_all(&bytes).and_then(|()| self.file.sync_data()).map_err(at(&self.path))?;
        self.done.insert((line.passage, line.setting), line);
        Ok(())
    }
}
