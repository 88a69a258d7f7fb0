//! Values over rollouts: their mean, range and 95 % interval.

use serde::{Deserialize, Serialize};

use crate::foundation::base::RngStream;
use crate::foundation::stats::small_sample::{bounded_mean, median};
use crate::foundation::stats::{Interval, mean};
use crate::governance::regulator::ConfidenceBasis;
use crate::simulation::judge::info;
use crate::simulation::rollout::Utterance;

/// A mean with its range and number of values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// The lowest value.
    pub low: f64,
    /// The highest.
    pub high: f64,
    /// How many values.
    pub n: usize,
}

/// A 95 % interval over rollouts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RolloutInterval {
    /// The interval.
    #[serde(flatten)]
    pub interval: Interval,
    /// Of what.
    #[serde(default)]
    pub of: IntervalOf,
}

/// What an interval over rollouts is of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntervalOf {
    /// The mean: scores with bounds, from three rollouts on.
    #[default]
    Mean,
    /// The median: scores without bounds, from six rollouts on. Their mean has no interval that holds for every distribution.
    Median,
}

/// The bounds of the score `id`, if it is known and has any.
pub fn bounds(id: &str) -> Option<(f64, f64)> {
    info(id)?.bounds
}

/// The 95 % interval over rollouts: of the mean of a score with bounds, of the median of one without. `name` names the
/// stream of random draws.
pub fn interval(values: &[f64], bounds: Option<(f64, f64)>, name: &str) -> Option<RolloutInterval> {
    match bounds {
        Some(bounds) => {
            let stream = RngStream::root(0).child("report", 0).child(name, 0);
            bounded_mean(values, bounds, &stream).map(|interval| RolloutInterval { interval, of: IntervalOf::Mean })
        }
        None => median(values).map(|interval| RolloutInterval { interval, of: IntervalOf::Median }),
    }
}

pub(super) fn summary(values: impl IntoIterator<Item = f64>) -> Option<Mean> {
    let values: Vec<f64> = values.into_iter().collect();
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    Some(Mean { mean: mean(&values)?, low, high, n: values.len() })
}

/// The regulator's confidence in a message, if it is computed from log-probabilities. The estimate from the text's
/// structure alone is not comparable and left out.
pub(super) fn confidence(utterance: &Utterance) -> Option<f64> {
    let reading = &utterance.regulator.reading;
    reading.confidence.filter(|_| reading.confidence_basis != Some(ConfidenceBasis::Structural))
}
