//! A resumable sweep: one line of `cells.jsonl` for each passage and setting, synced to disk before the next.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};

use super::measure::{PassageMetrics, PassageReading, ReadOptions, passage_metrics, read};
use super::passage::Passage;
use super::plan::SweepPlan;
use super::setting::{GainSetting, TokenWindow};
use super::{DeltaStudyError, at};
use crate::foundation::base::Digest;
use crate::foundation::base::limits::RESULT_BYTES_MAX;
use crate::foundation::chat::{LanguageModel, ModelError};
use crate::foundation::store::{append_inside, read_limited, read_text, write_inside};

/// File with the sweep's definition.
const PLAN: &str = "sweep.json";
/// File with the finished cells.
const CELLS: &str = "cells.jsonl";
/// Settings of one passage that are scored concurrently.
const AT_ONCE: usize = 8;
/// Largest vocabulary for which divergences are exact by default.
const EXACT_MAX: usize = 8_192;
/// Alternatives per token for larger vocabularies.
const ALTERNATIVES: usize = 256;

/// A finished sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// The plan.
    pub plan: SweepPlan,
    /// Every setting, in the plan's order.
    pub settings: Vec<GainSetting>,
    /// The model's layers.
    pub layers: usize,
    /// The passages' names.
    pub passages: Vec<String>,
    /// Per passage: first without gains, then each setting. An error where the model's output was no longer a
    /// distribution.
    pub cells: Vec<Vec<Result<PassageMetrics, String>>>,
}

/// The sweep's definition, as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SweepHead {
    format: String,
    version: u32,
    plan: SweepPlan,
    model: Option<Digest>,
    passages: Vec<(String, Digest)>,
}

/// One cell: a passage under a setting; setting 0 is without gains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct CellLine {
    passage: usize,
    setting: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    figures: Option<PassageMetrics>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

/// Scores every passage under every setting of `plan`, or resumes the sweep in `folder`. `on_progress` is called with the
/// number of finished cells and the total.
///
/// # Errors
/// See [`DeltaStudyError`]. A setting under which the model fails is not an error: its cells record it.
pub async fn sweep(
    model: &Arc<dyn LanguageModel>,
    plan: &SweepPlan,
    passages: &[Passage],
    folder: &Path,
    mut on_progress: impl FnMut(usize, usize),
) -> Result<Sweep, DeltaStudyError> {
    let info = model.info();
    let layers = info.layers.filter(|_| info.delta).ok_or_else(|| DeltaStudyError::NoDelta(info.name.clone()))?;
    let settings = plan.settings(layers)?;
    let mut journal = Journal::open(folder, &SweepHead::of(plan, info.digest, passages))?;
    let vocabulary = info.vocabulary.unwrap_or_default();
    let top = plan.top.unwrap_or(if vocabulary <= EXACT_MAX { vocabulary } else { ALTERNATIVES });
    let how = ReadOptions { top: top.clamp(1, vocabulary.max(1)), continuation: plan.continuation, readings: true };
    let all = passages.len() * (settings.len() + 1);
    on_progress(journal.done.len(), all);
    for (number, passage) in passages.iter().enumerate() {
        let missing: Vec<usize> =
            (0..=settings.len()).filter(|setting| !journal.done.contains_key(&(number, *setting))).collect();
        if missing.is_empty() {
            continue;
        }
        let base = read(&**model, &passage.ids, None, TokenWindow::ALL, how).await?;
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
            journal.add(CellLine { passage: number, setting, figures, failed })?;
            on_progress(journal.done.len(), all);
        }
    }
    let of = |passage: usize, setting: usize| match journal.done.get(&(passage, setting)) {
        Some(CellLine { figures: Some(figures), .. }) => Ok(figures.clone()),
        Some(CellLine { failed: Some(why), .. }) => Err(why.clone()),
        _ => Err("it was not measured".to_owned()),
    };
    let cells =
        (0..passages.len()).map(|passage| (0..=settings.len()).map(|setting| of(passage, setting)).collect()).collect();
    let passages = passages.iter().map(|passage| passage.name.clone()).collect();
    Ok(Sweep { plan: plan.clone(), settings, layers, passages, cells })
}

/// One cell; an error text where the model fails under the gains.
async fn one(
    model: &dyn LanguageModel,
    passage: &Passage,
    setting: Option<(&GainSetting, usize)>,
    base: &PassageReading,
    how: ReadOptions,
) -> Result<Result<PassageMetrics, String>, DeltaStudyError> {
    let Some((setting, layers)) = setting else { return Ok(Ok(passage_metrics(model, passage, base, base)?)) };
    match read(model, &passage.ids, Some(&setting.gains(layers)), setting.window, how).await {
        Ok(read) => {
            let figures = passage_metrics(model, passage, &read, base)?;
            let sane = figures.kl.is_finite() && figures.layers.iter().all(|layer| layer.state_norm.is_finite());
            Ok(if sane { Ok(figures) } else { Err("its state is no longer finite".to_owned()) })
        }
        Err(ModelError::Failed { why, .. }) => Ok(Err(why)),
        Err(error) => Err(error.into()),
    }
}

impl SweepHead {
    fn of(plan: &SweepPlan, model: Option<Digest>, passages: &[Passage]) -> Self {
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
    done: BTreeMap<(usize, usize), CellLine>,
}

impl Journal {
    /// Starts in an empty folder, or resumes in one with the same sweep.
    fn open(folder: &Path, head: &SweepHead) -> Result<Self, DeltaStudyError> {
        fs::create_dir_all(folder).map_err(at(folder))?;
        let plan = folder.join(PLAN);
        let path = folder.join(CELLS);
        match read_limited(&plan, RESULT_BYTES_MAX) {
            Ok(bytes) => {
                let there: Option<SweepHead> = serde_json::from_slice(&bytes).ok();
                if there.as_ref() != Some(head) {
                    return Err(DeltaStudyError::DifferentSweep { path: folder.to_owned() });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.exists() => {
                let mut bytes = serde_json::to_vec_pretty(head)?;
                bytes.push(b'\n');
                write_inside(&plan, &bytes).map_err(at(&plan))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(DeltaStudyError::DifferentSweep { path: folder.to_owned() });
            }
            Err(error) => return Err(at(&plan)(error)),
        }
        let file = append_inside(&path).map_err(at(&path))?;
        let text = read_text(&path, RESULT_BYTES_MAX).map_err(at(&path))?;
        // Drop an incomplete last line, written when the process was interrupted: its cell is measured again.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).map_err(at(&path))?;
        let mut done = BTreeMap::new();
        for line in text.get(..whole).unwrap_or_default().lines() {
            let line: CellLine = serde_json::from_str(line)?;
            done.insert((line.passage, line.setting), line);
        }
        Ok(Self { file, path, done })
    }

    fn add(&mut self, line: CellLine) -> Result<(), DeltaStudyError> {
        let mut bytes = serde_json::to_vec(&line)?;
        bytes.push(b'\n');
        self.file.write_all(&bytes).and_then(|()| self.file.sync_data()).map_err(at(&self.path))?;
        self.done.insert((line.passage, line.setting), line);
        Ok(())
    }
}
