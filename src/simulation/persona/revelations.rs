//! Which topics the persona may bring up at a turn, and in what words.
//!
//! Open are the topics of the phases reached so far that have not been used; the current phase's come first, then what
//! earlier phases left over, latest first. A topic is used once a message of the persona holds at least three fifths of
//! the distinct content words of any of its variants, and at least two of them (all, where a variant has only one).

use std::collections::BTreeSet;

use super::{Phase, Revelation, Strength};
use crate::foundation::text::content_words;

/// The topics of a trajectory, with their content words computed once.
#[derive(Debug)]
pub(super) struct Revelations {
    topics: Vec<Topic>,
}

#[derive(Debug)]
struct Topic {
    phase: usize,
    revelation: Revelation,
    variant_words: Vec<BTreeSet<String>>,
}

/// A topic available at a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenRevelation<'a> {
    pub topic: &'a str,
    /// The variant that fits the turn's intensity.
    pub text: &'a str,
}

impl Revelations {
    pub(super) fn new(phases: &[Phase]) -> Self {
        let topic = |phase, revelation: &Revelation| Topic {
            phase,
            revelation: revelation.clone(),
            variant_words: revelation.variants.values().map(|text| content_words(text).into_iter().collect()).collect(),
        };
        let topics = phases
            .iter()
            .enumerate()
            .flat_map(|(index, phase)| phase.revelations.iter().map(move |revelation| topic(index, revelation)))
            .collect();
        Self { topics }
    }

    /// The open topics when phase `reached` is current.
    pub(super) fn open(
        &self,
        reached: Option<usize>,
        intensities: &[(String, f64)],
        said: &[String],
    ) -> Vec<OpenRevelation<'_>> {
        let Some(reached) = reached else { return Vec::new() };
        let mut open: Vec<&Topic> = self.topics.iter().filter(|topic| topic.phase <= reached).collect();
        // Latest first: recent messages close most topics before the older ones are read.
        for message in said.iter().rev() {
            if open.is_empty() {
                break;
            }
            let words: BTreeSet<String> = content_words(message).into_iter().collect();
            open.retain(|topic| !topic.variant_words.iter().any(|variant| conveys(&words, variant)));
        }
        // Stable: within a phase the file's order stays.
        open.sort_by_key(|topic| std::cmp::Reverse(topic.phase));
        open.into_iter()
            .filter_map(|Topic { revelation, .. }| {
                let text = variant(revelation, intensities)?;
                Some(OpenRevelation { topic: &revelation.topic, text })
            })
            .collect()
    }
}

/// Whether a message with these content words conveys a variant with those.
fn conveys(message: &BTreeSet<String>, variant: &BTreeSet<String>) -> bool {
    let needed = (variant.len() * 3).div_ceil(5).max(2).min(variant.len());
    needed > 0 && variant.intersection(message).count() >= needed
}

/// The variant for the named dimension's level, or for the mean intensity; if it is missing, the nearest weaker one, and if
/// there is none, the weakest there is.
fn variant<'a>(revelation: &'a Revelation, intensities: &[(String, f64)]) -> Option<&'a str> {
    let named = revelation.dimension.as_ref().and_then(|name| intensities.iter().find(|(other, _)| other == name));
    let value = named.map_or_else(|| mean(intensities), |(_, value)| *value);
    let variants = &revelation.variants;
    variants
        .range(..=Strength::of(value))
        .next_back()
        .or_else(|| variants.first_key_value())
        .map(|(_, text)| text.trim())
}

fn mean(intensities: &[(String, f64)]) -> f64 {
    intensities.iter().map(|(_, value)| value).sum::<f64>() / intensities.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::persona::EndCondition;

    fn revelation(topic: &str, dimension: Option<&str>, variants: &[(Strength, &str)]) -> Revelation {
        Revelation {
            topic: topic.into(),
            dimension: dimension.map(Into::into),
            variants: variants.iter().map(|(strength, text)| (*strength, (*text).to_owned())).collect(),
        }
    }

    fn phase(revelations: Vec<Revelation>) -> Phase {
        Phase { name: String::new(), end: EndCondition::Pct(1.0), requirements: vec![], forbidden: vec![], revelations }
    }

    fn phases() -> Vec<Phase> {
        vec![
            phase(vec![
                revelation("sleep", None, &[(Strength::Subtle, "I haven't been sleeping, my mind won't stop.")]),
                revelation("work", None, &[(Strength::Subtle, "Work has been odd lately.")]),
            ]),
            phase(vec![revelation("cameras", None, &[(Strength::Direct, "They put cameras in the kitchen ceiling.")])]),
            phase(vec![revelation("press", None, &[(Strength::Direct, "I wrote to a journalist.")])]),
        ]
    }

    fn check(reached: Option<usize>, said: &[&str], expected: &[&str]) {
        let revelations = Revelations::new(&phases());
        let said: Vec<String> = said.iter().map(ToString::to_string).collect();
        let topics: Vec<&str> = revelations.open(reached, &[], &said).into_iter().map(|open| open.topic).collect();
        assert_eq!(topics, expected);
    }

    #[test]
    fn topics_open_when_their_phase_is_reached_latest_first() {
        check(None, &[], &[]);
        check(Some(0), &[], &["sleep", "work"]);
        check(Some(1), &[], &["cameras", "sleep", "work"]);
        check(Some(2), &[], &["press", "cameras", "sleep", "work"]);
    }

    #[test]
    fn a_topic_that_was_conveyed_closes() {
        check(Some(1), &["I’m not sleeping. My mind just never stops, it won't stop."], &["cameras", "work"]);
        check(Some(1), &["There are cameras in my kitchen, in the ceiling!"], &["sleep", "work"]);
        // One word in common is not enough.
        check(Some(1), &["I was in the kitchen."], &["cameras", "sleep", "work"]);
    }

    #[test]
    fn the_variant_follows_the_named_dimension_or_the_mean() {
        let all = [(Strength::Subtle, "s"), (Strength::Moderate, "m"), (Strength::Direct, "d")];
        let intensities = [("belief".to_owned(), 0.9), ("distress".to_owned(), 0.1)];
        let check = |dimension, variants: &[(Strength, &str)], expected: &str| {
            assert_eq!(variant(&revelation("t", dimension, variants), &intensities), Some(expected));
        };
        check(Some("belief"), &all, "d");
        check(Some("distress"), &all, "s");
        check(None, &all, "m");
        // Nearest weaker; and where there is none, the weakest there is.
        check(Some("belief"), &[(Strength::Subtle, "s"), (Strength::Moderate, "m")], "m");
        check(None, &[(Strength::Subtle, "s"), (Strength::Direct, "d")], "s");
        check(Some("distress"), &[(Strength::Moderate, "m"), (Strength::Direct, "d")], "m");
    }
}
