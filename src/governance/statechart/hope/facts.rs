//! The facts that the hope chart's guards ask, quantised. What is not known yet is answered with caution: a specification
//! without a score is low, a fit without one is blocked, an expert of whom nothing is known is refused.

use serde::{Deserialize, Serialize};

use super::fit::Fit;
use super::shape::ExpertConfidence;
use super::spec::{Route, SpecScores};
use super::words::{Action, Guard};

/// How densely the user wants to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engagement {
    /// Defaults are taken where nobody answers.
    Autonomous,
    /// The user answers the questions that matter.
    Collaborative,
    /// The user answers every question.
    Guided,
}

/// What is agreed so far. A shape is held for an intent, so there is none without.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
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
    pub fit: Fit,
    /// What is agreed so far; kept by [`Facts::note`].
    pub held: Held,
    /// The engagement, once chosen.
    pub engagement: Option<Engagement>,
    /// Items of work that are left.
    pub items_left: u32,
    /// BLOCKERs that the last review found.
    pub blockers: u32,
    /// Whether the post-work gate passed.
    pub gate_passed: bool,
    /// How often the last error came in a row.
    pub same_errors: u32,
    /// Attempts that failed.
    pub failures: u32,
    /// The most often that one criterion failed.
    pub criterion_failures: u32,
    /// The confidence in the expert who is asked.
    pub expert: ExpertConfidence,
    /// Whether the last audit found something that must not go on.
    pub audit_blocks: bool,
}

impl Facts {
    /// The answer to a guard.
    pub fn holds(&self, guard: Guard) -> bool {
        match guard {
            Guard::SpecReady => self.spec.route() == Route::Ready,
            Guard::SpecLow => self.spec.route() == Route::Low,
            Guard::IntentHeld => self.held >= Held::Intent,
            Guard::ShapeHeld => self.held >= Held::Shape,
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

    /// Takes in what an action of the chart says about the facts themselves.
    pub fn note(&mut self, action: Action) {
        match action {
            Action::AdoptIntent => self.held = Held::Intent,
            Action::HoldShape => self.held = Held::Shape,
            Action::ReleaseShape => self.held = self.held.min(Held::Intent),
            // The next piece of work begins without facts; how the user wants to be asked holds for the session.
            Action::ReleaseIntent => *self = Self { engagement: self.engagement, ..Self::default() },
            _ => {}
        }
    }
}
