//! Measures the quality of the persona's messages from their words while a rollout runs, as feedback for its regulator
//! (`docs/REGULATOR.md`, "Quality while it runs"). The named scores are computed afterwards by `simulation::judge`; this
//! measure only has to detect a conversation that goes in circles.
//!
//! The state depends only on the accepted messages, so a resumed rollout restores it from its record.

use std::collections::{BTreeSet, VecDeque};

use super::transcript::MeasuredQuality;
use crate::foundation::text::{agrees, words};

/// How many of the persona's messages are compared: the stagnation monitor's default window.
const WINDOW: usize = 6;
/// The n-gram length: sequences of this many words are rarely shared by chance.
const GRAM: usize = 3;
/// Shorter messages are not measured.
const WORDS_MIN: usize = 8;
/// The usual share of repeated n-grams between people; only the excess counts.
const USUAL_OVERLAP: f64 = 1.0 / 3.0;
/// The usual share of agreeing messages; only the excess counts.
const USUAL_AGREEMENT: f64 = 1.0 / 2.0;

/// The messages that the persona's next message is compared with.
#[derive(Debug, Clone, Default)]
pub(super) struct QualityGauge {
    /// The persona's recent messages.
    recent: VecDeque<MessageWords>,
    /// The words of the message being answered.
    answering: Vec<String>,
}

#[derive(Debug, Clone)]
struct MessageWords {
    words: Vec<String>,
    agrees: bool,
}

impl QualityGauge {
    /// The quality of `text` as the persona's next message; `None` if it is too short.
    pub(super) fn measure(&self, text: &str) -> Option<MeasuredQuality> {
        let message = words(text);
        if message.len() < WORDS_MIN {
            return None;
        }
        let grams: BTreeSet<&[String]> = message.windows(GRAM).collect();
        let share = |before: &BTreeSet<&[String]>| {
            grams.iter().filter(|gram| before.contains(*gram)).count() as f64 / grams.len() as f64
        };
        let repeated = share(&self.recent.iter().flat_map(|message| message.words.windows(GRAM)).collect());
        let echoed = share(&self.answering.windows(GRAM).collect());
        let before = self.recent.iter().rev().take(WINDOW - 1).filter(|message| message.agrees).count();
        let agreeing = (before + usize::from(agrees(text))) as f64 / WINDOW as f64;
        let worst = beyond(repeated, USUAL_OVERLAP).max(beyond(echoed, USUAL_OVERLAP));
        let value = 1.0 - worst.max(beyond(agreeing, USUAL_AGREEMENT));
        Some(MeasuredQuality { value, repeated, echoed, agreeing })
    }

    /// The persona message `text`.
    pub(super) fn accept_persona(&mut self, text: &str) {
        if self.recent.len() == WINDOW {
            self.recent.pop_front();
        }
        self.recent.push_back(MessageWords { words: words(text), agrees: agrees(text) });
        self.answering.clear();
    }

    /// The other side message `text`.
    pub(super) fn accept_interlocutor(&mut self, text: &str) {
        self.answering = words(text);
    }
}

/// The excess of `share` over `usual`, scaled to [0, 1].
fn beyond(share: f64, usual: f64) -> f64 {
    ((share - usual) / (1.0 - usual)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The qualities of the persona's messages, to each of which the other side answers; `None` is not measured.
    fn check(message: &[(&str, &str)], expected: &[Option<f64>]) {
        let mut gauge = QualityGauge::default();
        let found: Vec<_> = message
            .iter()
            .map(|(persona, interlocutor)| {
                let quality = gauge.measure(persona).map(|quality| (quality.value * 100.0).round() / 100.0);
                gauge.accept_persona(persona);
                gauge.accept_interlocutor(interlocutor);
                quality
            })
            .collect();
        assert_eq!(found, expected, "{message:?}");
    }

    const LAMP: &str = "The lamp went out at four and I lit it again by hand.";
    const GULLS: &str = "Two gulls have been nesting behind the oil store since Easter.";

    #[test]
    fn repetition_lowers_quality() {
        check(&[(LAMP, "Why?"), (GULLS, "And then?")], &[Some(1.0), Some(1.0)]);
        check(&[(LAMP, "Why?"), (LAMP, "And then?"), (GULLS, "")], &[Some(1.0), Some(0.0), Some(1.0)]);
        // Nine of its fourteen trigrams are repeated.
        let more = "The lamp went out at four and I lit it again, then slept until the morning.";
        check(&[(LAMP, "Why?"), (more, "")], &[Some(1.0), Some(0.54)]);
    }

    #[test]
    fn old_messages_are_not_compared() {
        let other = ["One", "Two", "Three", "Four", "Five", "Six"]
            .map(|n| format!("{n} ships, {n} bells, {n} hours, {n} logs."));
        let mut message = vec![(LAMP, "Why?")];
        message.extend(other.iter().map(|text| (text.as_str(), "Go on.")));
        message.push((LAMP, ""));
        check(&message, &[Some(1.0); 8]);
    }

    #[test]
    fn an_echo_lowers_quality() {
        check(&[(GULLS, LAMP), (LAMP, "")], &[Some(1.0), Some(0.0)]);
    }

    #[test]
    fn only_frequent_agreement_counts() {
        let agreeing = ["rain", "wind", "fog", "ice", "snow", "heat"]
            .map(|what| format!("You're right, the {what} did more to the roof than I message before."));
        let message: Vec<_> = agreeing.iter().map(|text| (text.as_str(), "So?")).collect();
        let mut gauge = QualityGauge::default();
        let mut found = Vec::new();
        for (text, _) in &message {
            found.push(gauge.measure(text).unwrap().agreeing);
            gauge.accept_persona(text);
        }
        assert_eq!(found, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(|n| n / 6.0));
    }

    #[test]
    fn a_short_message_is_not_measured() {
        check(&[("Yes.", "Why?"), ("Yes.", ""), ("…", "")], &[None, None, None]);
    }
}
