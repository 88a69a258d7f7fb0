//! The facts that the hope chart's guards test. Unknown facts have cautious defaults: a specification without a score is
//! low, a fit without one is blocked, an unknown expert is refused.

use serde::{Deserialize, Serialize};

use super::fit::FitScore;
use super::shape::ExpertConfidence;
use super::spec::{SpecRoute, SpecScores};
use super::words::{Action, Guard};

/// How often the user wants to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engagement {
    /// Defaults are used instead of questions.
    Autonomous,
    /// The user answers the questions that matter.
    Collaborative,
    /// The user answers every question.
    Guided,
}

/// What the user has agreed to. A shape is agreed for an intent, so it implies one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// Nothing.
    #[default]
    Nothing,
    /// An intent.
    Intent,
    /// An intent and a shape for it.
    Shape,
}

/// The facts of one piece of work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Facts {
    /// The specification's scores.
    pub spec: SpecScores,
    /// The fit.
    pub fit: FitScore,
    /// What the user has agreed to; updated by [`Facts::note`].
    pub held: Agreement,
    /// The engagement, once chosen.
    pub engagement: Option<Engagement>,
    /// Remaining work items.
    pub items_left: u32,
    /// BLOCKERs found by the last review.
    pub blockers: u32,
    /// Whether the post-work gate passed.
    pub gate_passed: bool,
    /// How often the last error occurred in a row.
    pub same_errors: u32,
    /// Failed attempts.
    pub failures: u32,
    /// The highest number of failures of one criterion.
    pub criterion_failures: u32,
    /// The confidence in the selected expert.
    pub expert: ExpertConfidence,
    /// Whether the last audit found a blocking problem.
    pub audit_blocks: bool,
}

impl Facts {
    /// Whether a guard holds.
    pub fn holds(&self, guard: Guard) -> bool {
        match guard {
            Guard::SpecReady => self.spec.route() == SpecRoute::Ready,
            Guard::SpecLow => self.spec.route() == SpecRoute::Low,
            Guard::IntentHeld => self.held >= Agreement::Intent,
            Guard::ShapeHeld => self.held >= Agreement::Shape,
            Guard::FitBlocked => self.fit.shape().is_none(),
            Guard::ItemsLeft => self.items_left > 0,
            Guard::BlockerFound => self.blockers > 0,
            Guard::GatePassed => self.gate_passed,
            Guard::SameErrorTwice => self.same_errors >= 2,
            Guard::FailedThreeTimes => self.failures >= 3,
            Guard::CriterionFailedFiveTimes => self.criterion_failures >= 5,
            Guard::ConfidenceTooLow => self.expert.refuses(),
            Guard::EngagementKnown => self.engagement.is_some(),
            Guard::Autonomous => self.engagement == Some(Engagement::Autonomous),
            Guard::AuditBlocks => self.audit_blocks,
        }
    }

    /// Updates the facts that an action of the chart changes.
    pub fn note(&mut self, action: Action) {
        match action {
            Action::AdoptIntent => self.held = Agreement::Intent,
            Action::HoldShape => self.held = Agreement::Shape,
            Action::ReleaseShape => self.held = self.held.min(Agreement::Intent),
            // The next piece of work starts without facts; the engagement is kept for the session.
            Action::ReleaseIntent => *self = Self { engagement: self.engagement, ..Self::default() },
            _ => {}
        }
    }
}
