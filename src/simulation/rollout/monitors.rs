//! Watching a conversation while it runs: is the persona stuck, or repeating a formula?
//!
//! A draft is checked before it is accepted ([`Monitors::check`]); only what was accepted enters windows and streaks.
//! What to do about a finding is the runner's part: it gives the persona the stagnation intervention or the finding's
//! instruction and asks again, up to [`Monitors::retries_max`] times.
//!
//! The state is a pure function of what was accepted and of the turns at which the runner intervened, so a resumed
//! rollout gets it back by replaying its transcript.

mod repetition;
mod stagnation;

use serde::{Deserialize, Serialize};

use self::repetition::RepetitionMonitor;
use self::stagnation::StagnationMonitor;
use crate::simulation::persona::Interaction;

/// Which monitor found something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MonitorKind {
    /// The conversation stands still.
    Stagnation,
    /// The persona speaks in formulas.
    Repetition,
}

/// What a monitor found in a draft.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Which monitor.
    pub monitor: MonitorKind,
    /// Which of its rules: `similarity`, `convergence`, `novelty`, `banned`, `forbidden_phrase`,
    /// `ends_with_question_to_interlocutor` or `gratitude_loop`.
    pub rule: String,
    /// What was found, for a reader of the transcript.
    pub detail: String,
    /// What was measured, where the rule measures.
    pub value: Option<f64>,
    /// What it was measured against.
    pub threshold: Option<f64>,
    /// What to tell the persona before it tries again; empty for stagnation, which has the config's intervention.
    pub instruction: String,
}

/// Both monitors of one rollout.
#[derive(Debug, Clone)]
pub struct Monitors {
    stagnation: Option<StagnationMonitor>,
    repetition: Option<RepetitionMonitor>,
}

impl Monitors {
    /// Monitors as the config sets them, before the first message. A monitor that is off finds nothing.
    pub fn new(interaction: &Interaction) -> Self {
        Self {
            stagnation: interaction.stagnation.clone().map(StagnationMonitor::new),
            repetition: interaction
                .repetition
                .clone()
                .map(|settings| RepetitionMonitor::new(settings, &interaction.anti_capitulation.forbidden_phrases)),
        }
    }

    /// What is wrong with `draft` as the persona's message of turn `turn`, after everything accepted so far.
    pub fn check(&self, turn: usize, draft: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Some(stagnation) = &self.stagnation {
            findings.extend(stagnation.check(turn, draft));
        }
        if let Some(repetition) = &self.repetition {
            findings.extend(repetition.check(draft));
        }
        findings
    }

    /// The persona said `text`.
    pub fn accept_persona(&mut self, text: &str) {
        if let Some(stagnation) = &mut self.stagnation {
            stagnation.accept_persona(text);
        }
        if let Some(repetition) = &mut self.repetition {
            repetition.accept(text);
        }
    }

    /// The interlocutor said `text`.
    pub fn accept_interlocutor(&mut self, text: &str) {
        if let Some(stagnation) = &mut self.stagnation {
            stagnation.accept_interlocutor(text);
        }
    }

    /// The stagnation intervention was given at `turn`. Redrafts of that turn are still checked; after it the
    /// stagnation monitor is silent for `window` turns, until the window holds nothing from before.
    pub fn intervened(&mut self, turn: usize) {
        if let Some(stagnation) = &mut self.stagnation {
            stagnation.intervened(turn);
        }
    }

    /// How often to ask again for one turn: the repetition monitor's `max_retries`, or once where only the stagnation
    /// monitor is on.
    pub fn retries_max(&self) -> usize {
        match (&self.repetition, &self.stagnation) {
            (Some(repetition), _) => repetition.retries_max(),
            (None, Some(_)) => 1,
            (None, None) => 0,
        }
    }
}

#[cfg(test)]
mod tests;
