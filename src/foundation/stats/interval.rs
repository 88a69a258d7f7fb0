//! Bootstrap intervals.

use serde::{Deserialize, Serialize};

use super::{mean, quantile};
use crate::foundation::base::RngStream;

/// A 95 % interval around an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end, 2.5 %.
    pub low: f64,
    /// Upper end, 97.5 %.
    pub high: f64,
}

/// The 95 % percentile bootstrap interval of the mean; see [`bootstrap`].
pub fn bootstrap_mean(values: &[f64], resamples: u32, stream: &RngStream) -> Option<Interval> {
    bootstrap(values, resamples, stream, mean)
}

/// The 95 % percentile bootstrap interval of `statistic` (Efron and Tibshirani 1993, ch. 13), from `resamples` resamples
/// of `items` drawn from `stream`. A resample whose statistic is undefined (only one class, for example) is skipped. `None`
/// if more than half of the resamples are skipped, for fewer than two items, or without resamples. The interval is too
/// narrow for few items: with three, treat it as a range.
pub fn bootstrap<T: Clone>(
    items: &[T],
    resamples: u32,
    stream: &RngStream,
    statistic: impl Fn(&[T]) -> Option<f64>,
) -> Option<Interval> {
    let n = items.len();
    if n < 2 {
        return None;
    }
    let drawn: Vec<f64> = (0..u64::from(resamples))
        .filter_map(|resample| {
            let first = resample * n as u64;
            let drawn: Vec<T> =
                (first..first + n as u64).filter_map(|at| items.get(stream.index(at, n)).cloned()).collect();
            statistic(&drawn)
        })
        .collect();
    if 2 * drawn.len() < resamples as usize {
        return None;
    }
    percentiles(&drawn)
}

/// The 95 % percentile bootstrap interval of mean(`b`) − mean(`a`), two independent samples, resampled independently
/// (Efron and Tibshirani 1993, ch. 8 and 13). `None` if [`bootstrap_mean`] of either is.
pub fn bootstrap_difference(a: &[f64], b: &[f64], resamples: u32, stream: &RngStream) -> Option<Interval> {
    if a.len() < 2 || b.len() < 2 {
        return None;
    }
    let (first, second) = (stream.child("a", 0), stream.child("b", 0));
    let differences: Vec<f64> = (0..u64::from(resamples))
        .filter_map(|resample| Some(resampled(b, resample, &second)? - resampled(a, resample, &first)?))
        .collect();
    percentiles(&differences)
}

/// The mean of resample number `resample`.
fn resampled(values: &[f64], resample: u64, stream: &RngStream) -> Option<f64> {
    let n = values.len();
    let first = resample * n as u64;
    let drawn: Vec<f64> = (first..first + n as u64).filter_map(|at| values.get(stream.index(at, n)).copied()).collect();
    mean(&drawn)
}

fn percentiles(estimates: &[f64]) -> Option<Interval> {
    Some(Interval { low: quantile(estimates, 0.025)?, high: quantile(estimates, 0.975)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foundation::stats::sd;
    use crate::foundation::stats::tests::{fixture, numbers};

    /// The reference is `SciPy`'s percentile bootstrap; `scripts/text_fixtures.py` made it.
    #[test]
    fn the_interval_is_scipys_up_to_resampling_noise() {
        let case = &fixture()["bootstrap"];
        let x = numbers(&case["x"]);
        let ours = bootstrap_mean(&x, 20_000, &RngStream::root(1)).unwrap();
        // The ends of a 20 000-fold bootstrap wander by about 2 % of the mean's standard error.
        let noise = 0.1 * sd(&x).unwrap() / (x.len() as f64).sqrt();
        assert!((ours.low - case["low"].as_f64().unwrap()).abs() < noise, "{ours:?}");
        assert!((ours.high - case["high"].as_f64().unwrap()).abs() < noise, "{ours:?}");
    }

    /// For large samples the interval of a difference is the normal one: ± 1.96 standard errors (1.959964 is the 97.5 %
    /// point of the normal distribution).
    #[test]
    fn the_interval_of_a_difference_is_the_normal_one_for_large_samples() {
        let draws = |seed, shift: f64| -> Vec<f64> {
            let stream = RngStream::root(seed);
            (0..400).map(|at| shift + (0..12).map(|k| stream.uniform(at * 12 + k)).sum::<f64>()).collect()
        };
        let (a, b) = (draws(1, 0.0), draws(2, 0.5));
        let ours = bootstrap_difference(&a, &b, 20_000, &RngStream::root(3)).unwrap();
        let error = (sd(&a).unwrap().powi(2) / 400.0 + sd(&b).unwrap().powi(2) / 400.0).sqrt();
        let middle = mean(&b).unwrap() - mean(&a).unwrap();
        assert!((ours.low - (middle - 1.959_964 * error)).abs() < 0.1 * error, "{ours:?}");
        assert!((ours.high - (middle + 1.959_964 * error)).abs() < 0.1 * error, "{ours:?}");
        assert_eq!(bootstrap_difference(&a, &[1.0], 100, &RngStream::root(0)), None);
    }

    #[test]
    fn equal_streams_give_equal_bits_and_equal_values_no_width() {
        let draw = |seed| bootstrap_mean(&[1.0, 5.0, 2.0], 200, &RngStream::root(seed));
        assert_eq!(draw(4), draw(4));
        assert_eq!(bootstrap_mean(&[2.0; 3], 50, &RngStream::root(0)), Some(Interval { low: 2.0, high: 2.0 }));
        assert_eq!(bootstrap_mean(&[2.0], 50, &RngStream::root(0)), None);
        assert_eq!(bootstrap_mean(&[2.0, 3.0], 0, &RngStream::root(0)), None);
        assert_eq!(bootstrap(&[2.0, 3.0], 9, &RngStream::root(0), |_| None), None);
    }
}
