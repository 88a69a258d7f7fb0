//! Has the conversation come to a standstill? Three signals over the persona's last `window` messages, the draft among
//! them. They stay silent before `min_turn`, until the window is full, and for `window` turns after an intervention.
//!
//! - similarity: the mean TF-IDF cosine over all pairs of those messages;
//! - convergence: the mean TF-IDF cosine of each of them with the interlocutor's message that it answers;
//! - novelty: the mean share of each one's content words that the persona had not used before it.
//!
//! Terms are folded words, all of them: a loop repeats its function words too, and two messages that share nothing else
//! stay far below any sensible threshold. Cosine catches loops, not capitulation in fresh words; that is left to scores.

use std::collections::{BTreeSet, VecDeque};

use super::{Finding, MonitorKind};
use crate::foundation::stats::mean;
use crate::foundation::text::{content_words, mean_pairwise_cosine, tfidf, words};
use crate::simulation::persona::Stagnation;

/// One of the persona's messages, as far as it is compared.
#[derive(Debug, Clone)]
struct Said {
    words: Vec<String>,
    /// The words of the interlocutor's message that it answers.
    answers: Option<Vec<String>>,
    /// The share of its distinct content words that the persona had not used before; `None` if it has none.
    novelty: Option<f64>,
}

/// Watches for standstill.
#[derive(Debug, Clone)]
pub(super) struct StagnationMonitor {
    settings: Stagnation,
    /// The last `window` − 1 accepted messages.
    recent: VecDeque<Said>,
    /// The interlocutor's message that the next one answers.
    answering: Option<Vec<String>>,
    /// Every content word that the persona has used.
    used: BTreeSet<String>,
    intervened: Option<usize>,
}

impl StagnationMonitor {
    pub(super) fn new(settings: Stagnation) -> Self {
        Self { settings, recent: VecDeque::new(), answering: None, used: BTreeSet::new(), intervened: None }
    }

    pub(super) fn check(&self, turn: usize, draft: &str) -> Vec<Finding> {
        let Stagnation { window, min_turn, .. } = self.settings;
        let resting = self.intervened.is_some_and(|at| turn > at && turn <= at + window);
        if turn < min_turn || resting || window < 2 || self.recent.len() + 1 < window {
            return Vec::new();
        }
        let draft = self.read(draft);
        let said: Vec<&Said> = self.recent.iter().chain([&draft]).collect();
        let documents: Vec<&[String]> = said
            .iter()
            .map(|said| said.words.as_slice())
            .chain(said.iter().filter_map(|said| said.answers.as_deref()))
            .collect();
        let vectors = tfidf(&documents);
        let (own, theirs) = vectors.split_at(said.len());
        let similarity = mean_pairwise_cosine(own);
        let echoes: Vec<f64> = said
            .iter()
            .zip(own)
            .filter(|(said, _)| said.answers.is_some())
            .zip(theirs)
            .map(|((_, own), theirs)| own.cosine(theirs))
            .collect();
        let novelty: Vec<f64> = said.iter().filter_map(|said| said.novelty).collect();

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

    pub(super) fn accept_persona(&mut self, text: &str) {
        let said = self.read(text);
        self.answering = None;
        self.used.extend(content_words(text));
        self.recent.push_back(said);
        while self.recent.len() >= self.settings.window.max(1) {
            self.recent.pop_front();
        }
    }

    pub(super) fn accept_interlocutor(&mut self, text: &str) {
        self.answering = Some(words(text));
    }

    pub(super) fn intervened(&mut self, turn: usize) {
        self.intervened = Some(turn);
    }

    fn read(&self, text: &str) -> Said {
        let distinct: BTreeSet<String> = content_words(text).into_iter().collect();
        let new = distinct.difference(&self.used).count();
        let novelty = (!distinct.is_empty()).then(|| new as f64 / distinct.len() as f64);
        Said { words: words(text), answers: self.answering.clone(), novelty }
    }
}

fn finding(rule: &str, value: f64, threshold: f64, what: &str) -> Finding {
    Finding {
        monitor: MonitorKind::Stagnation,
        rule: rule.to_owned(),
        detail: format!("{what}: {rule} {value:.2}, threshold {threshold:.2}"),
        value: Some(value),
        threshold: Some(threshold),
        instruction: String::new(),
    }
}
