//! The part of a conversation that a judge reads: the last turns, as many as were asked for and as fit.

use crate::simulation::persona::Speaker;
use crate::simulation::rollout::{Transcript, Turn};

/// Some turns of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) turns: (usize, usize),
    lines: Vec<(usize, Speaker, String)>,
}

impl Window {
    /// Up to `most` turns that end with the persona's message of `turn`.
    pub(super) fn of(transcript: &Transcript, turn: &Turn, most: usize) -> Self {
        let first = (turn.index + 1).saturating_sub(most.max(1));
        let interlocutor_first = transcript.opening.first_speaker == Speaker::Interlocutor;
        let mut lines = Vec::new();
        if let Some(words) = transcript.opening.words.as_ref().filter(|_| first == 0) {
            lines.push((0, Speaker::Interlocutor, words.clone()));
        }
        for held in transcript.turns.iter().filter(|held| (first..=turn.index).contains(&held.index)) {
            let mut pair = [&held.persona, &held.interlocutor];
            if interlocutor_first {
                pair.reverse();
            }
            // What was said after the persona's last message is not yet part of it.
            let said = pair.into_iter().filter(|said| said.failure.is_none());
            let said =
                said.filter(|said| said.speaker == Speaker::Persona || interlocutor_first || held.index < turn.index);
            lines.extend(said.map(|said| (held.index, said.speaker, said.content.clone())));
        }
        Self { turns: (first, turn.index), lines }
    }

    /// A window of its own, for calibration.
    pub(super) fn written(lines: impl Iterator<Item = (Speaker, String)>) -> Self {
        let lines = lines.map(|(speaker, text)| (0, speaker, text)).collect();
        Self { turns: (0, 0), lines }
    }

    /// The same without its oldest turn; `None` when only one is left.
    pub(super) fn shorter(&self) -> Option<Self> {
        let (first, last) = self.turns;
        let turns = (first + 1, last);
        let lines = self.lines.iter().filter(|(turn, ..)| *turn > first).cloned().collect();
        (first < last).then_some(Self { turns, lines })
    }

    /// As a judge reads it.
    pub(super) fn text(&self, name: &str) -> String {
        let who = |speaker| if speaker == Speaker::Persona { name } else { "Other" };
        let line = |(_, speaker, text): &(usize, Speaker, String)| {
            format!("{}: {}", who(*speaker), text.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        self.lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}
