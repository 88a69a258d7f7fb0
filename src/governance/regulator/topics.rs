//! Repeated failures on one topic.

use std::collections::VecDeque;

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
    /// The turns of the last failures, in order.
    failures: VecDeque<u64>,
    count: usize,
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

    /// Records a failure on `task` in turn `turn`. Failures of which the earliest is older than two turns each start a new
    /// count.
    pub(super) fn failed(
        &mut self,
        task: &Features,
        turn: u64,
        settings: &QualitySettings,
        name: impl FnOnce() -> String,
    ) {
        if task.is_empty() {
            return;
        }
        let mut topic = match self.nearest(task) {
            Some(at) => self.topics.remove(at),
            None => Topic { centre: Features::default(), name: name(), failures: VecDeque::new(), count: 0 },
        };
        let limit = settings.repeated_failures.max(1);
        topic.failures.retain(|&failed| failed.saturating_add(2 * limit as u64) > turn);
        topic.count = if topic.failures.is_empty() { 1 } else { topic.count + 1 };
        topic.failures.push_back(turn);
        if topic.failures.len() > limit {
            topic.failures.pop_front();
        }
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

    /// The topics that have failed too often as of turn `now`; a decision ends one turn after the last failure.
    pub(super) fn decisions(&self, settings: &QualitySettings, now: u64, out: &mut Vec<RankedDecision>) {
        let limit = settings.repeated_failures.max(1);
        let is_failing = |topic: &&Topic| {
            topic.failures.len() >= limit && topic.failures.back().is_some_and(|last| last.saturating_add(1) >= now)
        };
        for Topic { name, count, .. } in self.topics.iter().filter(is_failing) {
            out.push(RankedDecision {
                decision: Decision::CircuitBreak {
                    reason: CircuitBreakReason::RepeatedFailurePattern { cluster: name.clone(), failure_count: *count },
                    action: BreakAction::PauseAndAsk,
                    suggestion: format!("{count} replies on {name} failed in a row: ask the user what is missing"),
                },
                evidence: vec![Evidence::new("failures_in_a_row", *count as f64, limit as f64)],
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
        let settings = QualitySettings::default();
        let broken = |topics: &Topics, now: u64| {
            let mut out = Vec::new();
            topics.decisions(&QualitySettings::default(), now, &mut out);
            out.len()
        };
        let texts = ["Parse the invoice", "Parse this invoice again", "Book a hotel", "The invoice, parse it"];
        for (text, turn) in texts.into_iter().zip(1..) {
            topics.failed(&task(text), turn, &settings, || "t".into());
        }
        assert_eq!(broken(&topics, 4), 0);
        topics.failed(&task("parse the invoice properly"), 5, &settings, || "t".into());
        assert_eq!((broken(&topics, 5), broken(&topics, 6)), (1, 1));
        assert_eq!(broken(&topics, 7), 0, "two turns without a failure");
        topics.succeeded(&task("parse the invoice"));
        assert_eq!(broken(&topics, 5), 0);
        (0..4).for_each(|i| topics.failed(&task("parse the invoice"), 10 * i, &settings, || "t".into()));
        assert_eq!(broken(&topics, 30), 0, "one failure in ten turns");
        (0..100).for_each(|i| topics.failed(&task(&format!("{i}xyz")), i, &settings, || "t".into()));
        assert!(topics.topics.len() <= TOPICS_MAX);
    }
}
