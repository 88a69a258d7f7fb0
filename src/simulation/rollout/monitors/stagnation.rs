//! The stagnation monitor: three signals over the persona's last `window` messages, including the draft. It never fires
//! before `min_turn`, before the window is full, or within `window` turns after an intervention.
//!
//! - similarity: the mean TF-IDF cosine over all pairs of those messages;
//! - convergence: the mean TF-IDF cosine of each of them with the interlocutor's message that it answers;
//! - novelty: the mean share of each one's content words that the persona had not used before it.
//!
//! Terms are all case-folded words: a loop repeats its function words too, and two messages that share only those stay far
//! below any sensible threshold. Cosine detects loops, not capitulation in new words; scores measure that.

use std::collections::{BTreeSet, VecDeque};

use super::{Draft, Monitor, MonitorFinding};
use crate::foundation::stats::mean;
use crate::foundation::text::{content_words, mean_pairwise_cosine, tfidf, words};
use crate::simulation::persona::{PersonaConfig, Stagnation};

pub(super) const NAME: &str = "stagnation";

/// The words of one of the persona's messages.
#[derive(Debug, Clone)]
struct MessageWords {
    words: Vec<String>,
    /// The words of the interlocutor's message it answers.
    answers: Option<Vec<String>>,
    /// The share of its distinct content words that the persona had not used before; `None` if it has none.
    novelty: Option<f64>,
}

/// The stagnation monitor.
#[derive(Debug, Clone)]
struct StagnationMonitor {
    settings: Stagnation,
    retries_max: usize,
    /// The last `window` − 1 accepted messages.
    recent: VecDeque<MessageWords>,
    /// The interlocutor's message that the next draft answers.
    answering: Option<Vec<String>>,
    /// Every content word that the persona has used.
    used: BTreeSet<String>,
    intervened: Option<usize>,
}

pub(super) fn build(config: Option<&PersonaConfig>) -> Option<Box<dyn Monitor>> {
    let interaction = &config?.interaction;
    Some(Box::new(StagnationMonitor {
        settings: interaction.stagnation.clone()?,
        retries_max: interaction.repetition.as_ref().map_or(1, |repetition| repetition.max_retries),
        recent: VecDeque::new(),
        answering: None,
        used: BTreeSet::new(),
        intervened: None,
    }))
}

impl Monitor for StagnationMonitor {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, &Draft { turn, text: draft }: &Draft<'_>) -> Vec<MonitorFinding> {
        let Stagnation { window, min_turn, .. } = self.settings;
        let resting = self.intervened.is_some_and(|at| turn > at && turn <= at + window);
        if turn < min_turn || resting || window < 2 || self.recent.len() + 1 < window {
            return Vec::new();
        }
        let draft = self.read(draft);
        let message: Vec<&MessageWords> = self.recent.iter().chain([&draft]).collect();
        let documents: Vec<&[String]> = message
            .iter()
            .map(|message| message.words.as_slice())
            .chain(message.iter().filter_map(|message| message.answers.as_deref()))
            .collect();
        let vectors = tfidf(&documents);
        let (own, theirs) = vectors.split_at(message.len());
        let similarity = mean_pairwise_cosine(own);
        let echoes: Vec<f64> = message
            .iter()
            .zip(own)
            .filter(|(message, _)| message.answers.is_some())
            .zip(theirs)
            .map(|((_, own), theirs)| own.cosine(theirs))
            .collect();
        let novelty: Vec<f64> = message.iter().filter_map(|message| message.novelty).collect();

        let above = |rule, value: Option<f64>, threshold: f64, what| {
            value.filter(|&value| value > threshold).map(|value| finding(rule, value, threshold, what))
        };
        [
            above(
                "similarity",
                similarity,
                self.settings.similarity_threshold,
                "the persona's last messages are alike",
            ),
            above(
                "convergence",
                mean(&echoes),
                self.settings.convergence_threshold,
                "the persona echoes the other side",
            ),
            mean(&novelty)
                .filter(|&value| value < self.settings.novelty_threshold)
                .map(|value| finding("novelty", value, self.settings.novelty_threshold, "the persona says little new")),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn accept_persona(&mut self, text: &str) {
        let message = self.read(text);
        self.answering = None;
        self.used.extend(content_words(text));
        self.recent.push_back(message);
        while self.recent.len() >= self.settings.window.max(1) {
            self.recent.pop_front();
        }
    }

    fn accept_interlocutor(&mut self, text: &str) {
        self.answering = Some(words(text));
    }

    /// Paused for `window` turns after `turn`, until the window contains no earlier message.
    fn intervened(&mut self, turn: usize) {
        self.intervened = Some(turn);
    }

    fn retries_max(&self) -> usize {
        self.retries_max
    }

    fn boxed(&self) -> Box<dyn Monitor> {
        Box::new(self.clone())
    }
}

impl StagnationMonitor {
    fn read(&self, text: &str) -> MessageWords {
        let distinct: BTreeSet<String> = content_words(text).into_iter().collect();
        let new = distinct.difference(&self.used).count();
        let novelty = (!distinct.is_empty()).then(|| new as f64 / distinct.len() as f64);
        MessageWords { words: words(text), answers: self.answering.clone(), novelty }
    }
}

fn finding(rule: &str, value: f64, threshold: f64, what: &str) -> MonitorFinding {
    MonitorFinding {
        monitor: NAME.to_owned(),
        rule: rule.to_owned(),
        detail: format!("{what}: {rule} {value:.2}, threshold {threshold:.2}"),
        value: Some(value),
        threshold: Some(threshold),
        instruction: String::new(),
    }
}
