//! A sweep's folder: its file, its manifest, and the folder of each cell's run.
//!
//! The manifest does not depend on the time or the shard, so every machine writes the same bytes, also into a
//! shared folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::cells::{Cell, Combination, Shard, combinations};
use super::file::SweepFile;
use super::{SweepError, at};
use crate::foundation::base::Digest;
use crate::foundation::base::limits::{CONFIG_BYTES_MAX, RESULT_BYTES_MAX, SWEEP_CELLS_MAX};
use crate::foundation::chat::ModelChain;
use crate::foundation::config::{ConfigErrors, Problem};
use crate::foundation::store::{read_limited, read_text, require_no_links, write_shared};
use crate::inference::providers::OpenOptions;
use crate::simulation::persona::{self, AdversaryKind, PersonaConfig};
use crate::simulation::rollout::{Run, RunPlan, turn_count};

/// The value of [`SweepManifest::format`].
const FORMAT: &str = "loom-sweep";
/// The version that this program writes and reads.
const VERSION: u32 = 1;
/// The manifest's file.
pub(super) const MANIFEST: &str = "sweep.json";

/// The definition of a sweep: `sweep.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepManifest {
    /// `loom-sweep`.
    pub format: String,
    /// 1.
    pub version: u32,
    /// The version of the program that started it.
    pub loom: String,
    /// The digest of the sweep's file.
    pub digest: Digest,
    /// All cells.
    pub cells: Vec<Cell>,
}

impl SweepManifest {
    /// Reads the manifest of the sweep in `folder`.
    ///
    /// # Errors
    /// [`SweepError::NoSweep`].
    pub fn read(folder: &Path) -> Result<Self, SweepError> {
        let none = |why: String| SweepError::NoSweep { path: folder.to_owned(), why };
        let bytes = read_limited(&folder.join(MANIFEST), RESULT_BYTES_MAX).map_err(|error| none(error.to_string()))?;
        let manifest: Self = serde_json::from_slice(&bytes).map_err(|error| none(error.to_string()))?;
        if manifest.format != FORMAT || manifest.version != VERSION {
            return Err(none(format!("`{}` version {} is not known", manifest.format, manifest.version)));
        }
        Ok(manifest)
    }
}

/// A sweep that is ready to run.
pub struct Sweep {
    text: String,
    manifest: SweepManifest,
    plans: Vec<RunPlan>,
}

impl Sweep {
    /// Reads the sweep's file at `path`.
    ///
    /// # Errors
    /// If the file, or a config that it names, is invalid.
    pub fn read(path: &Path) -> Result<Self, SweepError> {
        let (file, text) = SweepFile::load(path)?;
        let configs = texts(&file, path)?;
        let count = combinations(&file).size_hint().0;
        if count > SWEEP_CELLS_MAX {
            return Err(SweepError::TooMany { cells: count, max: SWEEP_CELLS_MAX });
        }
        let (mut plans, mut cells) = (Vec::new(), Vec::new());
        for (number, combination) in combinations(&file).enumerate() {
            let Some((plan, cell)) = plan(&file, &configs, &combination, number)? else { continue };
            plans.push(plan);
            cells.push(cell);
        }
        let manifest = SweepManifest {
            format: FORMAT.to_owned(),
            version: VERSION,
            loom: env!("CARGO_PKG_VERSION").to_owned(),
            digest: Digest::of(&text),
            cells,
        };
        Ok(Self { text, manifest, plans })
    }

    /// Prepares `folder` for the sweep, unless the same sweep was started in it.
    ///
    /// # Errors
    /// If it contains another sweep, or cannot be written.
    pub fn prepare(&self, folder: &Path) -> Result<(), SweepError> {
        if !folder.join(MANIFEST).exists() {
            return write_manifest(folder, &self.manifest, &self.text);
        }
        if SweepManifest::read(folder)? != self.manifest {
            return Err(SweepError::DifferentSweep { path: folder.to_owned() });
        }
        Ok(())
    }

    /// The sweep's definition.
    pub const fn manifest(&self) -> &SweepManifest {
        &self.manifest
    }

    /// The cells of a shard, in order.
    pub fn cells(&self, shard: Shard) -> impl Iterator<Item = &Cell> {
        self.manifest.cells.iter().filter(move |cell| shard.contains(cell.cell))
    }

    /// The folder of a shard's receipts: shards that write into one folder at the same time each keep their own.
    ///
    /// # Errors
    /// If it leads out of the sweep's `folder` through a link.
    pub fn receipts(folder: &Path, shard: Shard) -> Result<PathBuf, SweepError> {
        within(folder, &format!("receipts/{}", shard.folder()))
    }

    /// Creates the run of a cell in the sweep's `folder`, or resumes an existing one.
    ///
    /// # Errors
    /// If a model cannot be opened, a config is invalid, or the folder cannot be used.
    pub fn open_run(&self, folder: &Path, cell: &Cell, options: &OpenOptions) -> Result<Run, SweepError> {
        let another = || SweepError::DifferentSweep { path: folder.to_owned() };
        let folder = within(folder, &cell.folder())?;
        let wrong = |source| SweepError::Run { cell: cell.cell, source };
        if folder.join("run.json").is_file() {
            return Run::resume(&folder, options).map_err(wrong);
        }
        let Some(plan) = self.plans.get(cell.cell) else {
            return Err(another());
        };
        Run::create(plan, &folder, options).map_err(wrong)
    }
}

/// A folder inside `folder`; no part of it may be a link.
pub(super) fn within(folder: &Path, name: &str) -> Result<PathBuf, SweepError> {
    let path = folder.join(name);
    require_no_links(folder, &path).map_err(at(&path))?;
    Ok(path)
}

/// The configs' names and texts.
fn texts(file: &SweepFile, path: &Path) -> Result<Vec<(String, String)>, SweepError> {
    let base = path.parent().unwrap_or(Path::new(""));
    let each = file.configs.iter().map(|config| {
        let path = base.join(config);
        // Validated before policies are added, so that problems are shown with the file's own lines.
        persona::load(&path)?;
        Ok((config.clone(), read_text(&path, CONFIG_BYTES_MAX).map_err(at(&path))?))
    });
    each.collect()
}

fn plan(
    file: &SweepFile,
    configs: &[(String, String)],
    combination: &Combination,
    number: usize,
) -> Result<Option<(RunPlan, Cell)>, SweepError> {
    let at = (
        configs.get(combination.config),
        file.persona_models.get(combination.persona),
        file.targets.get(combination.target),
        file.adversaries.get(combination.adversary),
        file.deltas.get(combination.delta),
        file.seeds.get(combination.seed),
    );
    let (Some((name, text)), Some(persona), Some(target), Some(adversary), Some(delta), Some(seed)) = at else {
        return Ok(None);
    };
    let (yaml, config) = with_delta(name, text, delta.as_ref())?;
    let adversary = adversary.unwrap_or(config.evaluation.adversary);
    let interlocutor = match adversary {
        AdversaryKind::None => target.clone(),
        _ => adversary_model(file, &config),
    };
    let turns =
        turn_count(&config, file.turns).map_err(|error| SweepError::Run { cell: number, source: error.into() })?;
    let cell = Cell {
        cell: number,
        config: name.clone(),
        config_digest: config.digest,
        persona_model: persona.to_string(),
        interlocutor_model: interlocutor.to_string(),
        adversary,
        delta: delta.as_ref().map(|(name, _)| name.clone()),
        seed: *seed,
        rollouts: file.rollouts,
        turns,
    };
    let plan = RunPlan {
        regulator: config.regulator,
        calibration: None,
        config: Arc::new(config),
        yaml,
        seed: *seed,
        rollouts: file.rollouts,
        turns,
        adversary,
        adversary_script: None,
        persona: persona.clone(),
        interlocutor,
        judge: file.judge.clone(),
    };
    Ok(Some((plan, cell)))
}

fn adversary_model(file: &SweepFile, config: &PersonaConfig) -> ModelChain {
    let named = file.adversary_model.as_ref().or(config.evaluation.adversary_model.as_ref());
    named.unwrap_or(&file.judge).clone()
}

/// The config with the policy added as its last line, so that a cell's folder contains exactly what was run.
fn with_delta(
    name: &str,
    text: &str,
    delta: Option<&(String, String)>,
) -> Result<(String, PersonaConfig), ConfigErrors> {
    let Some((policy, json)) = delta else { return Ok((text.to_owned(), persona::parse(name, text)?)) };
    let alone = persona::parse(name, text)?;
    if alone.delta != persona::DeltaPolicy::Off {
        let problem = Problem::new(0..0, format!("{name} has its own `delta`, and the sweep adds `{policy}`"))
            .help("remove it from the config, or `deltas` from the sweep");
        return Err(ConfigErrors::new(name, "", vec![problem]));
    }
    let yaml = format!("{}\n\n# The sweep's policy `{policy}`.\ndelta: {json}\n", text.trim_end());
    let config = persona::parse(name, &yaml)?;
    Ok((yaml, config))
}

/// Writes the manifest atomically: processes that share the folder may write it at the same time.
fn write_manifest(folder: &Path, manifest: &SweepManifest, text: &str) -> Result<(), SweepError> {
    fs::create_dir_all(folder).map_err(at(folder))?;
    let json = serde_json::to_string_pretty(manifest)? + "\n";
    for (name, content) in [("sweep.yaml", text), (MANIFEST, &json)] {
        let path = folder.join(name);
        write_shared(&path, content.as_bytes()).map_err(at(&path))?;
    }
    Ok(())
}
