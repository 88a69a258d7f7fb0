//! Reference data of some estimators: answers known to be right (CES), and weights fitted to labelled answers (WEPR).
//! Both are fitted once, stored with a calibration, and have its scope.

use serde::{Deserialize, Serialize};

use super::tokens::{Estimates, RankEntropies};
use crate::foundation::base::limits::CES_REFERENCE_MAX;
use crate::foundation::stats::{Logistic, LogisticError, mean, sd};

/// L2 penalty on WEPR's weights, on standardised features.
const WEPR_PENALTY: f64 = 1.0;

/// Reference data of the estimators that need it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EstimatorReferences {
    /// For [`Estimates::ces`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ces: Option<CesReference>,
    /// For [`Estimates::wepr`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wepr: Option<Wepr>,
}

impl EstimatorReferences {
    /// Fits whatever the labelled answers allow.
    pub fn fit(answers: &[(Estimates, bool)]) -> Self {
        let right = answers.iter().filter(|(_, right)| *right).map(|(estimates, _)| estimates);
        Self { ces: CesReference::of(right), wepr: Wepr::fit(answers).ok() }
    }

    /// Adds the estimates that need reference data.
    #[must_use]
    pub fn complete(&self, mut estimates: Estimates) -> Estimates {
        estimates.ces = self.ces.as_ref().and_then(|reference| reference.ces(&estimates));
        estimates.wepr = self.wepr.as_ref().and_then(|wepr| wepr.log_odds(estimates.rank_entropies.as_ref()?));
        estimates
    }
}

/// The entropies of answers known to be right, each list sorted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CesReference {
    mean: Vec<f64>,
    max: Vec<f64>,
}

impl CesReference {
    /// From answers known to be right; those without entropies are ignored. `None` if none remains.
    pub fn of<'a>(right: impl IntoIterator<Item = &'a Estimates>) -> Option<Self> {
        let (mut mean, mut max): (Vec<_>, Vec<_>) =
            right.into_iter().filter_map(|estimates| estimates.entropy_mean.zip(estimates.entropy_max)).unzip();
        for entropies in [&mut mean, &mut max] {
            entropies.sort_by(f64::total_cmp);
            // Evenly spaced order statistics are sufficient.
            let every = entropies.len().div_ceil(CES_REFERENCE_MAX).max(1);
            *entropies = entropies.iter().copied().skip(every / 2).step_by(every).collect();
        }
        (!mean.is_empty()).then_some(Self { mean, max })
    }

    /// The share of the reference at or below each entropy, as a geometric mean.
    fn ces(&self, estimates: &Estimates) -> Option<f64> {
        let share = |of: &[f64], value: f64| {
            of.partition_point(|reference| *reference <= value) as f64 / of.len().max(1) as f64
        };
        Some((share(&self.mean, estimates.entropy_mean?) * share(&self.max, estimates.entropy_max?)).sqrt())
    }
}

/// Weights on the entropy's terms by rank: means first, then maxima.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wepr {
    ranks: usize,
    model: Logistic,
}

impl Wepr {
    /// Fits the weights by logistic regression on standardised features; the ranks are those that every answer has.
    ///
    /// # Errors
    /// If there are no right or no wrong answers, or none has alternatives.
    pub fn fit(answers: &[(Estimates, bool)]) -> Result<Self, LogisticError> {
        let with: Vec<_> = answers
            .iter()
            .filter_map(|(estimates, right)| Some((estimates.rank_entropies.as_ref()?, *right)))
            .filter(|(entropies, _)| !entropies.mean.is_empty())
            .collect();
        let ranks = with.iter().map(|(entropies, _)| entropies.mean.len()).min().ok_or(LogisticError::OneClass)?;
        let raw: Vec<_> = with.iter().map(|(entropies, right)| (features(entropies, ranks), *right)).collect();
        let scales: Vec<(f64, f64)> = (0..2 * ranks)
            .map(|at| {
                let column: Vec<f64> = raw.iter().filter_map(|(row, _)| row.get(at).copied()).collect();
                let spread = sd(&column).filter(|spread| *spread > 0.0).unwrap_or(1.0);
                (mean(&column).unwrap_or(0.0), spread)
            })
            .collect();
        let rows: Vec<_> = raw
            .iter()
            .map(|(row, right)| {
                (row.iter().zip(&scales).map(|(x, (middle, spread))| (x - middle) / spread).collect(), *right)
            })
            .collect();
        let mut model = Logistic::fit(&rows, WEPR_PENALTY)?;
        for (weight, (middle, spread)) in model.weights.iter_mut().zip(&scales) {
            *weight /= spread;
            model.intercept -= *weight * middle;
        }
        Ok(Self { ranks, model })
    }

    /// The log-odds of being right; `None` if a reply has fewer alternatives than the weights.
    fn log_odds(&self, entropies: &RankEntropies) -> Option<f64> {
        (entropies.mean.len() >= self.ranks).then(|| self.model.log_odds(&features(entropies, self.ranks)))
    }
}

fn features(entropies: &RankEntropies, ranks: usize) -> Vec<f64> {
    entropies.mean.iter().take(ranks).chain(entropies.max.iter().take(ranks)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(mean: f64, max: f64, ranks: usize) -> Estimates {
        Estimates {
            entropy_mean: Some(mean),
            entropy_max: Some(max),
            rank_entropies: Some(RankEntropies { mean: vec![mean; ranks], max: vec![max; ranks] }),
            ..Estimates::default()
        }
    }

    #[test]
    fn ces_is_the_share_of_right_answers_that_were_less_uncertain() {
        let right: Vec<_> = (1..=4).map(|step| answer(f64::from(step), 2.0 * f64::from(step), 3)).collect();
        let references = EstimatorReferences { ces: CesReference::of(&right), wepr: None };
        for (mean, max, expected) in [(2.0, 8.0, (0.5f64 * 1.0).sqrt()), (0.5, 9.0, 0.0), (9.0, 9.0, 1.0)] {
            let found = references.complete(answer(mean, max, 3));
            assert!((found.ces.unwrap() - expected).abs() < 1e-12, "{mean} {max}: {:?}", found.ces);
            assert_eq!(found.wepr, None);
        }
        assert_eq!(references.complete(Estimates::default()).ces, None);
        assert_eq!(CesReference::of([]), None);
    }

    #[test]
    fn a_large_reference_is_thinned_without_changing_its_shares() {
        let many: Vec<_> = (0..100_000).map(|step| answer(f64::from(step), f64::from(step), 1)).collect();
        let reference = CesReference::of(&many).unwrap();
        assert!(reference.mean.len() <= CES_REFERENCE_MAX);
        let half = reference.ces(&answer(50_000.0, 50_000.0, 1)).unwrap();
        assert!((half - 0.5).abs() < 0.001, "{half}");
    }

    #[test]
    fn wepr_learns_informative_ranks_and_needs_as_many_of_them() {
        let answers: Vec<_> = (0..200)
            .map(|i| {
                let mean = f64::from(i % 20) / 20.0;
                (answer(mean, 0.3, 4), (i * 7) % 20 >= i % 20)
            })
            .collect();
        let references = EstimatorReferences::fit(&answers);
        let odds = |mean, ranks| references.complete(answer(mean, 0.3, ranks)).wepr;
        assert!(odds(0.0, 4).unwrap() > 1.0 && odds(1.0, 4).unwrap() < -1.0 && odds(0.0, 8) == odds(0.0, 4));
        assert_eq!((odds(0.0, 3), references.complete(Estimates::default()).wepr), (None, None));
        assert_eq!(Wepr::fit(&[(answer(1.0, 1.0, 2), true)]), Err(LogisticError::OneClass));
        let json = serde_json::to_string(&references).unwrap();
        assert_eq!(serde_json::from_str::<EstimatorReferences>(&json).unwrap(), references);
    }
}
