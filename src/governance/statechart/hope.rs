//! The life of a piece of work: the chart `configs/charts/hope.chart`, its words, the facts that its guards ask, and the
//! rules that make facts of scores. Who performs its actions is not said here.

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
pub use facts::{Engagement, Facts, Held};
pub use fit::{Familiarity, Fit};
pub use footer::{Footer, Percent, Reversible, Verdict, Verified};
pub use shape::{Aspects, ExpertConfidence, Profile, Reason, Selection, Shape};
pub use spec::{Clarity, Route, SpecScores};
pub use words::{Action, Event, Guard, Hope};

use super::chart::Chart;
use crate::foundation::config::ConfigErrors;

/// The text of the chart.
pub const TEXT: &str = include_str!("../../../configs/charts/hope.chart");

/// The chart of a piece of work.
///
/// # Errors
/// Never with the text that comes with the program; a test holds that.
pub fn chart() -> Result<Chart<Hope>, ConfigErrors> {
    Chart::load("configs/charts/hope.chart", TEXT)
}
