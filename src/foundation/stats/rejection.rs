//! Accuracy when low-confidence answers are rejected.

use std::cmp::Ordering;

/// The area under the accuracy–rejection curve (Nadeem et al. 2009): the mean accuracy over the `k` most confident
/// answers, for `k` from 1 to all. Ties count as if in random order. `None` for no answers, or if one is NaN.
pub fn auarc(answers: impl IntoIterator<Item = (f64, bool)>) -> Option<f64> {
    // Adding zero makes −0 the same as 0.
    let mut answers: Vec<_> = answers.into_iter().map(|(confidence, right)| (confidence + 0.0, right)).collect();
    if answers.is_empty() || answers.iter().any(|(confidence, _)| confidence.is_nan()) {
        return None;
    }
    answers.sort_by(|a, b| b.0.total_cmp(&a.0));
    let n = answers.len() as f64;
    let (mut accepted, mut right, mut area) = (0.0, 0.0, 0.0);
    for tied in answers.chunk_by(|a, b| a.0.total_cmp(&b.0) == Ordering::Equal) {
        let share = tied.iter().filter(|(_, right)| *right).count() as f64 / tied.len() as f64;
        for _ in tied {
            accepted += 1.0;
            right += share;
            area += right / accepted;
        }
    }
    Some(area / n)
}

/// The prediction–rejection ratio (Malinin and Gales 2021): [`auarc`] on a scale from random rejection, 0, to
/// rejection by an oracle, 1. `None` without both right and wrong answers.
pub fn prediction_rejection_ratio(answers: &[(f64, bool)]) -> Option<f64> {
    let reached = auarc(answers.iter().copied())?;
    let oracle = auarc(answers.iter().map(|&(_, right)| (f64::from(right), right)))?;
    let random = answers.iter().filter(|(_, right)| *right).count() as f64 / answers.len() as f64;
    (oracle > random).then(|| (reached - random) / (oracle - random))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foundation::stats::tests::{close, confidence_fixture, labelled};

    /// The references are uncertainty-calibration's; `scripts/confidence_fixture.py` made them.
    #[test]
    fn agrees_with_the_reference_implementation() {
        for case in confidence_fixture()["stated"].as_array().unwrap() {
            let answers = labelled(&case["p"], &case["y"]);
            close(auarc(answers.iter().copied()), case["auarc"].as_f64());
            close(prediction_rejection_ratio(&answers), case["prr"].as_f64());
        }
    }

    #[test]
    fn chance_is_zero_and_an_oracle_one() {
        let answers = [(0.3, true), (0.3, false), (0.3, true)];
        let ratio = prediction_rejection_ratio(&answers).unwrap();
        assert!(ratio.abs() < 1e-12, "{ratio}");
        assert_eq!(prediction_rejection_ratio(&[(0.9, true), (0.1, false)]), Some(1.0));
        assert_eq!(prediction_rejection_ratio(&[(0.9, true)]), None);
        assert_eq!((auarc([]), auarc([(f64::NAN, true)])), (None, None));
    }
}
