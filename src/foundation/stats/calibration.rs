//! Calibration: agreement of stated probabilities with outcomes.

use serde::{Deserialize, Serialize};

use super::mean;

/// One bin of stated probabilities.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ReliabilityBin {
    /// Mean of the stated probabilities in it.
    pub stated: f64,
    /// Share of positive outcomes.
    pub observed: f64,
    /// Number of values.
    pub n: usize,
}

/// The bins of a reliability diagram: `bins` intervals of equal width over `[0, 1]`, each closed on the right; empty ones
/// are omitted.
pub fn reliability(stated: &[(f64, bool)], bins: usize) -> Vec<ReliabilityBin> {
    let mut sums = vec![(0.0, 0.0, 0usize); bins];
    for &(probability, came_true) in stated {
        let at = (probability * bins as f64).ceil() as usize;
        if let Some((stated, observed, n)) = sums.get_mut(at.saturating_sub(1).min(bins.saturating_sub(1))) {
            *stated += probability;
            *observed += f64::from(came_true);
            *n += 1;
        }
    }
    let filled = sums.into_iter().filter(|(_, _, n)| *n > 0);
    filled
        .map(|(stated, observed, n)| ReliabilityBin { stated: stated / n as f64, observed: observed / n as f64, n })
        .collect()
}

/// Expected calibration error over `bins` of equal width (Naeini et al. 2015; Guo et al. 2017): the mean distance between
/// stated probability and observed share. `None` for no values.
pub fn ece(stated: &[(f64, bool)], bins: usize) -> Option<f64> {
    let distance = |bin: &ReliabilityBin| bin.n as f64 * (bin.stated - bin.observed).abs();
    let sum: f64 = reliability(stated, bins).iter().map(distance).sum();
    (!stated.is_empty()).then(|| sum / stated.len() as f64)
}

/// Brier's score (1950): the mean squared difference between stated probability and outcome. `None` for no values.
pub fn brier(stated: &[(f64, bool)]) -> Option<f64> {
    let squares: Vec<f64> = stated.iter().map(|&(p, came_true)| (p - f64::from(came_true)).powi(2)).collect();
    mean(&squares)
}

/// Brier skill score: one minus the ratio of the score to that of the best constant forecast, the observed share. `None`
/// for no values, or if all outcomes are equal.
pub fn brier_skill(stated: &[(f64, bool)]) -> Option<f64> {
    let rate = stated.iter().filter(|(_, came_true)| *came_true).count() as f64 / stated.len().max(1) as f64;
    let constant = rate * (1.0 - rate);
    brier(stated).filter(|_| constant > 0.0).map(|score| 1.0 - score / constant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foundation::stats::tests::{close, confidence_fixture, labelled};

    /// The references are scikit-learn's and uncertainty-calibration's; `scripts/confidence_fixture.py` made them.
    #[test]
    fn agrees_with_the_reference_implementations() {
        for case in confidence_fixture()["stated"].as_array().unwrap() {
            let stated = labelled(&case["p"], &case["y"]);
            close(ece(&stated, 15), case["ece_15"].as_f64());
            close(brier(&stated), case["brier"].as_f64());
            close(brier_skill(&stated), case["brier_skill"].as_f64());
        }
    }

    #[test]
    fn skill_is_undefined_without_outcomes_of_both_kinds() {
        assert_eq!((ece(&[], 15), brier(&[]), brier_skill(&[])), (None, None, None));
        assert_eq!(brier_skill(&[(0.9, true), (0.8, true)]), None);
        assert_eq!(ece(&[(0.0, false), (1.0, true)], 10), Some(0.0));
    }
}
