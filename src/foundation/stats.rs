//! Statistics: location and spread, agreement of two series, bootstrap intervals, AUROC, isotonic fit. Sums run in the
//! order given; what cannot be computed (too few values, no spread) is `None`.

mod agreement;
mod interval;
mod isotonic;
mod ranking;
mod summary;

pub use agreement::{pearson, rmse, spearman};
pub use interval::{Interval, bootstrap_difference, bootstrap_mean};
pub use isotonic::{Isotonic, IsotonicError};
pub use ranking::auroc;
pub use summary::{mean, quantile, sd};

#[cfg(test)]
mod tests {
    /// Values from `NumPy` and `SciPy`, made by `scripts/text_fixtures.py`.
    pub(super) fn fixture() -> serde_json::Value {
        serde_json::from_str(include_str!("../../tests/data/stats.json")).expect("the fixture is JSON")
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
