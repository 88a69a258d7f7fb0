//! Calibration: a fitted curve from an estimate to a probability of being right, with its scope and provenance.

use serde::{Deserialize, Serialize};

use super::references::EstimatorReferences;
use super::tokens::Estimates;
use crate::foundation::base::Digest;
use crate::foundation::stats::{Isotonic, IsotonicError};

/// The version of the file format. Version 1 had no date and no references, version 2 no kind of answers and
/// no AUROC.
const VERSION: u32 = 3;
/// A calibration on fewer replies is not used.
pub const CALIBRATION_REPLIES_MIN: usize = 50;

/// The estimate that a curve is fitted to.
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
    /// [`Estimates::ces`].
    Ces,
    /// [`Estimates::wepr`].
    Wepr,
    /// [`Estimates::choice_margin`].
    ChoiceMargin,
    /// [`Estimates::semantic_entropy`].
    SemanticEntropy,
    /// [`Estimates::answer_frequency`].
    AnswerFrequency,
    /// [`Estimates::self_consistency`].
    SelfConsistency,
    /// [`Estimates::p_true`].
    PTrue,
    /// [`Estimates::cocoa_msp`].
    CocoaMsp,
    /// [`Estimates::cocoa_ppl`].
    CocoaPpl,
    /// [`Estimates::cocoa_mte`].
    CocoaMte,
    /// [`Estimates::deepconf_vote`].
    DeepconfVote,
}

impl Estimator {
    /// All estimators.
    pub const ALL: [Self; 21] = [
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
        Self::Ces,
        Self::Wepr,
        Self::ChoiceMargin,
        Self::SemanticEntropy,
        Self::AnswerFrequency,
        Self::SelfConsistency,
        Self::PTrue,
        Self::CocoaMsp,
        Self::CocoaPpl,
        Self::CocoaMte,
        Self::DeepconfVote,
    ];

    /// Its name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LnNll => "ln_nll",
            Self::Msp => "msp",
            Self::MinProbability => "min_probability",
            Self::EntropyMean => "entropy_mean",
            Self::EntropyMax => "entropy_max",
            Self::Margin => "margin",
            Self::GroupConfidenceMin => "group_confidence_min",
            Self::GroupConfidenceBottom => "group_confidence_bottom",
            Self::GroupConfidenceTail => "group_confidence_tail",
            Self::SelfCertainty => "self_certainty",
            Self::Ces => "ces",
            Self::Wepr => "wepr",
            Self::ChoiceMargin => "choice_margin",
            Self::SemanticEntropy => "semantic_entropy",
            Self::AnswerFrequency => "answer_frequency",
            Self::SelfConsistency => "self_consistency",
            Self::PTrue => "p_true",
            Self::CocoaMsp => "cocoa_msp",
            Self::CocoaPpl => "cocoa_ppl",
            Self::CocoaMte => "cocoa_mte",
            Self::DeepconfVote => "deepconf_vote",
        }
    }

    /// Whether any reply has it, and not only those that `loom confidence` scores or samples.
    pub const fn of_any_reply(self) -> bool {
        !matches!(
            self,
            Self::ChoiceMargin
                | Self::SemanticEntropy
                | Self::AnswerFrequency
                | Self::SelfConsistency
                | Self::PTrue
                | Self::CocoaMsp
                | Self::CocoaPpl
                | Self::CocoaMte
                | Self::DeepconfVote
        )
    }

    /// The estimate, with its sign changed where needed so that higher is more certain.
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
            Self::Ces => estimates.ces.map(|value| -value),
            Self::Wepr => estimates.wepr,
            Self::ChoiceMargin => estimates.choice_margin,
            Self::SemanticEntropy => estimates.semantic_entropy.map(|value| -value),
            Self::AnswerFrequency => estimates.answer_frequency,
            Self::SelfConsistency => estimates.self_consistency,
            Self::PTrue => estimates.p_true,
            Self::CocoaMsp => estimates.cocoa_msp.map(|value| -value),
            Self::CocoaPpl => estimates.cocoa_ppl.map(|value| -value),
            Self::CocoaMte => estimates.cocoa_mte.map(|value| -value),
            Self::DeepconfVote => estimates.deepconf_vote,
        }
    }
}

/// What a calibration was fitted for; it is used for nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CalibrationScope {
    /// Digest of the model's weights, tokenizer and configuration.
    pub model: Digest,
    /// Digest of the chat template; `None` for a model without one.
    pub template: Option<Digest>,
    /// The task, by name.
    pub task: String,
    /// How the answers of the task came about.
    #[serde(default)]
    pub answers: AnswerKind,
}

/// How a model answers: confidence in a choice among given candidates says nothing of free replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerKind {
    /// In its own words, as in a conversation.
    Free,
    /// By choosing the most likely of given candidates.
    Choice,
    /// Not recorded.
    #[default]
    Unknown,
}

/// A curve from an estimate to a probability of being right, with its provenance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    version: u32,
    /// What it was fitted for.
    pub scope: CalibrationScope,
    /// The estimate it converts.
    pub estimator: Estimator,
    /// How many labelled replies it was fitted on.
    pub n: usize,
    /// How well its estimator ranked right above wrong replies that it was not fitted on.
    #[serde(default)]
    pub auroc: Option<f64>,
    /// When and by what it was fitted.
    #[serde(default, rename = "made")]
    pub provenance: CalibrationProvenance,
    /// Reference data of its estimator.
    #[serde(default)]
    pub references: EstimatorReferences,
    curve: Isotonic,
}

/// When and by what a calibration was fitted; informational only.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibrationProvenance {
    /// The day, `YYYY-MM-DD`.
    pub date: String,
    /// The version of the program.
    pub loom: String,
    /// The model's name.
    pub model: String,
}

/// A stored calibration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CalibrationError {
    /// Written by a later version.
    #[error(
        "the calibration has version {0}, and this program reads up to {VERSION}: use the newer program, or fit it again with `loom confidence fit`"
    )]
    Newer(u64),
    /// Not a calibration file.
    #[error("this is not a calibration ({0}): create one with `loom confidence fit`")]
    Damaged(String),
    /// Fitted for another model, or the model has changed since the fit.
    #[error(
        "the calibration was fitted for model {fitted}, but the model here is {here}: it does not apply; fit it again with `loom confidence fit --model {name}`"
    )]
    Model {
        /// The digest that it was fitted for.
        fitted: String,
        /// The digest here.
        here: String,
        /// The model here, as it was named.
        name: String,
    },
    /// Fitted on answers of another kind.
    #[error(
        "the calibration was fitted on task `{task}`, where the model chooses among candidates{unknown}: it says nothing of free replies; fit one on a task with free answers, as in {{\"question\": \"…\", \"answers\": [\"…\"]}}", unknown = if *.known { "" } else { " or the file does not tell" }
    )]
    Answers {
        /// The task.
        task: String,
        /// The file says how its answers came about.
        known: bool,
    },
    /// Fitted on too few replies, or by an estimator that does not separate right from wrong.
    #[error(
        "the calibration was fitted on {n} replies{}: {CALIBRATION_REPLIES_MIN} or more and an AUROC above .5 are needed; give the task more items, or another estimator",
        .auroc.as_ref().map_or_else(String::new, |auroc| format!(" with an AUROC of {auroc}"))
    )]
    Unreliable {
        /// On how many.
        n: usize,
        /// How well the estimator ranked replies.
        auroc: Option<String>,
    },
    /// Fitted with another chat template.
    #[error(
        "the calibration was fitted with chat template {fitted}, but the model here uses {here}: it does not apply; fit it again with `loom confidence fit --model {name}`"
    )]
    Template {
        /// The digest that it was fitted for.
        fitted: String,
        /// The digest here.
        here: String,
        /// The model here, as it was named.
        name: String,
    },
}

impl Calibration {
    /// Fits a curve to replies labelled right or wrong, on a split separate from any evaluation. Replies for which the
    /// estimator has no value are ignored.
    ///
    /// # Errors
    /// If no reply remains.
    pub fn fit<'a>(
        scope: CalibrationScope,
        estimator: Estimator,
        references: EstimatorReferences,
        replies: impl IntoIterator<Item = (&'a Estimates, bool)>,
    ) -> Result<Self, IsotonicError> {
        let certainty = |estimates: &Estimates| estimator.certainty(&references.complete(estimates.clone()));
        let data: Vec<_> = replies
            .into_iter()
            .filter_map(|(estimates, right)| Some((certainty(estimates)?, f64::from(right))))
            .collect();
        let curve = Isotonic::fit_centred(&data)?;
        Ok(Self {
            version: VERSION,
            scope,
            estimator,
            n: data.len(),
            auroc: None,
            provenance: CalibrationProvenance::default(),
            references,
            curve,
        })
    }

    /// The probability that a reply is right; `None` if the estimator has no value.
    pub fn probability(&self, estimates: &Estimates) -> Option<f64> {
        let completed = self.references.complete(estimates.clone());
        Some(self.curve.at(self.estimator.certainty(&completed)?).clamp(0.0, 1.0))
    }

    /// Whether it was fitted on enough replies, by an estimator that separates right from wrong ones.
    pub fn is_reliable(&self) -> bool {
        self.n >= CALIBRATION_REPLIES_MIN && self.auroc.is_none_or(|auroc| auroc > 0.5)
    }

    /// Checks that it holds for free replies, as in runs and agents, and is reliable.
    ///
    /// # Errors
    /// [`CalibrationError::Answers`] or [`CalibrationError::Unreliable`].
    pub fn check_use(&self) -> Result<(), CalibrationError> {
        if self.scope.answers != AnswerKind::Free {
            let known = self.scope.answers != AnswerKind::Unknown;
            return Err(CalibrationError::Answers { task: self.scope.task.clone(), known });
        }
        if !self.is_reliable() {
            let auroc = self.auroc.map(|auroc| format!("{auroc:.3}"));
            return Err(CalibrationError::Unreliable { n: self.n, auroc });
        }
        Ok(())
    }

    /// Reads a stored calibration of this version or an older one.
    ///
    /// # Errors
    /// [`CalibrationError::Newer`] or [`CalibrationError::Damaged`].
    pub fn from_json(json: &str) -> Result<Self, CalibrationError> {
        let damaged = |error: serde_json::Error| CalibrationError::Damaged(error.to_string());
        let value: serde_json::Value = serde_json::from_str(json).map_err(damaged)?;
        if let Some(version) = value.get("version").and_then(serde_json::Value::as_u64)
            && version > u64::from(VERSION)
        {
            return Err(CalibrationError::Newer(version));
        }
        serde_json::from_value(value).map_err(damaged)
    }

    /// Checks that it was fitted for the model `name` with these digests.
    ///
    /// # Errors
    /// [`CalibrationError::Model`] or [`CalibrationError::Template`].
    pub fn check_model(
        &self,
        name: &str,
        model: Option<Digest>,
        template: Option<Digest>,
    ) -> Result<(), CalibrationError> {
        let short = |digest: Option<Digest>| digest.map_or_else(|| "none".to_owned(), |digest| digest.short());
        let name = name.to_owned();
        // The model's digest covers its template: check the template first, for the more specific message.
        if self.scope.template != template {
            return Err(CalibrationError::Template { fitted: short(self.scope.template), here: short(template), name });
        }
        if Some(self.scope.model) != model {
            return Err(CalibrationError::Model { fitted: self.scope.model.short(), here: short(model), name });
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn scope(model: &str) -> CalibrationScope {
        CalibrationScope {
            model: Digest::of(model),
            template: Some(Digest::of("chatml")),
            task: "qa".into(),
            answers: AnswerKind::Free,
        }
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
        let references = EstimatorReferences::default();
        Calibration::fit(
            scope(model),
            Estimator::LnNll,
            references,
            replies.iter().map(|(reply, right)| (reply, *right)),
        )
        .unwrap()
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
        assert_eq!(Calibration::from_json(&json).unwrap(), calibration);
        let newer = json.replacen("\"version\":3", "\"version\":4", 1);
        assert_eq!(Calibration::from_json(&newer), Err(CalibrationError::Newer(4)));
        assert!(matches!(Calibration::from_json("{}"), Err(CalibrationError::Damaged(_))));
    }

    #[test]
    fn a_calibration_of_the_first_version_is_read() {
        let digest = Digest::of("m");
        let json = format!(
            r#"{{"version":1,"scope":{{"model":"{digest}","template":"{digest}","task":"qa"}},"estimator":"ln_nll","n":2,"curve":{{"x":[-1.0],"y":[0.5]}}}}"#
        );
        let read = Calibration::from_json(&json).unwrap();
        assert_eq!((read.probability(&reply(1.0)), read.provenance), (Some(0.5), CalibrationProvenance::default()));
    }

    #[test]
    fn another_model_or_template_is_refused() {
        let calibration = fitted("m");
        let (model, template) = (Some(Digest::of("m")), Some(Digest::of("chatml")));
        assert_eq!(calibration.check_model("x", model, template), Ok(()));
        let error = |model, template| calibration.check_model("x", model, template).unwrap_err().to_string();
        assert!(error(Some(Digest::of("n")), template).contains("fitted for model"));
        assert!(error(model, Some(Digest::of("other"))).contains("fitted with chat template"));
        assert!(error(None, template).contains("the model here is none"));
    }

    #[test]
    fn a_calibration_on_choices_or_few_replies_or_chance_is_not_used() {
        let good = fitted("m");
        assert_eq!((good.check_use(), good.is_reliable()), (Ok(()), true));
        let with = |answers, n, auroc| {
            let scope = CalibrationScope { answers, ..good.scope.clone() };
            Calibration { scope, n, auroc, ..good.clone() }.check_use().map_err(|error| error.to_string())
        };
        assert!(with(AnswerKind::Choice, 100, None).unwrap_err().contains("chooses among candidates: it says nothing"));
        assert!(with(AnswerKind::Unknown, 100, None).unwrap_err().contains("or the file does not tell"));
        assert!(with(AnswerKind::Free, 49, None).unwrap_err().contains("fitted on 49 replies: 50 or more"));
        assert!(with(AnswerKind::Free, 400, Some(0.48)).unwrap_err().contains("with an AUROC of 0.480"));
        assert_eq!(with(AnswerKind::Free, 400, Some(0.7)), Ok(()));
    }

    #[test]
    fn without_a_labelled_reply_there_is_no_curve() {
        assert!(
            Calibration::fit(scope("m"), Estimator::Margin, EstimatorReferences::default(), [(&reply(1.0), true)])
                .is_err()
        );
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
            rank_entropies: None,
            ces: Some(1.0),
            wepr: Some(-1.0),
            choice_margin: Some(-1.0),
            semantic_entropy: Some(1.0),
            answer_frequency: Some(-1.0),
            self_consistency: Some(-1.0),
            p_true: Some(-1.0),
            cocoa_msp: Some(1.0),
            cocoa_ppl: Some(1.0),
            cocoa_mte: Some(1.0),
            deepconf_vote: Some(-1.0),
        };
        for estimator in Estimator::ALL {
            assert_eq!(serde_json::to_value(estimator).unwrap(), estimator.name());
        }
        assert!(Estimator::ALL.iter().all(|estimator| estimator.certainty(&estimates) == Some(-1.0)));
    }
}
