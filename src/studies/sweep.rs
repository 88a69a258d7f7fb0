//! Many runs as one: every combination of configs, models, adversaries, Δ policies and seeds, each a run in a folder of its
//! own. Which combinations there are, their order and their numbers follow from the sweep's file alone, so any machine can
//! take a share of them, and the shares are put together again (`docs/SWEEPS.md`).

mod cells;
mod file;
mod folder;
mod merge;
mod report;

use std::path::PathBuf;

pub use cells::{Cell, Shard};
pub use folder::{Sweep, SweepManifest};
pub use merge::merge;
pub use report::{CellReport, FactorRow, Pooled, SweepReport};

use crate::foundation::config::ConfigErrors;
use crate::simulation::report::ReportError;
use crate::simulation::rollout::RunError;

/// Why a sweep cannot begin, go on, or be merged. Every message says what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// The sweep's file, or a config that it names, has problems.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// A run cannot begin or go on.
    #[error("cell {cell}: {source}")]
    Run {
        /// Which.
        cell: usize,
        /// Why.
        source: RunError,
    },
    /// A cell cannot be reported on.
    #[error("cell {cell}: {source}")]
    Report {
        /// Which.
        cell: usize,
        /// Why.
        source: ReportError,
    },
    /// The file system said no.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// Too many combinations.
    #[error(
        "the sweep has {cells} cells, and at most {max} are allowed (SWEEP_CELLS_MAX); split it into several files"
    )]
    TooMany {
        /// How many.
        cells: usize,
        /// The limit.
        max: usize,
    },
    /// A share that does not exist.
    #[error("`{text}` is no share: write K/N with K from 1 to N, such as 2/3")]
    Shard {
        /// What was written.
        text: String,
    },
    /// The folder holds another sweep.
    #[error("{path} holds another sweep, or an earlier state of this one; name another folder with --output", path = path.display())]
    Another {
        /// Where.
        path: PathBuf,
    },
    /// The folder holds no sweep.
    #[error("{path} holds no sweep: there is no readable sweep.json in it ({why})", path = path.display())]
    NoSweep {
        /// Where.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Cells are missing.
    #[error(
        "{missing} of {all} cells are not complete: {cells}; run their shares again (a finished cell is not run twice)"
    )]
    Incomplete {
        /// How many.
        missing: usize,
        /// Of how many.
        all: usize,
        /// Which.
        cells: String,
    },
    /// Two parts hold one cell with different words.
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
    /// Two parts have scored one rollout, and not to the same.
    #[error(
        "`{score}` of {file} in cell {cell} differs between {a} and {b}: it was taken in another way, or by a judge that \
         does not answer the same twice; keep one of the two parts, or take it again in one of them with the other's \
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
    /// Something cannot be JSON.
    #[error("the sweep cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Puts the path to an I/O error.
fn at(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> SweepError {
    let path = path.to_owned();
    move |source| SweepError::Io { path, source }
}
