//! Whether the conversation moves, and who moves it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Score;
use super::lines::{Line, Lines};
use crate::foundation::stats::mean;
use crate::foundation::text::{SparseVector, mean_pairwise_cosine, tfidf};
use crate::simulation::persona::Speaker;

/// How many of the persona's messages are looked at together. This and the two below are the defaults of the
/// stagnation monitor, fixed here so that a score means the same for every configuration.
const WINDOW: usize = 6;
/// Messages more alike than this stand still.
const SIMILARITY: f64 = 0.80;
/// Messages with less new than this stand still.
const NOVELTY: f64 = 0.10;

/// What is measured on one turn's message of the persona's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnMeasures {
    /// The turn, from 0.
    pub turn: usize,
    /// The message's length.
    pub words: usize,
    /// The share of its distinct content words that the persona had not used before; absent if it has none.
    pub novelty: Option<f64>,
    /// Its TF-IDF cosine with the message that it answers; absent if it answers none.
    pub convergence: Option<f64>,
}

/// A run of turns in which the conversation stood still.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stretch {
    /// The first turn of the first window that stood still.
    pub first: usize,
    /// The last turn of the last one.
    pub last: usize,
    /// The highest mean similarity of a window in it.
    pub similarity: f64,
    /// The lowest mean novelty of a window in it; absent if no message in it had content words.
    pub novelty: Option<f64>,
}

pub(super) fn turns(lines: &Lines<'_>) -> Vec<TurnMeasures> {
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

pub(super) fn stretches(lines: &Lines<'_>) -> Vec<Stretch> {
    let persona: Vec<&Line<'_>> = lines.persona().collect();
    let novelty = novelty(lines);
    let mut stretches: Vec<Stretch> = Vec::new();
    for (said, novelty) in persona.windows(WINDOW).zip(novelty.windows(WINDOW)) {
        let vectors: Vec<SparseVector> = tfidf(&words(said.iter().copied()));
        let similarity = mean_pairwise_cosine(&vectors).unwrap_or_default();
        let novelty = mean(&novelty.iter().flatten().copied().collect::<Vec<_>>());
        if similarity <= SIMILARITY && novelty.is_none_or(|novelty| novelty >= NOVELTY) {
            continue;
        }
        let (Some(first), Some(last)) = (said.first(), said.last()) else { continue };
        match stretches.last_mut().filter(|stretch| first.turn <= stretch.last) {
            Some(stretch) => {
                stretch.last = last.turn;
                stretch.similarity = stretch.similarity.max(similarity);
                stretch.novelty = stretch.novelty.into_iter().chain(novelty).reduce(f64::min);
            }
            None => stretches.push(Stretch { first: first.turn, last: last.turn, similarity, novelty }),
        }
    }
    stretches
}

pub(super) fn scores(lines: &Lines<'_>, turns: &[TurnMeasures], stretches: &[Stretch]) -> Vec<Score> {
    let novelty: Vec<f64> = turns.iter().skip(1).filter_map(|turn| turn.novelty).collect();
    let convergence: Vec<f64> = turns.iter().filter_map(|turn| turn.convergence).collect();
    let inside = |turn: usize| stretches.iter().any(|stretch| (stretch.first..=stretch.last).contains(&turn));
    let still = turns.iter().filter(|measured| inside(measured.turn)).count() as f64 / turns.len() as f64;
    vec![
        Score::new("novelty/1", mean(&novelty), || "no message after the first has content words".to_owned()),
        Score::new("initiative/1", initiative(lines), || "the persona used no content words".to_owned()),
        Score::new("convergence/1", mean(&convergence), || "no message of the persona's answers one".to_owned()),
        Score::new("standstill/1", (turns.len() >= WINDOW).then_some(still), || {
            format!("{} message(s): at least {WINDOW} are needed", turns.len())
        }),
    ]
}

fn words<'a>(lines: impl Iterator<Item = &'a Line<'a>>) -> Vec<&'a [String]> {
    lines.map(|line| line.words.as_slice()).collect()
}

/// Per message of the persona's: the share of its distinct content words that the persona had not used before.
fn novelty(lines: &Lines<'_>) -> Vec<Option<f64>> {
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
fn initiative(lines: &Lines<'_>) -> Option<f64> {
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
