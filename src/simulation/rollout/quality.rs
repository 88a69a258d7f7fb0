//! How good the persona's messages are, as far as their words alone tell while a rollout runs: what its regulator is fed
//! back (`docs/REGULATOR.md`, "Quality while it runs"). Scores with names and definitions are taken afterwards, by the
//! judge's room; this one only has to tell a regulator that a conversation goes round in circles.
//!
//! The state follows from what was accepted, so a resumed rollout gets it back from its record.

use std::collections::{BTreeSet, VecDeque};

use super::transcript::MeasuredQuality;
use crate::foundation::text::{agrees, words};

/// How many of the persona's messages are looked back on: the stagnation monitor's default window.
const WINDOW: usize = 6;
/// So many words in a row are seldom shared by accident.
const GRAM: usize = 3;
/// A shorter message says too little to be judged.
const WORDS_MIN: usize = 8;
/// The share of words in a row that people repeat, of themselves and of each other; only what is beyond it counts.
const USUAL_OVERLAP: f64 = 1.0 / 3.0;
/// The share of messages in which people agree; only what is beyond it counts.
const USUAL_AGREEMENT: f64 = 1.0 / 2.0;

/// What the next message of the persona's is held against.
#[derive(Debug, Clone, Default)]
pub(super) struct QualityGauge {
    /// The persona's last messages.
    own: VecDeque<Said>,
    /// The words of the message that the next one answers.
    answering: Vec<String>,
}

#[derive(Debug, Clone)]
struct Said {
    words: Vec<String>,
    agrees: bool,
}

impl QualityGauge {
    /// The quality of `text` as the persona's next message; `None` when it is too short to tell.
    pub(super) fn measure(&self, text: &str) -> Option<MeasuredQuality> {
        let said = words(text);
        if said.len() < WORDS_MIN {
            return None;
        }
        let grams: BTreeSet<&[String]> = said.windows(GRAM).collect();
        let share = |before: &BTreeSet<&[String]>| {
            grams.iter().filter(|gram| before.contains(*gram)).count() as f64 / grams.len() as f64
        };
        let repeated = share(&self.own.iter().flat_map(|said| said.words.windows(GRAM)).collect());
        let echoed = share(&self.answering.windows(GRAM).collect());
        let before = self.own.iter().rev().take(WINDOW - 1).filter(|said| said.agrees).count();
        let agreeing = (before + usize::from(agrees(text))) as f64 / WINDOW as f64;
        let worst = beyond(repeated, USUAL_OVERLAP).max(beyond(echoed, USUAL_OVERLAP));
        let value = 1.0 - worst.max(beyond(agreeing, USUAL_AGREEMENT));
        Some(MeasuredQuality { value, repeated, echoed, agreeing })
    }

    /// The persona said `text`.
    pub(super) fn accept_persona(&mut self, text: &str) {
        if self.own.len() == WINDOW {
            self.own.pop_front();
        }
        self.own.push_back(Said { words: words(text), agrees: agrees(text) });
        self.answering.clear();
    }

    /// The other side said `text`.
    pub(super) fn accept_interlocutor(&mut self, text: &str) {
        self.answering = words(text);
    }
}

/// How far `share` is beyond what is usual, in [0, 1].
fn beyond(share: f64, usual: f64) -> f64 {
    ((share - usual) / (1.0 - usual)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The qualities of the persona's messages, to each of which the other side answers; `None` is not judged.
    fn check(said: &[(&str, &str)], expected: &[Option<f64>]) {
        let mut gauge = QualityGauge::default();
        let found: Vec<_> = said
            .iter()
            .map(|(persona, interlocutor)| {
                let quality = gauge.measure(persona).map(|quality| (quality.value * 100.0).round() / 100.0);
                gauge.accept_persona(persona);
                gauge.accept_interlocutor(interlocutor);
                quality
            })
            .collect();
        assert_eq!(found, expected, "{said:?}");
    }

    const LAMP: &str = "The lamp went out at four and I lit it again by hand.";
    const GULLS: &str = "Two gulls have been nesting behind the oil store since Easter.";

    #[test]
    fn saying_it_again_is_poor_and_saying_something_new_is_not() {
        check(&[(LAMP, "Why?"), (GULLS, "And then?")], &[Some(1.0), Some(1.0)]);
        check(&[(LAMP, "Why?"), (LAMP, "And then?"), (GULLS, "")], &[Some(1.0), Some(0.0), Some(1.0)]);
        // Nine of its fourteen runs of three words were there before.
        let more = "The lamp went out at four and I lit it again, then slept until the morning.";
        check(&[(LAMP, "Why?"), (more, "")], &[Some(1.0), Some(0.54)]);
    }

    #[test]
    fn a_message_long_gone_is_forgotten() {
        let other = ["One", "Two", "Three", "Four", "Five", "Six"]
            .map(|n| format!("{n} ships, {n} bells, {n} hours, {n} logs."));
        let mut said = vec![(LAMP, "Why?")];
        said.extend(other.iter().map(|text| (text.as_str(), "Go on.")));
        said.push((LAMP, ""));
        check(&said, &[Some(1.0); 8]);
    }

    #[test]
    fn an_echo_is_poor() {
        check(&[(GULLS, LAMP), (LAMP, "")], &[Some(1.0), Some(0.0)]);
    }

    #[test]
    fn giving_in_once_is_human_and_giving_in_always_is_not() {
        let agreeing = ["rain", "wind", "fog", "ice", "snow", "heat"]
            .map(|what| format!("You're right, the {what} did more to the roof than I said before."));
        let said: Vec<_> = agreeing.iter().map(|text| (text.as_str(), "So?")).collect();
        let mut gauge = QualityGauge::default();
        let mut found = Vec::new();
        for (text, _) in &said {
            found.push(gauge.measure(text).unwrap().agreeing);
            gauge.accept_persona(text);
        }
        assert_eq!(found, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(|n| n / 6.0));
    }

    #[test]
    fn a_short_message_is_not_judged() {
        check(&[("Yes.", "Why?"), ("Yes.", ""), ("…", "")], &[None, None, None]);
    }
}
