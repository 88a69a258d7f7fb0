//! Repeated failures on one topic.

use super::decision::{BreakAction, CircuitBreakReason, Decision, Evidence, RankedDecision};
use super::features::Features;
use super::settings::QualitySettings;

/// Most topics tracked at once; the one whose last failure is oldest is dropped.
const TOPICS_MAX: usize = 16;
/// Tasks with at least this cosine similarity are one topic.
const SAME_TOPIC: f32 = 0.3;
/// Most features stored per topic.
const FEATURES_MAX: usize = 64;

#[derive(Debug, Clone)]
struct Topic {
    centre: Features,
    name: String,
    failures: usize,
}

/// Consecutive failures per topic, the latest topic last.
#[derive(Debug, Clone, Default)]
pub(super) struct Topics {
    topics: Vec<Topic>,
}

impl Topics {
    fn nearest(&mut self, task: &Features) -> Option<usize> {
        let alike = |topic: &Topic| topic.centre.cosine(task);
        let (at, cosine) = self.topics.iter().map(alike).enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
        (cosine >= SAME_TOPIC).then_some(at)
    }

    /// Records a failed turn on `task`.
    pub(super) fn failed(&mut self, task: &Features, name: impl FnOnce() -> String) {
        if task.is_empty() {
            return;
        }
        let mut topic = match self.nearest(task) {
            Some(at) => self.topics.remove(at),
            None => Topic { centre: Features::default(), name: name(), failures: 0 },
        };
        topic.failures += 1;
        topic.centre.add_unit(task, FEATURES_MAX);
        if self.topics.len() == TOPICS_MAX {
            self.topics.remove(0);
        }
        self.topics.push(topic);
    }

    /// Records a successful turn on `task`: the topic's count is reset.
    pub(super) fn succeeded(&mut self, task: &Features) {
        if let Some(at) = self.nearest(task) {
            self.topics.remove(at);
        }
    }

    pub(super) fn decisions(&self, settings: &QualitySettings, out: &mut Vec<RankedDecision>) {
        let limit = settings.repeated_failures.max(1);
        for Topic { name, failures, .. } in self.topics.iter().filter(|topic| topic.failures >= limit) {
            out.push(RankedDecision {
                decision: Decision::CircuitBreak {
                    reason: CircuitBreakReason::RepeatedFailurePattern {
                        cluster: name.clone(),
                        failure_count: *failures,
                    },
                    action: BreakAction::PauseAndAsk,
                    suggestion: format!("{failures} replies on {name} failed in a row: ask the user what is missing"),
                },
                evidence: vec![Evidence::new("failures_in_a_row", *failures as f64, limit as f64)],
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::governance::regulator::scanner::Scan;

    #[test]
    fn failures_count_by_topic_until_one_succeeds() {
        let task = |text: &str| Features::of(Scan::of(text).words());
        let mut topics = Topics::default();
        let broken = |topics: &Topics| {
            let mut out = Vec::new();
            topics.decisions(&QualitySettings::default(), &mut out);
            out.len()
        };
        for text in ["Parse the invoice", "Parse this invoice again", "Book a hotel", "The invoice, parse it"] {
            topics.failed(&task(text), || "t".into());
        }
        assert_eq!(broken(&topics), 0);
        topics.failed(&task("parse the invoice properly"), || "t".into());
        assert_eq!(broken(&topics), 1);
        topics.succeeded(&task("parse the invoice"));
        assert_eq!(broken(&topics), 0);
        (0..100).for_each(|i| topics.failed(&task(&format!("{i}xyz")), || "t".into()));
        assert!(topics.topics.len() <= TOPICS_MAX);
    }
}
