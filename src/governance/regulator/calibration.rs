//! From an estimate to a probability of being right: a fitted curve and the evidence of where it holds.

use serde::{Deserialize, Serialize};

use super::tokens::Estimates;
use crate::foundation::base::Digest;
use crate::foundation::stats::{Isotonic, IsotonicError};

/// The version of the stored form.
const VERSION: u32 = 1;

/// Which estimate a curve is fitted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Estimator {
    /// [`Estimates::ln_nll`].
    LnNll,
    /// [`Estimates::msp`].
    Msp,
    /// [`Estimates::min_probability`].
    MinProbability,
    /// [`Estimates::entropy_mean`].
    EntropyMean,
    /// [`Estimates::entropy_max`].
    EntropyMax,
    /// [`Estimates::margin`].
    Margin,
    /// [`Estimates::group_confidence_min`].
    GroupConfidenceMin,
    /// [`Estimates::group_confidence_bottom`].
    GroupConfidenceBottom,
    /// [`Estimates::group_confidence_tail`].
    GroupConfidenceTail,
    /// [`Estimates::self_certainty`].
    SelfCertainty,
}

impl Estimator {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::LnNll,
        Self::Msp,
        Self::MinProbability,
        Self::EntropyMean,
        Self::EntropyMax,
        Self::Margin,
        Self::GroupConfidenceMin,
        Self::GroupConfidenceBottom,
        Self::GroupConfidenceTail,
        Self::SelfCertainty,
    ];

    /// The estimate, turned so that higher is more certain.
    pub fn certainty(self, estimates: &Estimates) -> Option<f64> {
        match self {
            Self::LnNll => estimates.ln_nll.map(|value| -value),
            Self::Msp => estimates.msp.map(|value| -value),
            Self::MinProbability => estimates.min_probability.map(|value| -value),
            Self::EntropyMean => estimates.entropy_mean.map(|value| -value),
            Self::EntropyMax => estimates.entropy_max.map(|value| -value),
            Self::Margin => estimates.margin.map(|value| -value),
            Self::GroupConfidenceMin => estimates.group_confidence_min,
            Self::GroupConfidenceBottom => estimates.group_confidence_bottom,
            Self::GroupConfidenceTail => estimates.group_confidence_tail,
            Self::SelfCertainty => estimates.self_certainty,
        }
    }
}

/// What a calibration is fitted for: it holds nowhere else.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CalibrationScope {
    /// Weights, tokenizer and configuration of the model.
    pub model: Digest,
    /// The chat template.
    pub template: Digest,
    /// The kind of task, by name.
    pub task: String,
}

/// A curve from an estimate to a probability of being right, with its provenance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    version: u32,
    /// Where it holds.
    pub scope: CalibrationScope,
    /// What it reads.
    pub estimator: Estimator,
    /// How many labelled replies it was fitted on.
    pub n: usize,
    curve: Isotonic,
}

impl Calibration {
    /// Fits a curve to replies of which it is known whether they were right, on a split kept apart from any evaluation.
    /// Replies for which the estimator has no value are left out.
    ///
    /// # Errors
    /// When no reply is left.
    pub fn fit<'a>(
        scope: CalibrationScope,
        estimator: Estimator,
        replies: impl IntoIterator<Item = (&'a Estimates, bool)>,
    ) -> Result<Self, IsotonicError> {
        let data: Vec<_> = replies
            .into_iter()
            .filter_map(|(estimates, right)| Some((estimator.certainty(estimates)?, if right { 1.0 } else { 0.0 })))
            .collect();
        Ok(Self { version: VERSION, scope, estimator, n: data.len(), curve: Isotonic::fit(&data)? })
    }

    /// The probability that a reply is right; `None` where the estimator has no value, or the stored form is of another
    /// version.
    pub fn probability(&self, estimates: &Estimates) -> Option<f64> {
        let certainty = self.estimator.certainty(estimates)?;
        (self.version == VERSION).then(|| self.curve.at(certainty).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn scope(model: &str) -> CalibrationScope {
        CalibrationScope { model: Digest::of(model), template: Digest::of("chatml"), task: "qa".into() }
    }

    fn reply(ln_nll: f64) -> Estimates {
        Estimates { ln_nll: Some(ln_nll), ..Estimates::default() }
    }

    pub(in super::super) fn fitted(model: &str) -> Calibration {
        // Confident replies are right nine times of ten, unsure ones one time of two.
        let replies: Vec<_> = (0..100)
            .map(|i| if i < 50 { (reply(0.1), i % 10 != 0) } else { (reply(2.0), i % 2 == 0) })
            .chain([(Estimates::default(), true)])
            .collect();
        Calibration::fit(scope(model), Estimator::LnNll, replies.iter().map(|(reply, right)| (reply, *right))).unwrap()
    }

    #[test]
    fn confidence_becomes_the_share_that_was_right() {
        let calibration = fitted("m");
        assert_eq!(calibration.n, 100);
        for (ln_nll, expected) in [(0.1, 0.9), (0.01, 0.9), (2.0, 0.5), (9.0, 0.5), (1.05, 0.7)] {
            let found = calibration.probability(&reply(ln_nll)).unwrap();
            assert!((found - expected).abs() < 1e-12, "{ln_nll}: {found}");
        }
        assert_eq!(calibration.probability(&Estimates::default()), None);
        let json = serde_json::to_string(&calibration).unwrap();
        assert_eq!(serde_json::from_str::<Calibration>(&json).unwrap(), calibration);
        let newer = json.replacen("\"version\":1", "\"version\":2", 1);
        assert_eq!(serde_json::from_str::<Calibration>(&newer).unwrap().probability(&reply(0.1)), None);
    }

    #[test]
    fn without_a_labelled_reply_there_is_no_curve() {
        assert!(Calibration::fit(scope("m"), Estimator::Margin, [(&reply(1.0), true)]).is_err());
    }

    #[test]
    fn every_estimator_is_listed_and_points_upwards() {
        let estimates = Estimates {
            ln_nll: Some(1.0),
            msp: Some(1.0),
            min_probability: Some(1.0),
            entropy_mean: Some(1.0),
            entropy_max: Some(1.0),
            entropy_truncated: false,
            margin: Some(1.0),
            group_confidence_min: Some(-1.0),
            group_confidence_bottom: Some(-1.0),
            group_confidence_tail: Some(-1.0),
            self_certainty: Some(-1.0),
        };
        assert!(Estimator::ALL.iter().all(|estimator| estimator.certainty(&estimates) == Some(-1.0)));
    }
}
