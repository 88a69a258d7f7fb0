//! Checks of the persona's drafts while a conversation runs, and of imported conversations afterwards.
//!
//! A monitor is one file with a type that implements [`Monitor`], and one line in [`REGISTRY`]. Its state is a pure function
//! of the accepted messages and of the turns with an intervention, so a resumed rollout restores it by replaying its
//! transcript.
//!
//! ```
//! use loom_agent::simulation::rollout::monitors::Monitors;
//!
//! let monitors = Monitors::new(None);
//! let findings = monitors.check(0, "I'm an AI language model. How can I help you today?");
//! assert_eq!(findings[0].monitor, "assistant_voice");
//! assert!(monitors.check(0, "I haven't slept since Tuesday.").is_empty());
//! ```

mod assistant_voice;
mod both_sides;
mod breakdown;
mod instruction_leak;
mod language;
mod narration;
mod refusal;
mod repetition;
mod silence;
mod stagnation;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::simulation::persona::PersonaConfig;

/// Builds a monitor: `None` if the config switches it off or does not fit it. Without a config (an imported conversation)
/// only monitors without settings are built.
type Build = fn(Option<&PersonaConfig>) -> Option<Box<dyn Monitor>>;

/// The monitors, in the order of their findings.
const REGISTRY: &[(&str, Build)] = &[
    (stagnation::NAME, stagnation::build),
    (repetition::NAME, repetition::build),
    (silence::NAME, silence::build),
    (assistant_voice::NAME, assistant_voice::build),
    (both_sides::NAME, both_sides::build),
    (narration::NAME, narration::build),
    (instruction_leak::NAME, instruction_leak::build),
    (refusal::NAME, refusal::build),
    (language::NAME, language::build),
];

/// A message of the persona before it is accepted.
#[derive(Debug, Clone, Copy)]
pub struct Draft<'a> {
    /// The turn, from 0.
    pub turn: usize,
    /// The text.
    pub text: &'a str,
}

/// A check of the persona's messages. Only accepted messages may change its state.
pub trait Monitor: fmt::Debug + Send + Sync {
    /// Its name in transcripts and reports.
    fn name(&self) -> &'static str;

    /// The findings in `draft`, given the accepted messages.
    fn check(&self, draft: &Draft<'_>) -> Vec<MonitorFinding>;

    /// Adds an accepted message of the persona.
    fn accept_persona(&mut self, text: &str) {
        let _ = text;
    }

    /// Adds a message of the interlocutor.
    fn accept_interlocutor(&mut self, text: &str) {
        let _ = text;
    }

    /// Records that another draft was requested at `turn` because of this monitor.
    fn intervened(&mut self, turn: usize) {
        let _ = turn;
    }

    /// The most redrafts of one message because of its findings.
    fn retries_max(&self) -> usize;

    /// A copy.
    fn boxed(&self) -> Box<dyn Monitor>;
}

/// A monitor's finding in a draft.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MonitorFinding {
    /// The monitor's name.
    pub monitor: String,
    /// The rule that fired; `docs/FORMATS.md` lists them.
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
#[derive(Debug)]
pub struct Monitors(Vec<Box<dyn Monitor>>);

impl Clone for Monitors {
    fn clone(&self) -> Self {
        Self(self.0.iter().map(|monitor| monitor.boxed()).collect())
    }
}

impl Monitors {
    /// The monitors as configured, before the first message.
    pub fn new(config: Option<&PersonaConfig>) -> Self {
        Self(REGISTRY.iter().filter_map(|(_, build)| build(config)).collect())
    }

    /// The names of the monitors that run.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|monitor| monitor.name().to_owned()).collect()
    }

    /// The names of all monitors.
    pub fn all() -> impl Iterator<Item = &'static str> {
        REGISTRY.iter().map(|(name, _)| *name)
    }

    /// The findings in `draft` as the persona's message of turn `turn`, given the accepted messages.
    pub fn check(&self, turn: usize, draft: &str) -> Vec<MonitorFinding> {
        let draft = Draft { turn, text: draft };
        self.0.iter().flat_map(|monitor| monitor.check(&draft)).collect()
    }

    /// Adds an accepted message of the persona.
    pub fn accept_persona(&mut self, text: &str) {
        self.0.iter_mut().for_each(|monitor| monitor.accept_persona(text));
    }

    /// Adds a message of the interlocutor.
    pub fn accept_interlocutor(&mut self, text: &str) {
        self.0.iter_mut().for_each(|monitor| monitor.accept_interlocutor(text));
    }

    /// Records that another draft was requested at `turn` because of the named monitor. Redrafts of that turn are still
    /// checked.
    pub fn intervened(&mut self, monitor: &str, turn: usize) {
        let named = self.0.iter_mut().filter(|other| other.name() == monitor);
        named.for_each(|monitor| monitor.intervened(turn));
    }

    /// The most redrafts of one message, whatever the findings.
    pub fn redrafts_max(&self) -> usize {
        self.0.iter().map(|monitor| monitor.retries_max()).max().unwrap_or_default()
    }

    /// The most redrafts of one message with these findings.
    pub fn retries_max(&self, findings: &[MonitorFinding]) -> usize {
        #[expect(clippy::borrowed_box, reason = "the list holds boxes")]
        let fired = |monitor: &&Box<dyn Monitor>| findings.iter().any(|finding| finding.monitor == monitor.name());
        self.0.iter().filter(fired).map(|monitor| monitor.retries_max()).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
