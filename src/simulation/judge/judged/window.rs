//! The part of a conversation that a judge reads: the last turns, up to the window's length and as many as fit.

use crate::simulation::persona::Speaker;
use crate::simulation::rollout::{Transcript, Turn};

/// Consecutive turns of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) turns: (usize, usize),
    lines: Vec<(usize, Speaker, String)>,
}

impl Window {
    /// Up to `turns_max` turns that end with the message of `last` in `turn`.
    pub(super) fn ending_with(last: Speaker, transcript: &Transcript, turn: &Turn, turns_max: usize) -> Self {
        let first = (turn.index + 1).saturating_sub(turns_max.max(1));
        let interlocutor_first = transcript.opening.first_speaker == Speaker::Interlocutor;
        let mut lines = Vec::new();
        if let Some(words) = transcript.opening.words.as_ref().filter(|_| first == 0) {
            lines.push((0, Speaker::Interlocutor, words.clone()));
        }
        for included in transcript.turns.iter().filter(|earlier| (first..=turn.index).contains(&earlier.index)) {
            let mut pair = [&included.persona, &included.interlocutor];
            if interlocutor_first {
                pair.reverse();
            }
            // What follows the last message within its turn is not part of the window.
            let until =
                pair.iter().position(|message| message.speaker == last).filter(|_| included.index == turn.index);
            let messages =
                pair.into_iter().take(until.map_or(2, |at| at + 1)).filter(|message| message.failure.is_none());
            lines.extend(messages.map(|message| (included.index, message.speaker, message.content.clone())));
        }
        Self { turns: (first, turn.index), lines }
    }

    /// A window that is not part of a transcript, for calibration.
    pub(super) fn from_lines(lines: impl Iterator<Item = (Speaker, String)>) -> Self {
        let lines = lines.map(|(speaker, text)| (0, speaker, text)).collect();
        Self { turns: (0, 0), lines }
    }

    /// The window without its oldest turn; `None` if it has only one.
    pub(super) fn shorter(&self) -> Option<Self> {
        let (first, last) = self.turns;
        let turns = (first + 1, last);
        let lines = self.lines.iter().filter(|(turn, ..)| *turn > first).cloned().collect();
        (first < last).then_some(Self { turns, lines })
    }

    /// The text that the judge reads.
    pub(super) fn text(&self, name: &str) -> String {
        let who = |speaker| if speaker == Speaker::Persona { name } else { "Other" };
        let line = |(_, speaker, text): &(usize, Speaker, String)| {
            format!("{}: {}", who(*speaker), text.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        self.lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}
