//! What gains on Δ do to a state-space model that reads: a sweep of settings over texts ([`sweep`]), and a fit of one gain
//! a layer ([`calibrate`]). `docs/DELTA.md` shows both.
//!
//! A [`Passage`] is read once as the model is and once under every [`Setting`]. Readings are by teacher forcing, so both
//! see the same tokens, and what differs between them is the gains' doing alone.

mod calibrate;
mod figure;
mod journal;
mod measure;
mod passage;
mod plan;
mod report;
mod setting;

use std::path::PathBuf;

pub use calibrate::{Calibrated, FitPlan, calibrate};
pub use figure::figure;
pub use journal::{Sweep, sweep};
pub use measure::{Figures, LayerFigures, PositionFigures};
pub use passage::{Passage, RECALL, passages};
pub use plan::Plan;
pub use report::{Difference, Report, Row};
pub use setting::{Gain, Layers, Setting, SettingError, Window};

use crate::foundation::chat::ModelError;

/// Why a study of Δ cannot begin or go on. Every message says what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaStudyError {
    /// The model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A gain, a set of layers or a window makes no sense.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The model has no Δ, or does not tell what is needed.
    #[error(
        "model `{0}` has no Δ to put gains on, or does not tell its tokens and layers: use a Mamba (`bundled`, `local:DIR`)"
    )]
    NoDelta(String),
    /// A text cannot be used.
    #[error("{name}: {why}")]
    Text {
        /// Which.
        name: String,
        /// Why, and what to do.
        why: String,
    },
    /// The plan's file cannot be read.
    #[error("{path}: {why}", path = path.display())]
    Plan {
        /// Where.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The folder holds another sweep.
    #[error("{path} holds the sweep of another plan, text or model; name another folder with --output", path = path.display())]
    Another {
        /// Where.
        path: PathBuf,
    },
    /// The file system said no.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// Something cannot be JSON.
    #[error("the study cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// There is not enough to fit on and to hold out.
    #[error("{0} passages are too few to fit on some and hold out others: give more text, or a shorter --length")]
    TooFew(usize),
}

/// Puts the path to an I/O error.
fn at(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> DeltaStudyError {
    let path = path.to_owned();
    move |source| DeltaStudyError::Io { path, source }
}
