//! Sweeps: one run for every combination of configs, models, adversaries, Δ policies and seeds, each in its own folder.
//! The combinations and their numbers are a function of the sweep's file, so that several machines can run one
//! shard each, and the shards are merged afterwards (`docs/SWEEPS.md`).

mod cells;
mod file;
mod folder;
mod merge;
mod report;

use std::path::PathBuf;

pub use cells::{Cell, Shard};
pub use folder::{Sweep, SweepManifest};
pub use merge::merge;
pub use report::{CellReport, FactorRow, PooledScore, SweepReport};

use crate::foundation::config::ConfigErrors;
use crate::simulation::report::ReportError;
use crate::simulation::rollout::RunError;

/// An error of a sweep. Every message says what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// The sweep's file, or a config that it names, is invalid.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// A run cannot start or resume.
    #[error("cell {cell}: {source}")]
    Run {
        /// Which.
        cell: usize,
        /// Why.
        source: RunError,
    },
    /// A cell's report failed.
    #[error("cell {cell}: {source}")]
    Report {
        /// Which.
        cell: usize,
        /// Why.
        source: ReportError,
    },
    /// An I/O error.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// Too many combinations.
    #[error("the sweep has {cells} cells; the maximum is {max} (SWEEP_CELLS_MAX): split it into several files")]
    TooMany {
        /// How many.
        cells: usize,
        /// The limit.
        max: usize,
    },
    /// An invalid shard.
    #[error("`{text}` is not a shard: write K/N with K from 1 to N, such as 2/3")]
    Shard {
        /// The argument.
        text: String,
    },
    /// The folder contains another sweep.
    #[error("{path} contains another sweep, or an earlier version of this one; name another folder with --output", path = path.display())]
    DifferentSweep {
        /// Where.
        path: PathBuf,
    },
    /// The folder contains no sweep.
    #[error("{path} contains no sweep: it has no readable sweep.json ({why})", path = path.display())]
    NoSweep {
        /// Where.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Cells are missing.
    #[error(
        "{missing} of {all} cells are not complete: {cells}; run their shards again (finished cells are not repeated)"
    )]
    Incomplete {
        /// How many.
        missing: usize,
        /// Of how many.
        all: usize,
        /// Which.
        cells: String,
    },
    /// Two parts contain the same cell with different messages.
    #[error("{file} of cell {cell} differs between {a} and {b}; keep one of the two parts", a = a.display(), b = b.display())]
    Differs {
        /// Which cell.
        cell: usize,
        /// Which file.
        file: String,
        /// One part.
        a: PathBuf,
        /// The other.
        b: PathBuf,
    },
    /// Two parts contain different scores of the same rollout.
    #[error(
        "`{score}` of {file} in cell {cell} differs between {a} and {b}: it was computed with another method, or by a judge \
         that is not deterministic; keep one of the two parts, or recompute it in one of them with the other's \
         judge and `loom score --again`", a = a.display(), b = b.display()
    )]
    Scores {
        /// Which cell.
        cell: usize,
        /// Which file.
        file: String,
        /// Which score.
        score: String,
        /// One part.
        a: PathBuf,
        /// The other.
        b: PathBuf,
    },
    /// Something cannot be serialised.
    #[error("the sweep cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Adds the path to an I/O error.
fn at(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> SweepError {
    let path = path.to_owned();
    move |source| SweepError::Io { path, source }
}
