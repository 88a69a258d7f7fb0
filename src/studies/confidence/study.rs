//! Measures each estimator on the held-out items, calibrated on the others.

use serde::Serialize;

use super::answer::AnsweredItem;
use super::vote::VoteMethod;
use crate::foundation::base::RngStream;
use crate::foundation::stats::{
    Interval, ReliabilityBin, auarc, auroc, bootstrap, brier, brier_skill, ece, prediction_rejection_ratio, reliability,
};
use crate::governance::regulator::{Calibration, CalibrationScope, Estimates, Estimator, EstimatorReferences};
use crate::simulation::resampling::{Cost, Costs};

/// Bins of the expected calibration error and of the reliability diagram.
const BINS: usize = 15;

/// A metric with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MetricEstimate {
    /// The value.
    pub value: f64,
    /// Its percentile bootstrap interval over items.
    pub interval: Option<Interval>,
}

/// The metrics of one estimator on the held-out items.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EstimatorMetrics {
    /// The estimator.
    pub estimator: Estimator,
    /// Items for which it has a value.
    pub n: usize,
    /// Its prediction–rejection ratio on the fit half, by which estimators are ordered.
    pub prr_fit: Option<f64>,
    /// Its AUROC on the fit half.
    pub auroc_fit: Option<f64>,
    /// AUROC: how well it ranks right above wrong answers.
    pub auroc: Option<MetricEstimate>,
    /// AUROC after calibration, which may tie neighbours.
    pub auroc_calibrated: Option<f64>,
    /// Prediction–rejection ratio.
    pub prr: Option<MetricEstimate>,
    /// Area under the accuracy–rejection curve.
    pub auarc: Option<MetricEstimate>,
    /// Expected calibration error of the calibrated confidence.
    pub ece: Option<MetricEstimate>,
    /// Its Brier score.
    pub brier: Option<MetricEstimate>,
    /// Its Brier skill above the base rate of these very items.
    pub brier_skill: Option<MetricEstimate>,
    /// Its reliability diagram.
    pub reliability: Vec<ReliabilityBin>,
    /// What it costs per item, with the answer.
    pub tokens_per_item: f64,
}

/// How well answers by vote do, on all items that were voted on: nothing is fitted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VoteMetrics {
    /// How they voted; `None` is the greedy answer without a vote.
    pub method: Option<VoteMethod>,
    /// Number of items.
    pub n: usize,
    /// Share of right answers.
    pub accuracy: Option<MetricEstimate>,
    /// Samples that were stopped, per item.
    pub stopped_per_item: f64,
    /// Tokens per item.
    pub tokens_per_item: f64,
    /// Seconds per item.
    pub seconds_per_item: f64,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StudySubject {
    /// The task's name.
    pub task: String,
    /// How answers are read: the protocols' names.
    pub protocols: Vec<&'static str>,
    /// The model's name.
    pub model: String,
    /// The scope of a calibration fitted to it.
    pub scope: CalibrationScope,
}

/// A model's confidence on a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Study {
    /// Task and model.
    #[serde(flatten)]
    pub subject: StudySubject,
    /// Items that calibrations and references were fitted to.
    pub n_fit: usize,
    /// Held-out items, on which the metrics are computed.
    pub n_held_out: usize,
    /// Share of right answers among the held-out items.
    pub accuracy: Option<MetricEstimate>,
    /// Answers that could not be read, of all items; they count as wrong.
    pub unread: usize,
    /// What the estimates of all items cost.
    pub costs: Costs,
    /// One row per estimator that has values, by descending prediction–rejection ratio on the fit half.
    pub estimators: Vec<EstimatorMetrics>,
    /// One row per way of voting; empty without votes.
    pub votes: Vec<VoteMetrics>,
}

/// Why nothing can be measured or fitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StudyError {
    /// No items on one side of the split.
    #[error("there are {fit} items to fit and {held_out} held out, and both are needed; add items to the task")]
    TooFew {
        /// Items to fit on.
        fit: usize,
        /// Items held out.
        held_out: usize,
    },
    /// The estimator has no values, or all answers were right, or all were wrong.
    #[error("{0} cannot be fitted: it has no values on this task, or all answers were right, or all wrong")]
    Unfit(String),
}

impl Study {
    /// Measures every estimator that has values. Intervals come from `resamples` resamples.
    ///
    /// # Errors
    /// [`StudyError::TooFew`].
    pub fn of(subject: StudySubject, answers: &[AnsweredItem], resamples: u32) -> Result<Self, StudyError> {
        let (fitting, held_out) = split(answers)?;
        let costs = answers.iter().fold(Costs::default(), |sum, answer| sum.plus(answer.costs));
        let stream = RngStream::root(0);
        let right: Vec<f64> = held_out.iter().map(|(_, right)| f64::from(*right)).collect();
        let mean = |right: &[f64]| crate::foundation::stats::mean(right);
        let accuracy = figure(&right, resamples, &stream.child("accuracy", 0), mean);
        let references = EstimatorReferences::fit(&fitting);
        let complete = |answers: &[(Estimates, bool)]| -> Vec<(Estimates, bool)> {
            answers.iter().map(|(estimates, right)| (references.complete(estimates.clone()), *right)).collect()
        };
        let (fitting, held_out) = (complete(&fitting), complete(&held_out));
        let mut estimators: Vec<EstimatorMetrics> = Estimator::ALL
            .into_iter()
            .filter_map(|estimator| {
                let stream = stream.child(estimator.name(), 0);
                let mut row =
                    measured(&subject.scope, estimator, &references, &fitting, &held_out, resamples, &stream)?;
                row.tokens_per_item = cost(estimator, &costs).tokens as f64 / answers.len() as f64;
                Some(row)
            })
            .collect();
        let order = |row: &EstimatorMetrics| row.prr_fit.unwrap_or(f64::NEG_INFINITY);
        estimators.sort_by(|a, b| order(b).total_cmp(&order(a)));
        let unread = answers.iter().filter(|answer| answer.read.is_none()).count();
        let votes = voted(answers, resamples, &stream);
        Ok(Self {
            subject,
            n_fit: fitting.len(),
            n_held_out: held_out.len(),
            accuracy,
            unread,
            costs,
            estimators,
            votes,
        })
    }

    /// The estimator that any reply has with the best AUROC on the fit half.
    pub fn best(&self) -> Option<Estimator> {
        let usable = self.estimators.iter().filter(|row| row.estimator.of_any_reply());
        usable.max_by(|a, b| a.auroc_fit.unwrap_or(0.0).total_cmp(&b.auroc_fit.unwrap_or(0.0))).map(|row| row.estimator)
    }
}

/// What an estimator costs on all items, with the answers.
fn cost(estimator: Estimator, costs: &Costs) -> Cost {
    let Costs { single_pass, samples, meanings, p_true } = *costs;
    match estimator {
        Estimator::AnswerFrequency | Estimator::CocoaMsp | Estimator::CocoaPpl | Estimator::CocoaMte => {
            single_pass.plus(samples)
        }
        Estimator::SemanticEntropy | Estimator::SelfConsistency | Estimator::DeepconfVote => {
            single_pass.plus(samples).plus(meanings)
        }
        Estimator::PTrue => single_pass.plus(p_true),
        _ => single_pass,
    }
}

/// The greedy answers of the items that were voted on, then each way of voting.
fn voted(answers: &[AnsweredItem], resamples: u32, stream: &RngStream) -> Vec<VoteMetrics> {
    let methods = std::iter::once(None).chain(VoteMethod::ALL.map(Some));
    let voted: Vec<&AnsweredItem> = answers.iter().filter(|answer| !answer.votes.is_empty()).collect();
    let row = |method: Option<VoteMethod>| {
        let outcomes: Vec<(f64, usize, Cost)> = voted
            .iter()
            .filter_map(|answer| match method {
                None => Some((f64::from(answer.right), 0, answer.costs.single_pass)),
                Some(method) => {
                    let vote = answer.votes.iter().find(|vote| vote.method == method)?;
                    Some((f64::from(vote.right), vote.stopped, vote.cost))
                }
            })
            .collect();
        let n = outcomes.len();
        let right: Vec<f64> = outcomes.iter().map(|(right, ..)| *right).collect();
        let total = outcomes.iter().fold(Cost::default(), |sum, (.., cost)| sum.plus(*cost));
        let mean = |values: &[f64]| crate::foundation::stats::mean(values);
        (n > 0).then(|| VoteMetrics {
            method,
            n,
            accuracy: figure(&right, resamples, &stream.child("vote", 0), mean),
            stopped_per_item: outcomes.iter().map(|(_, stopped, _)| *stopped).sum::<usize>() as f64 / n as f64,
            tokens_per_item: total.tokens as f64 / n as f64,
            seconds_per_item: total.seconds / n as f64,
        })
    };
    methods.filter_map(row).collect()
}

/// Fits a calibration of `estimator` to the fit half.
///
/// # Errors
/// See [`StudyError`].
pub fn fit(scope: CalibrationScope, estimator: Estimator, answers: &[AnsweredItem]) -> Result<Calibration, StudyError> {
    let (fitting, _) = split(answers)?;
    let mut references = EstimatorReferences::fit(&fitting);
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

fn split(answers: &[AnsweredItem]) -> Result<(Labelled, Labelled), StudyError> {
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
    references: &EstimatorReferences,
    fitting: &[(Estimates, bool)],
    held_out: &[(Estimates, bool)],
    resamples: u32,
    stream: &RngStream,
) -> Option<EstimatorMetrics> {
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
    (!raw.is_empty()).then(|| EstimatorMetrics {
        estimator,
        n: raw.len(),
        prr_fit: prediction_rejection_ratio(&to_fit),
        auroc_fit: auroc(to_fit),
        auroc: of("auroc", &raw, |values| auroc(values.iter().copied())),
        auroc_calibrated: auroc(stated.iter().copied()),
        prr: of("prr", &raw, prediction_rejection_ratio),
        auarc: of("auarc", &raw, |values| auarc(values.iter().copied())),
        ece: of("ece", &stated, |values| ece(values, BINS)),
        brier: of("brier", &stated, brier),
        brier_skill: of("brier_skill", &stated, brier_skill),
        reliability: reliability(&stated, BINS),
        tokens_per_item: 0.0,
    })
}

fn figure<T: Copy>(
    values: &[T],
    resamples: u32,
    stream: &RngStream,
    statistic: impl Fn(&[T]) -> Option<f64>,
) -> Option<MetricEstimate> {
    Some(MetricEstimate { value: statistic(values)?, interval: bootstrap(values, resamples, stream, statistic) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foundation::base::Digest;
    use crate::governance::regulator::AnswerKind;

    fn subject() -> StudySubject {
        let scope =
            CalibrationScope { model: Digest::of("m"), template: None, task: "t".into(), answers: AnswerKind::Choice };
        StudySubject { task: "t".into(), protocols: vec!["choice/1"], model: "m".into(), scope }
    }

    /// Answers with a margin of 3x that are right with probability x.
    fn answers(n: u64) -> Vec<AnsweredItem> {
        let stream = RngStream::root(5);
        (0..n)
            .map(|at| {
                let x = stream.uniform(2 * at);
                AnsweredItem {
                    thought: None,
                    id: Digest::of(at.to_string()),
                    held_out: at % 2 == 0,
                    right: stream.uniform(2 * at + 1) < x,
                    protocol: "choice/1",
                    question: String::new(),
                    answer: String::new(),
                    read: None,
                    estimates: Estimates { choice_margin: Some(3.0 * x), ..Estimates::default() },
                    tokens: Vec::new(),
                    samples: Vec::new(),
                    votes: Vec::new(),
                    costs: Costs::default(),
                }
            })
            .collect()
    }

    #[test]
    fn a_calibrated_confidence_has_the_expected_metrics_on_held_out_items() {
        let study = Study::of(subject(), &answers(4_000), 200).unwrap();
        assert_eq!((study.n_fit, study.n_held_out, study.estimators.len()), (2_000, 2_000, 1));
        let row = &study.estimators[0];
        // For P(right) = x, x uniform: AUROC 5/6, Brier 1/6, skill 1/3.
        let near = |found: Option<MetricEstimate>, expected: f64, within: f64| {
            let MetricEstimate { value, interval } = found.unwrap();
            let Interval { low, high } = interval.unwrap();
            assert!((value - expected).abs() < within && low <= value && value <= high, "{value} {low} {high}");
        };
        near(row.auroc, 5.0 / 6.0, 0.03);
        near(row.brier, 1.0 / 6.0, 0.02);
        near(row.brier_skill, 1.0 / 3.0, 0.06);
        assert!(row.ece.unwrap().value < 0.05, "{:?}", row.ece);
    }

    #[test]
    fn a_fit_stores_only_the_references_of_its_estimator() {
        let calibration = fit(subject().scope, Estimator::ChoiceMargin, &answers(200)).unwrap();
        assert_eq!((calibration.n, calibration.references), (100, EstimatorReferences::default()));
        assert!(matches!(fit(subject().scope, Estimator::Wepr, &answers(200)), Err(StudyError::Unfit(_))));
        assert!(matches!(Study::of(subject(), &answers(1), 10), Err(StudyError::TooFew { fit: 0, held_out: 1 })));
    }
}
