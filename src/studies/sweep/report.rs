//! The report on a sweep: every cell's scores, and each factor's levels with the other factors pooled. It is a function
//! of the transcripts and contains no times.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::cells::Cell;
use super::folder::SweepManifest;
use super::merge::is_complete;
use super::{SweepError, at};
use crate::foundation::base::Digest;
use crate::foundation::stats::mean;
use crate::foundation::store::write_shared;
use crate::foundation::text::markdown_code as code;
use crate::simulation::report::{Report, RolloutInterval, ScoreRow, StoredScore, bounds, interval};
use crate::simulation::rollout::Outcome;

/// The scores shown in the Markdown; the JSON contains all.
const SHOWN: [&str; 6] =
    ["words_per_message/1", "mattr_50/1", "novelty/1", "question_endings/1", "initiative/1", "standstill/1"];

/// The report on a sweep: `sweep_report.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepReport {
    /// `loom-sweep-report`.
    pub format: String,
    /// 1.
    pub version: u32,
    /// The version of the program that started the sweep.
    pub loom: String,
    /// The digest of the sweep's file.
    pub digest: Digest,
    /// Per cell.
    pub cells: Vec<CellReport>,
    /// Per level of each factor with several levels.
    pub factors: Vec<FactorRow>,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellReport {
    /// Its definition.
    #[serde(flatten)]
    pub cell: Cell,
    /// Rollouts that completed all planned turns.
    pub complete: usize,
    /// Findings of monitors.
    pub events: usize,
    /// Messages without a reply.
    pub failures: usize,
    /// The scores over its rollouts.
    pub scores: Vec<ScoreRow>,
    /// Scores stored in its transcripts.
    pub stored: Vec<StoredScore>,
    /// What could not be measured, with reasons.
    pub missing: Vec<String>,
}

/// One level of a factor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FactorRow {
    /// `config`, `persona_model`, `interlocutor_model`, `adversary`, `delta` or `seed`.
    pub factor: String,
    /// The level.
    pub level: String,
    /// The scores over the rollouts of all cells at that level.
    pub scores: Vec<PooledScore>,
}

/// A score over the rollouts of several cells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PooledScore {
    /// Its definition in `docs/SCORES.md`.
    pub id: String,
    /// The mean over rollouts.
    pub mean: Option<f64>,
    /// The 95 % interval over rollouts, as in a report.
    pub interval: Option<RolloutInterval>,
    /// Number of rollouts.
    pub rollouts: usize,
}

/// A cell and its rollouts' scores.
struct CellScores {
    report: CellReport,
    rollouts: Vec<Vec<(String, Option<f64>)>>,
}

impl SweepReport {
    /// Whether all cells of the sweep in `folder` are complete.
    pub fn is_ready(folder: &Path, manifest: &SweepManifest) -> bool {
        manifest.cells.iter().all(|cell| is_complete(&folder.join(cell.folder()), cell.rollouts))
    }

    /// The report on the sweep in `folder`.
    ///
    /// # Errors
    /// When a cell cannot be read.
    pub fn on(folder: &Path, manifest: &SweepManifest) -> Result<Self, SweepError> {
        let cells =
            manifest.cells.iter().map(|cell| cell_scores(folder, cell)).collect::<Result<Vec<CellScores>, _>>()?;
        let factors = factors(&cells);
        Ok(Self {
            format: "loom-sweep-report".to_owned(),
            version: 1,
            loom: manifest.loom.clone(),
            digest: manifest.digest,
            cells: cells.into_iter().map(|cell| cell.report).collect(),
            factors,
        })
    }

    /// Writes `sweep_report.json` and `sweep_report.md` into `folder`. Shards that end together may each write them.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write_to(&self, folder: &Path) -> Result<(), SweepError> {
        let json = serde_json::to_string_pretty(self)? + "\n";
        for (name, text) in [("sweep_report.json", &json), ("sweep_report.md", &self.markdown())] {
            let path = folder.join(name);
            write_shared(&path, text.as_bytes()).map_err(at(&path))?;
        }
        Ok(())
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        // Writing to a String does not fail.
        let _infallible = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "# Sweep of {} cells\n", self.cells.len())?;
        let head: Vec<String> = SHOWN.iter().map(|id| format!("`{id}`")).collect();
        writeln!(
            out,
            "| Cell | Config | Persona's model | Other side | Δ | Seed | Complete | Findings | {} |",
            head.join(" | ")
        )?;
        writeln!(out, "|-----:|---|---|---|---|---:|---:|---:|{}", "---:|".repeat(SHOWN.len()))?;
        for row in &self.cells {
            let Cell { cell, config, persona_model, interlocutor_model, delta, seed, rollouts, .. } = &row.cell;
            write!(
                out,
                "| {cell} | {} | {} | {} {} | {} | {seed} | {} of {rollouts} | {} |",
                code(config),
                code(persona_model),
                adversary(&row.cell),
                code(interlocutor_model),
                delta.as_deref().map_or("–".to_owned(), code),
                row.complete,
                row.events
            )?;
            for id in SHOWN {
                let found = row.scores.iter().find(|score| score.id == id);
                write!(
                    out,
                    " {} |",
                    figure(found.and_then(|score| Some(score.value?.mean)), found.and_then(|score| score.interval))
                )?;
            }
            writeln!(out)?;
        }
        for rows in self.factors.chunk_by(|a, b| a.factor == b.factor) {
            let Some(first) = rows.first() else { continue };
            writeln!(out, "\n## By {}\n\n| Level | Rollouts | {} |", first.factor.replace('_', " "), head.join(" | "))?;
            writeln!(out, "|---|---:|{}", "---:|".repeat(SHOWN.len()))?;
            for row in rows {
                let rollouts = row.scores.first().map_or(0, |score| score.rollouts);
                write!(out, "| {} | {rollouts} |", code(&row.level))?;
                for id in SHOWN {
                    let found = row.scores.iter().find(|score| score.id == id);
                    write!(
                        out,
                        " {} |",
                        figure(found.and_then(|score| score.mean), found.and_then(|score| score.interval))
                    )?;
                }
                writeln!(out)?;
            }
        }
        writeln!(
            out,
            "\nMeans over rollouts, with 95 % intervals over rollouts (of the median for scores without bounds). For a factor, the rollouts of all cells \
             at one level are pooled: the comparison is fair only if the other factors have the same levels, as in a whole \
             sweep. All scores are in `sweep_report.json`, each cell's own report in its folder."
        )
    }
}

fn cell_scores(folder: &Path, cell: &Cell) -> Result<CellScores, SweepError> {
    let report =
        Report::on(&folder.join(cell.folder())).map_err(|source| SweepError::Report { cell: cell.cell, source })?;
    Ok(CellScores {
        report: CellReport {
            cell: cell.clone(),
            complete: report.rollouts.iter().filter(|row| row.outcome == Outcome::Complete).count(),
            events: report.events.len(),
            failures: report.failures.len(),
            scores: report.scores,
            stored: report.stored,
            missing: report.missing,
        },
        rollouts: report.rollouts.into_iter().map(|row| row.scores).collect(),
    })
}

const fn adversary(cell: &Cell) -> &'static str {
    use crate::simulation::persona::AdversaryKind;
    match cell.adversary {
        AdversaryKind::None => "none",
        AdversaryKind::Contradiction => "contradiction",
        AdversaryKind::Helpfulness => "helpfulness",
        AdversaryKind::Both => "both",
    }
}

/// A factor's name and its level in a cell.
type Factor = (&'static str, fn(&Cell) -> String);

fn factors(cells: &[CellScores]) -> Vec<FactorRow> {
    let factors: [Factor; 6] = [
        ("config", |cell| cell.config.clone()),
        ("persona_model", |cell| cell.persona_model.clone()),
        ("interlocutor_model", |cell| cell.interlocutor_model.clone()),
        ("adversary", |cell| adversary(cell).to_owned()),
        ("delta", |cell| cell.delta.clone().unwrap_or_else(|| "of the config".to_owned())),
        ("seed", |cell| cell.seed.to_string()),
    ];
    let mut rows = Vec::new();
    let cells = distinct(cells);
    for (factor, level) in factors {
        let mut levels: Vec<String> = Vec::new();
        for one in &cells {
            let level = level(&one.report.cell);
            if !levels.contains(&level) {
                levels.push(level);
            }
        }
        if levels.len() < 2 {
            continue;
        }
        for name in levels {
            let at: Vec<&CellScores> = cells.iter().copied().filter(|one| level(&one.report.cell) == name).collect();
            let scores = pooled(&at);
            rows.push(FactorRow { factor: factor.to_owned(), level: name, scores });
        }
    }
    rows
}

/// Without duplicates: cells that differ only in a target that an adversary replaces.
fn distinct(cells: &[CellScores]) -> Vec<&CellScores> {
    let mut seen = BTreeSet::new();
    let new = |one: &&CellScores| seen.insert(format!("{:?}", Cell { cell: 0, ..one.report.cell.clone() }));
    cells.iter().filter(new).collect()
}

fn pooled(cells: &[&CellScores]) -> Vec<PooledScore> {
    let Some(first) = cells.first() else { return Vec::new() };
    let one = |score: &ScoreRow| {
        let rollouts = cells.iter().flat_map(|cell| &cell.rollouts);
        let values: Vec<f64> = rollouts.filter_map(|scores| scores.iter().find(|(id, _)| *id == score.id)?.1).collect();
        PooledScore {
            id: score.id.clone(),
            mean: mean(&values),
            interval: interval(&values, bounds(&score.id), &score.id),
            rollouts: values.len(),
        }
    };
    first.report.scores.iter().map(one).collect()
}

fn figure(mean: Option<f64>, interval: Option<RolloutInterval>) -> String {
    match (mean, interval) {
        (Some(mean), Some(RolloutInterval { interval, .. })) => {
            format!("{mean:.2} ({:.2} to {:.2})", interval.low, interval.high)
        }
        (Some(mean), None) => format!("{mean:.2}"),
        (None, _) => "–".to_owned(),
    }
}
