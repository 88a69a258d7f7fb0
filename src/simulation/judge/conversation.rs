//! A transcript prepared for scores: its messages in chronological order, split into words once, with measurements per turn
//! and the standstills.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::foundation::stats::mean;
use crate::foundation::text::{SparseVector, content_words, mean_pairwise_cosine, tfidf, words};
use crate::simulation::persona::Speaker;
use crate::simulation::rollout::{Transcript, Utterance};

/// Messages of the persona per window of a standstill. This and the two thresholds below are the defaults of the stagnation
/// monitor, fixed here so that a score means the same for every configuration.
pub(super) const STANDSTILL_WINDOW: usize = 6;
/// A window with a mean pairwise similarity above this is a standstill.
const SIMILARITY: f64 = 0.80;
/// A window with a mean novelty below this is a standstill.
const NOVELTY: f64 = 0.10;
/// Words per opening or ending.
pub(super) const EDGE_WORDS: usize = 2;
/// Why a score of a persona without messages is missing.
pub(super) const SILENT: &str = "the persona said nothing";

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

/// One message.
#[derive(Debug)]
pub struct Message<'a> {
    /// The turn.
    pub turn: usize,
    /// The speaker.
    pub speaker: Speaker,
    /// The text.
    pub text: &'a str,
    /// Its words.
    pub words: Vec<String>,
    /// Its distinct content words.
    pub content: BTreeSet<String>,
}

impl<'a> Message<'a> {
    fn new(turn: usize, speaker: Speaker, text: &'a str) -> Self {
        Self { turn, speaker, text, words: words(text), content: content_words(text).into_iter().collect() }
    }
}

/// All messages with at least one word, in chronological order, and what is measured on them.
#[derive(Debug)]
pub struct Conversation<'a> {
    messages: Vec<Message<'a>>,
    /// Per turn with a reply of the persona.
    pub turns: Vec<TurnMeasures>,
    /// Spans of turns without anything new.
    pub standstills: Vec<Standstill>,
}

impl<'a> Conversation<'a> {
    /// The conversation of a transcript. The placeholder text of a failed reply is left out.
    pub fn of(transcript: &'a Transcript) -> Self {
        let message = |turn: usize, utterance: &'a Utterance| {
            utterance.failure.is_none().then(|| Message::new(turn, utterance.speaker, &utterance.content))
        };
        let opening = transcript.opening.words.as_deref().map(|text| Message::new(0, Speaker::Interlocutor, text));
        let turns = transcript.turns.iter().flat_map(|turn| {
            let mut pair = [&turn.persona, &turn.interlocutor];
            if transcript.opening.first_speaker == Speaker::Interlocutor {
                pair.reverse();
            }
            pair.into_iter().filter_map(move |utterance| message(turn.index, utterance))
        });
        let messages = opening.into_iter().chain(turns).filter(|message| !message.words.is_empty()).collect();
        let mut conversation = Self { messages, turns: Vec::new(), standstills: Vec::new() };
        conversation.turns = turns_of(&conversation);
        conversation.standstills = standstills(&conversation);
        conversation
    }

    /// All messages.
    pub fn all(&self) -> impl Iterator<Item = &Message<'a>> {
        self.messages.iter()
    }

    /// The persona's messages.
    pub fn persona(&self) -> impl Iterator<Item = &Message<'a>> {
        self.all().filter(|message| message.speaker == Speaker::Persona)
    }

    /// The words of each of the persona's messages.
    pub fn persona_words(&self) -> Vec<&[String]> {
        self.persona().map(|message| message.words.as_slice()).collect()
    }

    /// The share of the persona's messages with a property.
    ///
    /// # Errors
    /// [`SILENT`].
    pub fn share(&self, has: impl Fn(&Message<'a>) -> bool) -> Result<f64, String> {
        let count = self.persona().count();
        let share = self.persona().filter(|message| has(message)).count() as f64 / count as f64;
        if count > 0 { Ok(share) } else { Err(SILENT.to_owned()) }
    }

    /// Why a score of several messages is missing.
    pub fn too_few(&self) -> String {
        format!("{} message(s): at least two are needed", self.persona().count())
    }

    /// The persona's messages, each with the message that it answers: the interlocutor's last one since the persona's
    /// previous message.
    fn answers(&self) -> Vec<(&Message<'a>, Option<&Message<'a>>)> {
        let mut before = None;
        let mut answers = Vec::new();
        for line in self.all() {
            match line.speaker {
                Speaker::Interlocutor => before = Some(line),
                Speaker::Persona => answers.push((line, before.take())),
            }
        }
        answers
    }
}

fn turns_of(lines: &Conversation<'_>) -> Vec<TurnMeasures> {
    let answers = lines.answers();
    let vectors = tfidf(&word_lists(answers.iter().flat_map(|(line, before)| [Some(*line), *before]).flatten()));
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

fn standstills(lines: &Conversation<'_>) -> Vec<Standstill> {
    let persona: Vec<&Message<'_>> = lines.persona().collect();
    let novelty = novelty(lines);
    let mut standstills: Vec<Standstill> = Vec::new();
    for (messages, novelty) in persona.windows(STANDSTILL_WINDOW).zip(novelty.windows(STANDSTILL_WINDOW)) {
        let vectors: Vec<SparseVector> = tfidf(&word_lists(messages.iter().copied()));
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

fn word_lists<'a>(messages: impl Iterator<Item = &'a Message<'a>>) -> Vec<&'a [String]> {
    messages.map(|message| message.words.as_slice()).collect()
}

/// Per message of the persona: the share of its distinct content words that the persona had not used before.
fn novelty(lines: &Conversation<'_>) -> Vec<Option<f64>> {
    let mut used: BTreeSet<&str> = BTreeSet::new();
    lines
        .persona()
        .map(|line| {
            let new = line.content.iter().filter(|word| used.insert(word)).count();
            (!line.content.is_empty()).then(|| new as f64 / line.content.len() as f64)
        })
        .collect()
}

/// The share of different items; `None` for fewer than two.
pub(super) fn variety<T: Ord>(edges: impl Iterator<Item = T>) -> Option<f64> {
    let edges: Vec<T> = edges.collect();
    let (count, distinct) = (edges.len(), edges.into_iter().collect::<BTreeSet<_>>().len());
    (count > 1).then(|| distinct as f64 / count as f64)
}
