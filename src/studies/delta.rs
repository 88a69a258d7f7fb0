//! Effects of gains on a state-space model's Δ: a sweep of settings over texts ([`sweep`]), and a fit of one gain per layer
//! ([`calibrate`]). `docs/DELTA.md` describes both.
//!
//! A [`Passage`] is scored once without gains and once under every [`GainSetting`]. Scoring is teacher-forced, so both see
//! the same tokens and differ only by the gains.

mod calibrate;
mod figure;
mod journal;
mod measure;
mod passage;
mod plan;
mod report;
mod setting;
mod write;

use std::path::PathBuf;

pub use calibrate::{FitPlan, FittedGainsReport, calibrate};
pub use figure::figure;
pub use journal::{Sweep, sweep};
pub use measure::{LayerMetrics, PassageMetrics, PositionMetrics};
pub use passage::{Passage, RECALL, passages};
pub use plan::SweepPlan;
pub use report::{Difference, SweepReport, SweepRow};
pub use setting::{Gain, GainSetting, LayerSelection, SettingError, TokenWindow};

use crate::foundation::chat::ModelError;

/// Why a study of Δ cannot start or continue. Every message says what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaStudyError {
    /// The model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// An invalid gain, set of layers or window.
    #[error(transparent)]
    GainSetting(#[from] SettingError),
    /// The model has no Δ, or does not report its tokens or layers.
    #[error("model `{0}` has no Δ, or does not report its tokens and layers: use a Mamba (`bundled`, `local:DIR`)")]
    NoDelta(String),
    /// A text cannot be used.
    #[error("{name}: {why}")]
    Text {
        /// Its name.
        name: String,
        /// Why, and what to do.
        why: String,
    },
    /// The plan's file cannot be read.
    #[error("{path}: {why}", path = path.display())]
    SweepPlan {
        /// Where.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The folder holds another sweep.
    #[error("{path} contains a sweep of another plan, text or model; choose another folder with --output", path = path.display())]
    DifferentSweep {
        /// Where.
        path: PathBuf,
    },
    /// A file operation failed.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// A value cannot be serialised.
    #[error("the study cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// Too few passages to fit and to hold out.
    #[error("{0} passages are too few to fit and to hold out: give more text, or a shorter --length")]
    TooFew(usize),
}

/// Adds the path to an I/O error.
fn at(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> DeltaStudyError {
    let path = path.to_owned();
    move |source| DeltaStudyError::Io { path, source }
}
