//! Correlation and error of two paired series. All are `None` for series of different or zero length.

use std::cmp::Ordering;

use super::mean;

/// Pearson's correlation, in `[-1, 1]`; `None` if either series has no spread.
pub fn pearson(x: &[f64], y: &[f64]) -> Option<f64> {
    if x.len() != y.len() {
        return None;
    }
    let (mean_x, mean_y) = (mean(x)?, mean(y)?);
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (a, b) in x.iter().zip(y) {
        let (dx, dy) = (a - mean_x, b - mean_y);
        xx += dx * dx;
        yy += dy * dy;
        xy += dx * dy;
    }
    (xx > 0.0 && yy > 0.0).then(|| (xy / (xx.sqrt() * yy.sqrt())).clamp(-1.0, 1.0))
}

/// Spearman's rank correlation: Pearson's over ranks, equal values sharing their mean rank.
pub fn spearman(x: &[f64], y: &[f64]) -> Option<f64> {
    pearson(&ranks(x), &ranks(y))
}

/// The root of the mean squared difference, in the values' own units.
pub fn rmse(x: &[f64], y: &[f64]) -> Option<f64> {
    if x.len() != y.len() {
        return None;
    }
    let squares: Vec<f64> = x.iter().zip(y).map(|(a, b)| (a - b).powi(2)).collect();
    mean(&squares).map(f64::sqrt)
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = values.iter().copied().enumerate().collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut ranked: Vec<(usize, f64)> = Vec::with_capacity(values.len());
    for equal in order.chunk_by(|a, b| a.1.partial_cmp(&b.1).is_some_and(Ordering::is_eq)) {
        // Ranks start at 1; a tie takes consecutive ranks, whose mean is the middle one.
        let rank = ranked.len() as f64 + (equal.len() + 1) as f64 / 2.0;
        ranked.extend(equal.iter().map(|&(index, _)| (index, rank)));
    }
    ranked.sort_by_key(|&(index, _)| index);
    ranked.into_iter().map(|(_, rank)| rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foundation::stats::tests::{close, fixture, numbers};

    /// The references are `SciPy`'s; `scripts/text_fixtures.py` made them.
    #[test]
    fn agrees_with_scipy() {
        for case in fixture()["paired"].as_array().unwrap() {
            let (x, y) = (numbers(&case["x"]), numbers(&case["y"]));
            close(pearson(&x, &y), case["pearson"].as_f64());
            close(spearman(&x, &y), case["spearman"].as_f64());
            close(rmse(&x, &y), case["rmse"].as_f64());
        }
    }

    #[test]
    fn without_spread_there_is_no_correlation() {
        assert_eq!(pearson(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(spearman(&[1.0], &[1.0]), None);
        assert_eq!(pearson(&[1.0, 2.0], &[1.0]), None);
        assert_eq!((pearson(&[], &[]), rmse(&[], &[]), rmse(&[1.0], &[])), (None, None, None));
    }
}
