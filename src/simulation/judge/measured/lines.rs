//! A transcript's messages in chronological order, split into words once for all scores.

use std::collections::BTreeSet;

use crate::foundation::text::{content_words, words};
use crate::simulation::persona::Speaker;
use crate::simulation::rollout::{Transcript, Utterance};

/// One message.
#[derive(Debug)]
pub(super) struct MessageWords<'a> {
    pub(super) turn: usize,
    pub(super) speaker: Speaker,
    pub(super) text: &'a str,
    pub(super) words: Vec<String>,
    /// Its distinct content words.
    pub(super) content: BTreeSet<String>,
}

impl<'a> MessageWords<'a> {
    fn new(turn: usize, speaker: Speaker, text: &'a str) -> Self {
        Self { turn, speaker, text, words: words(text), content: content_words(text).into_iter().collect() }
    }
}

/// All messages with at least one word, in chronological order.
#[derive(Debug)]
pub(super) struct ConversationWords<'a>(Vec<MessageWords<'a>>);

impl<'a> ConversationWords<'a> {
    pub(super) fn of(transcript: &'a Transcript) -> Self {
        let message = |turn: usize, utterance: &'a Utterance| {
            utterance.failure.is_none().then(|| MessageWords::new(turn, utterance.speaker, &utterance.content))
        };
        let opening = transcript.opening.words.as_deref().map(|text| MessageWords::new(0, Speaker::Interlocutor, text));
        let turns = transcript.turns.iter().flat_map(|turn| {
            let mut pair = [&turn.persona, &turn.interlocutor];
            if transcript.opening.first_speaker == Speaker::Interlocutor {
                pair.reverse();
            }
            pair.into_iter().filter_map(move |utterance| message(turn.index, utterance))
        });
        Self(opening.into_iter().chain(turns).filter(|line| !line.words.is_empty()).collect())
    }

    /// All messages.
    pub(super) fn all(&self) -> impl Iterator<Item = &MessageWords<'a>> {
        self.0.iter()
    }

    /// The persona's messages.
    pub(super) fn persona(&self) -> impl Iterator<Item = &MessageWords<'a>> {
        self.all().filter(|line| line.speaker == Speaker::Persona)
    }

    /// The persona's messages, each with the message that it answers: the interlocutor's last one since the persona's
    /// previous message.
    pub(super) fn answers(&self) -> Vec<(&MessageWords<'a>, Option<&MessageWords<'a>>)> {
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
