//! Scores on the course of the conversation: novelty, initiative, convergence, standstill.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::MeasuredScore;
use super::lines::{ConversationWords, MessageWords};
use crate::foundation::stats::mean;
use crate::foundation::text::{SparseVector, mean_pairwise_cosine, tfidf};
use crate::simulation::persona::Speaker;

/// Messages of the persona per window. This and the two thresholds below are the defaults of the stagnation monitor,
/// fixed here so that a score means the same for every configuration.
const WINDOW: usize = 6;
/// A window with a mean pairwise similarity above this is a standstill.
const SIMILARITY: f64 = 0.80;
/// A window with a mean novelty below this is a standstill.
const NOVELTY: f64 = 0.10;

/// Measurements of the persona's message in one turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnMeasures {
    /// The turn, from 0.
    pub turn: usize,
    /// The message's length.
    pub words: usize,
    /// The share of its distinct content words that the persona had not used before; absent without content words.
    pub novelty: Option<f64>,
    /// TF-IDF cosine with the message that it answers; absent if it answers none.
    pub convergence: Option<f64>,
}

/// A span of turns without anything new.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Standstill {
    /// The first turn of the span's first window.
    pub first: usize,
    /// The last turn of its last window.
    pub last: usize,
    /// The highest mean similarity of a window.
    pub similarity: f64,
    /// The lowest mean novelty of a window; absent if no message had content words.
    pub novelty: Option<f64>,
}

pub(super) fn turns(lines: &ConversationWords<'_>) -> Vec<TurnMeasures> {
    let answers = lines.answers();
    let vectors = tfidf(&words(answers.iter().flat_map(|(line, before)| [Some(*line), *before]).flatten()));
    let mut vectors = vectors.iter();
    answers
        .iter()
        .zip(novelty(lines))
        .map(|((line, before), novelty)| {
            let own = vectors.next();
            let other = before.and_then(|_| vectors.next());
            let convergence = own.zip(other).map(|(own, other)| own.cosine(other));
            TurnMeasures { turn: line.turn, words: line.words.len(), novelty, convergence }
        })
        .collect()
}

pub(super) fn standstills(lines: &ConversationWords<'_>) -> Vec<Standstill> {
    let persona: Vec<&MessageWords<'_>> = lines.persona().collect();
    let novelty = novelty(lines);
    let mut standstills: Vec<Standstill> = Vec::new();
    for (messages, novelty) in persona.windows(WINDOW).zip(novelty.windows(WINDOW)) {
        let vectors: Vec<SparseVector> = tfidf(&words(messages.iter().copied()));
        let similarity = mean_pairwise_cosine(&vectors).unwrap_or_default();
        let novelty = mean(&novelty.iter().flatten().copied().collect::<Vec<_>>());
        if similarity <= SIMILARITY && novelty.is_none_or(|novelty| novelty >= NOVELTY) {
            continue;
        }
        let (Some(first), Some(last)) = (messages.first(), messages.last()) else { continue };
        match standstills.last_mut().filter(|span| first.turn <= span.last) {
            Some(span) => {
                span.last = last.turn;
                span.similarity = span.similarity.max(similarity);
                span.novelty = span.novelty.into_iter().chain(novelty).reduce(f64::min);
            }
            None => standstills.push(Standstill { first: first.turn, last: last.turn, similarity, novelty }),
        }
    }
    standstills
}

pub(super) fn scores(
    lines: &ConversationWords<'_>,
    turns: &[TurnMeasures],
    standstills: &[Standstill],
) -> Vec<MeasuredScore> {
    let novelty: Vec<f64> = turns.iter().skip(1).filter_map(|turn| turn.novelty).collect();
    let convergence: Vec<f64> = turns.iter().filter_map(|turn| turn.convergence).collect();
    let inside = |turn: usize| standstills.iter().any(|span| (span.first..=span.last).contains(&turn));
    let still = turns.iter().filter(|measured| inside(measured.turn)).count() as f64 / turns.len() as f64;
    vec![
        MeasuredScore::new("novelty/1", mean(&novelty), || "no message after the first has content words".to_owned()),
        MeasuredScore::new("initiative/1", initiative(lines), || "the persona used no content words".to_owned()),
        MeasuredScore::new("convergence/1", mean(&convergence), || {
            "no message of the persona's answers one".to_owned()
        }),
        MeasuredScore::new("standstill/1", (turns.len() >= WINDOW).then_some(still), || {
            format!("{} message(s): at least {WINDOW} are needed", turns.len())
        }),
    ]
}

fn words<'a>(lines: impl Iterator<Item = &'a MessageWords<'a>>) -> Vec<&'a [String]> {
    lines.map(|line| line.words.as_slice()).collect()
}

/// Per message of the persona: the share of its distinct content words that the persona had not used before.
fn novelty(lines: &ConversationWords<'_>) -> Vec<Option<f64>> {
    let mut used: BTreeSet<&str> = BTreeSet::new();
    lines
        .persona()
        .map(|line| {
            let new = line.content.iter().filter(|word| used.insert(word)).count();
            (!line.content.is_empty()).then(|| new as f64 / line.content.len() as f64)
        })
        .collect()
}

/// Of the distinct content words that the persona used, the share that it was the first to use.
fn initiative(lines: &ConversationWords<'_>) -> Option<f64> {
    let mut said: BTreeSet<&str> = BTreeSet::new();
    let mut used: BTreeSet<&str> = BTreeSet::new();
    let mut introduced = 0usize;
    for line in lines.all() {
        for word in &line.content {
            let new = said.insert(word);
            if line.speaker == Speaker::Persona {
                used.insert(word);
                introduced += usize::from(new);
            }
        }
    }
    (!used.is_empty()).then(|| introduced as f64 / used.len() as f64)
}
