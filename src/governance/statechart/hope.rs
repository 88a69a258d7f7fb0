//! The lifecycle of a piece of work: the chart `configs/charts/hope.chart`, its vocabulary, the facts that its guards
//! test, and the rules that derive facts from scores. Its actions are performed elsewhere.

mod echo;
mod facts;
mod fit;
mod footer;
mod shape;
mod spec;
mod words;

#[cfg(test)]
mod exploration;
#[cfg(test)]
mod tests;

pub use echo::Echo;
pub use facts::{Agreement, Engagement, Facts};
pub use fit::{Familiarity, FitScore};
pub use footer::{Footer, FooterFinding, Reversibility, Verdict, Verification};
pub use shape::{Aspects, ExpertConfidence, ExpertProfile, SelectionReason, Shape, ShapeSelection};
pub use spec::{Clarity, SpecRoute, SpecScores};
pub use words::{Action, Event, Guard, HopeVocabulary};

use super::chart::Chart;
use crate::foundation::config::ConfigErrors;

/// The text of the chart.
pub const TEXT: &str = include_str!("../../../configs/charts/hope.chart");

/// The chart of a piece of work.
///
/// # Errors
/// Never with the built-in text; a test checks that.
pub fn chart() -> Result<Chart<HopeVocabulary>, ConfigErrors> {
    Chart::load("configs/charts/hope.chart", TEXT)
}
