//! Checks of the persona's drafts while a conversation runs: stagnation and formulaic repetition.
//!
//! A draft is checked before it is accepted ([`Monitors::check`]); only accepted messages enter windows and streaks.
//! The runner reacts to a finding: it gives the persona's model the stagnation intervention or the finding's instruction
//! and requests another draft, up to [`Monitors::retries_max`] times.
//!
//! The state is a pure function of the accepted messages and of the turns with an intervention, so a resumed rollout
//! restores it by replaying its transcript.

mod repetition;
mod stagnation;

use serde::{Deserialize, Serialize};

use self::repetition::RepetitionMonitor;
use self::stagnation::StagnationMonitor;
use crate::simulation::persona::Interaction;

/// The monitor that produced a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MonitorKind {
    /// The conversation does not progress.
    Stagnation,
    /// The persona uses banned or formulaic phrases.
    Repetition,
}

/// A monitor's finding in a draft.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MonitorFinding {
    /// The monitor.
    pub monitor: MonitorKind,
    /// The rule that fired: `similarity`, `convergence`, `novelty`, `banned`, `forbidden_phrase`,
    /// `ends_with_question_to_interlocutor` or `gratitude_loop`.
    pub rule: String,
    /// A description for readers of the transcript.
    pub detail: String,
    /// The measured value, if the rule measures one.
    pub value: Option<f64>,
    /// The threshold it was compared with.
    pub threshold: Option<f64>,
    /// The instruction for the next draft; empty for stagnation, which uses the config's intervention.
    pub instruction: String,
}

/// The monitors of one rollout.
#[derive(Debug, Clone)]
pub struct Monitors {
    stagnation: Option<StagnationMonitor>,
    repetition: Option<RepetitionMonitor>,
}

impl Monitors {
    /// The monitors as configured, before the first message. A disabled monitor finds nothing.
    pub fn new(interaction: &Interaction) -> Self {
        Self {
            stagnation: interaction.stagnation.clone().map(StagnationMonitor::new),
            repetition: interaction
                .repetition
                .clone()
                .map(|settings| RepetitionMonitor::new(settings, &interaction.anti_capitulation.forbidden_phrases)),
        }
    }

    /// The findings in `draft` as the persona's message of turn `turn`, given the accepted messages.
    pub fn check(&self, turn: usize, draft: &str) -> Vec<MonitorFinding> {
        let mut findings = Vec::new();
        if let Some(stagnation) = &self.stagnation {
            findings.extend(stagnation.check(turn, draft));
        }
        if let Some(repetition) = &self.repetition {
            findings.extend(repetition.check(draft));
        }
        findings
    }

    /// Adds an accepted message of the persona.
    pub fn accept_persona(&mut self, text: &str) {
        if let Some(stagnation) = &mut self.stagnation {
            stagnation.accept_persona(text);
        }
        if let Some(repetition) = &mut self.repetition {
            repetition.accept(text);
        }
    }

    /// Adds a message of the interlocutor.
    pub fn accept_interlocutor(&mut self, text: &str) {
        if let Some(stagnation) = &mut self.stagnation {
            stagnation.accept_interlocutor(text);
        }
    }

    /// Records that the stagnation intervention was given at `turn`. Redrafts of that turn are still checked; afterwards the
    /// stagnation monitor is paused for `window` turns, until its window contains no earlier message.
    pub fn intervened(&mut self, turn: usize) {
        if let Some(stagnation) = &mut self.stagnation {
            stagnation.intervened(turn);
        }
    }

    /// The most redrafts of one message: the repetition monitor's `max_retries`, or 1 if only the stagnation monitor is
    /// enabled.
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
