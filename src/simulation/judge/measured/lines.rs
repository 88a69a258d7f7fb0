//! A transcript as the scores read it: what was said, in the order in which it was said, taken apart into words once.

use std::collections::BTreeSet;

use crate::foundation::text::{content_words, words};
use crate::simulation::persona::Speaker;
use crate::simulation::rollout::{Transcript, Utterance};

/// One message.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) turn: usize,
    pub(super) speaker: Speaker,
    pub(super) text: &'a str,
    pub(super) words: Vec<String>,
    /// Its distinct content words.
    pub(super) content: BTreeSet<String>,
}

impl<'a> Line<'a> {
    fn new(turn: usize, speaker: Speaker, text: &'a str) -> Self {
        Self { turn, speaker, text, words: words(text), content: content_words(text).into_iter().collect() }
    }
}

/// All messages that hold a word, in the order in which they were said.
#[derive(Debug)]
pub(super) struct Lines<'a>(Vec<Line<'a>>);

impl<'a> Lines<'a> {
    pub(super) fn of(transcript: &'a Transcript) -> Self {
        let said = |turn: usize, utterance: &'a Utterance| {
            utterance.failure.is_none().then(|| Line::new(turn, utterance.speaker, &utterance.content))
        };
        let opening = transcript.opening.words.as_deref().map(|text| Line::new(0, Speaker::Interlocutor, text));
        let turns = transcript.turns.iter().flat_map(|turn| {
            let mut pair = [&turn.persona, &turn.interlocutor];
            if transcript.opening.first_speaker == Speaker::Interlocutor {
                pair.reverse();
            }
            pair.into_iter().filter_map(move |utterance| said(turn.index, utterance))
        });
        Self(opening.into_iter().chain(turns).filter(|line| !line.words.is_empty()).collect())
    }

    /// Both sides.
    pub(super) fn all(&self) -> impl Iterator<Item = &Line<'a>> {
        self.0.iter()
    }

    /// The persona's.
    pub(super) fn persona(&self) -> impl Iterator<Item = &Line<'a>> {
        self.all().filter(|line| line.speaker == Speaker::Persona)
    }

    /// The persona's, each with the message that it answers: the interlocutor's last one before it, if one came after
    /// the persona's own last.
    pub(super) fn answers(&self) -> Vec<(&Line<'a>, Option<&Line<'a>>)> {
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
