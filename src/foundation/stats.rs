//! Statistics: mean, spread and quantiles, agreement of two series, bootstrap intervals, ranking and calibration measures,
//! isotonic and logistic regression. Sums run in the order of the input; a statistic that is not defined (too few values,
//! no spread) is `None`.

mod agreement;
mod calibration;
mod interval;
mod isotonic;
mod logistic;
mod ranking;
mod rejection;
pub mod small_sample;
mod summary;

pub use agreement::{pearson, rmse, spearman};
pub use calibration::{ReliabilityBin, brier, brier_skill, ece, reliability};
pub use interval::{Interval, bootstrap, bootstrap_difference, bootstrap_mean};
pub use isotonic::{Isotonic, IsotonicError};
pub use logistic::{Logistic, LogisticError};
pub use ranking::auroc;
pub use rejection::{auarc, prediction_rejection_ratio};
pub use summary::{mean, quantile, sd};

#[cfg(test)]
mod tests {
    /// Values from `NumPy` and `SciPy`, made by `scripts/text_fixtures.py`.
    pub(super) fn fixture() -> serde_json::Value {
        serde_json::from_str(include_str!("../../tests/data/stats.json")).expect("the fixture is JSON")
    }

    /// Values from scikit-learn and uncertainty-calibration, made by `scripts/confidence_fixture.py`.
    pub(super) fn confidence_fixture() -> serde_json::Value {
        serde_json::from_str(include_str!("../../tests/data/confidence.json")).expect("the fixture is JSON")
    }

    pub(super) fn labelled(scores: &serde_json::Value, labels: &serde_json::Value) -> Vec<(f64, bool)> {
        numbers(scores).into_iter().zip(numbers(labels)).map(|(score, label)| (score, label > 0.5)).collect()
    }

    pub(super) fn numbers(value: &serde_json::Value) -> Vec<f64> {
        value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    }

    pub(super) fn close(actual: Option<f64>, expected: Option<f64>) {
        match (actual, expected) {
            (Some(a), Some(b)) => assert!((a - b).abs() <= 1e-12 * b.abs().max(1.0), "{a} {b}"),
            (a, b) => assert_eq!(a, b),
        }
    }
}
