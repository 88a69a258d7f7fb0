//! The persona falls silent, or repeats one of its messages word for word.

use std::collections::VecDeque;

use super::breakdown::{allowed, finding};
use super::{Draft, Monitor, MonitorFinding};
use crate::foundation::text::{fold, words};
use crate::simulation::persona::PersonaConfig;

pub(super) const NAME: &str = "silence";

/// How many of the persona's messages are compared.
const WINDOW: usize = 6;
/// Shorter messages may be repeated: people say "Yes, that's right." more than once.
const WORDS_MIN: usize = 5;
/// What stands for silence between brackets or stars.
const PLACEHOLDERS: [&str; 10] = [
    "silence",
    "long silence",
    "no response",
    "no reply",
    "no answer",
    "empty",
    "blank",
    "says nothing",
    "no message",
    "silent",
];

/// The persona's last messages, as words.
#[derive(Debug, Clone)]
struct SilenceMonitor {
    recent: VecDeque<Vec<String>>,
    retries_max: usize,
}

pub(super) fn build(config: Option<&PersonaConfig>) -> Option<Box<dyn Monitor>> {
    allowed(config, NAME, |retries_max| SilenceMonitor { recent: VecDeque::new(), retries_max })
}

impl Monitor for SilenceMonitor {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, draft: &Draft<'_>) -> Vec<MonitorFinding> {
        let said = words(draft.text);
        if said.is_empty() || is_placeholder(draft.text) {
            let instruction = "Say something: at least one sentence about what is on your mind.";
            return vec![finding(NAME, "says nothing", "", instruction)];
        }
        let repeats = said.len() >= WORDS_MIN && self.recent.contains(&said);
        let instruction = "You have said exactly that already. Say something else, in other words.";
        repeats.then(|| finding(NAME, "repeats an earlier message", draft.text, instruction)).into_iter().collect()
    }

    fn accept_persona(&mut self, text: &str) {
        if self.recent.len() == WINDOW {
            self.recent.pop_front();
        }
        self.recent.push_back(words(text));
    }

    fn retries_max(&self) -> usize {
        self.retries_max
    }

    fn boxed(&self) -> Box<dyn Monitor> {
        Box::new(self.clone())
    }
}

fn is_placeholder(text: &str) -> bool {
    let folded = fold(text);
    let inner = folded.trim_matches(|c: char| !c.is_alphanumeric());
    inner.len() < folded.len() && folded.starts_with(['[', '(', '<', '*', '_']) && PLACEHOLDERS.contains(&inner)
}
