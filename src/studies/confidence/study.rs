//! The measures: each estimator on the items that were held out, calibrated on the others.

use serde::Serialize;

use super::answer::Answered;
use crate::foundation::base::Stream;
use crate::foundation::stats::{
    Interval, ReliabilityBin, auarc, auroc, bootstrap, brier, brier_skill, ece, prediction_rejection_ratio, reliability,
};
use crate::governance::regulator::{Calibration, CalibrationScope, Estimates, Estimator, References};

/// Bins of the expected calibration error and of the reliability diagram.
const BINS: usize = 15;

/// A measure with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figure {
    /// The measure.
    pub value: f64,
    /// Its percentile bootstrap interval over items.
    pub interval: Option<Interval>,
}

/// How one estimator did on the items that were held out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// Which.
    pub estimator: Estimator,
    /// On how many items it has a value.
    pub n: usize,
    /// Its AUROC on the items that were *not* held out: by this, one is chosen.
    pub auroc_fit: Option<f64>,
    /// How well it ranks right above wrong answers.
    pub auroc: Option<Figure>,
    /// How well it ranks once calibrated; calibration makes neighbours equal.
    pub auroc_calibrated: Option<f64>,
    /// Prediction–rejection ratio.
    pub prr: Option<Figure>,
    /// Area under the accuracy–rejection curve.
    pub auarc: Option<Figure>,
    /// Expected calibration error of the calibrated confidence.
    pub ece: Option<Figure>,
    /// Its Brier score.
    pub brier: Option<Figure>,
    /// Its Brier skill above the base rate of these very items.
    pub brier_skill: Option<Figure>,
    /// Its reliability diagram.
    pub reliability: Vec<ReliabilityBin>,
}

/// What was measured, and on what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Subject {
    /// The task's name.
    pub task: String,
    /// The model, as it was named.
    pub model: String,
    /// What a calibration of it would hold for.
    pub scope: CalibrationScope,
}

/// A model's confidence on a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Study {
    /// What was measured.
    #[serde(flatten)]
    pub subject: Subject,
    /// Items that calibrations and references were fitted on.
    pub n_fit: usize,
    /// Items on which everything below was measured.
    pub n_held_out: usize,
    /// Share of right answers among the latter.
    pub accuracy: Option<Figure>,
    /// One row per estimator that has values, the one that was best on the items of the fit first.
    pub estimators: Vec<Measured>,
}

/// Why there is nothing to measure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StudyError {
    /// No items on one side of the split.
    #[error("{fit} items to fit on and {held_out} held out: both are needed; give the task more items")]
    TooFew {
        /// Items to fit on.
        fit: usize,
        /// Items held out.
        held_out: usize,
    },
    /// The wanted estimator has no values, or all answers were right or wrong alike.
    #[error("{0} cannot be fitted: it has no values on this task, or all answers were right, or all wrong")]
    Unfit(String),
}

impl Study {
    /// Measures every estimator that has values. Intervals come from `resamples` resamples.
    ///
    /// # Errors
    /// [`StudyError::TooFew`].
    pub fn of(subject: Subject, answers: &[Answered], resamples: u32) -> Result<Self, StudyError> {
        let (fitting, held_out) = split(answers)?;
        let stream = Stream::root(0);
        let right: Vec<f64> = held_out.iter().map(|(_, right)| f64::from(*right)).collect();
        let mean = |right: &[f64]| crate::foundation::stats::mean(right);
        let accuracy = figure(&right, resamples, &stream.child("accuracy", 0), mean);
        let references = References::fit(&fitting);
        let complete = |answers: &[(Estimates, bool)]| -> Vec<(Estimates, bool)> {
            answers.iter().map(|(estimates, right)| (references.complete(estimates.clone()), *right)).collect()
        };
        let (fitting, held_out) = (complete(&fitting), complete(&held_out));
        let mut estimators: Vec<Measured> = Estimator::ALL
            .into_iter()
            .filter_map(|estimator| {
                let stream = stream.child(estimator.name(), 0);
                measured(&subject.scope, estimator, &references, &fitting, &held_out, resamples, &stream)
            })
            .collect();
        estimators.sort_by(|a, b| b.auroc_fit.unwrap_or(0.0).total_cmp(&a.auroc_fit.unwrap_or(0.0)));
        Ok(Self { subject, n_fit: fitting.len(), n_held_out: held_out.len(), accuracy, estimators })
    }
}

/// Fits a calibration of `estimator` to the items that are not held out.
///
/// # Errors
/// See [`StudyError`].
pub fn fit(scope: CalibrationScope, estimator: Estimator, answers: &[Answered]) -> Result<Calibration, StudyError> {
    let (fitting, _) = split(answers)?;
    let mut references = References::fit(&fitting);
    if estimator != Estimator::Ces {
        references.ces = None;
    }
    if estimator != Estimator::Wepr {
        references.wepr = None;
    }
    let replies = fitting.iter().map(|(estimates, right)| (estimates, *right));
    Calibration::fit(scope, estimator, references, replies).map_err(|_| StudyError::Unfit(estimator.name().to_owned()))
}

type Statistic = fn(&[(f64, bool)]) -> Option<f64>;
type Labelled = Vec<(Estimates, bool)>;

fn split(answers: &[Answered]) -> Result<(Labelled, Labelled), StudyError> {
    let side = |held_out| -> Labelled {
        let those = answers.iter().filter(|answer| answer.held_out == held_out);
        those.map(|answer| (answer.estimates.clone(), answer.right)).collect()
    };
    let (fitting, held_out) = (side(false), side(true));
    if fitting.is_empty() || held_out.is_empty() {
        return Err(StudyError::TooFew { fit: fitting.len(), held_out: held_out.len() });
    }
    Ok((fitting, held_out))
}

fn measured(
    scope: &CalibrationScope,
    estimator: Estimator,
    references: &References,
    fitting: &[(Estimates, bool)],
    held_out: &[(Estimates, bool)],
    resamples: u32,
    stream: &Stream,
) -> Option<Measured> {
    let certainties = |answers: &[(Estimates, bool)]| -> Vec<(f64, bool)> {
        answers.iter().filter_map(|(estimates, right)| Some((estimator.certainty(estimates)?, *right))).collect()
    };
    let (to_fit, raw) = (certainties(fitting), certainties(held_out));
    let replies = fitting.iter().map(|(estimates, right)| (estimates, *right));
    let calibration = Calibration::fit(scope.clone(), estimator, references.clone(), replies).ok()?;
    let stated: Vec<(f64, bool)> =
        held_out.iter().filter_map(|(estimates, right)| Some((calibration.probability(estimates)?, *right))).collect();
    let of = |name, values: &[(f64, bool)], statistic: Statistic| {
        figure(values, resamples, &stream.child(name, 0), statistic)
    };
    (!raw.is_empty()).then(|| Measured {
        estimator,
        n: raw.len(),
        auroc_fit: auroc(to_fit),
        auroc: of("auroc", &raw, |values| auroc(values.iter().copied())),
        auroc_calibrated: auroc(stated.iter().copied()),
        prr: of("prr", &raw, prediction_rejection_ratio),
        auarc: of("auarc", &raw, |values| auarc(values.iter().copied())),
        ece: of("ece", &stated, |values| ece(values, BINS)),
        brier: of("brier", &stated, brier),
        brier_skill: of("brier_skill", &stated, brier_skill),
        reliability: reliability(&stated, BINS),
    })
}

fn figure<T: Copy>(
    values: &[T],
    resamples: u32,
    stream: &Stream,
    statistic: impl Fn(&[T]) -> Option<f64>,
) -> Option<Figure> {
    Some(Figure { value: statistic(values)?, interval: bootstrap(values, resamples, stream, statistic) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foundation::base::Digest;

    fn subject() -> Subject {
        let scope = CalibrationScope { model: Digest::of("m"), template: None, task: "t".into() };
        Subject { task: "t".into(), model: "m".into(), scope }
    }

    /// Answers that are right with the probability that a margin of `x` stands for, x itself.
    fn answers(n: u64) -> Vec<Answered> {
        let stream = Stream::root(5);
        (0..n)
            .map(|at| {
                let x = stream.uniform(2 * at);
                Answered {
                    id: Digest::of(at.to_string()),
                    held_out: at % 2 == 0,
                    right: stream.uniform(2 * at + 1) < x,
                    estimates: Estimates { choice_margin: Some(3.0 * x), ..Estimates::default() },
                }
            })
            .collect()
    }

    #[test]
    fn a_sound_confidence_is_found_sound_where_nothing_was_fitted() {
        let study = Study::of(subject(), &answers(4_000), 200).unwrap();
        assert_eq!((study.n_fit, study.n_held_out, study.estimators.len()), (2_000, 2_000, 1));
        let row = &study.estimators[0];
        // For P(right) = x, x uniform: AUROC 5/6, Brier 1/6, skill 1/3.
        let near = |found: Option<Figure>, expected: f64, within: f64| {
            let Figure { value, interval } = found.unwrap();
            let Interval { low, high } = interval.unwrap();
            assert!((value - expected).abs() < within && low <= value && value <= high, "{value} {low} {high}");
        };
        near(row.auroc, 5.0 / 6.0, 0.03);
        near(row.brier, 1.0 / 6.0, 0.02);
        near(row.brier_skill, 1.0 / 3.0, 0.06);
        assert!(row.ece.unwrap().value < 0.05, "{:?}", row.ece);
    }

    #[test]
    fn a_fit_holds_what_its_estimator_needs_and_no_more() {
        let calibration = fit(subject().scope, Estimator::ChoiceMargin, &answers(200)).unwrap();
        assert_eq!((calibration.n, calibration.references), (100, References::default()));
        assert!(matches!(fit(subject().scope, Estimator::Wepr, &answers(200)), Err(StudyError::Unfit(_))));
        assert!(matches!(Study::of(subject(), &answers(1), 10), Err(StudyError::TooFew { fit: 0, held_out: 1 })));
    }
}
