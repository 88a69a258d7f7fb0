//! "When intensity exceeds 0.6" in a profile: what holds from an intensity on.

use std::sync::LazyLock;

use regex::Regex;

use super::schedule::{DIMENSIONS, PhaseTurns};

/// The dimension of a threshold that names none.
const DEFAULT: usize = 0;

/// An intensity from which on something is required of the persona.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Threshold {
    /// The index in [`DIMENSIONS`].
    pub(super) dimension: usize,
    /// The intensity, in `[0, 1]`.
    pub(super) value: f64,
    /// What is required from there on.
    pub(super) requirement: String,
}

static CONDITION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let compared = r"(?:exceeds?|is over|over|is above|above|is more than|reaches|rises above|rises over|passes|is at least|is|>=?|≥)";
    let number = r"(?P<number>\d{0,3}(?:\.\d+)?)\s*(?P<percent>%|percent)?";
    Regex::new(&format!(
        r"(?i)\b(?:(?P<dimension>{})(?:'s|_)?\s*)?(?P<what>intensity|level|score)?\s*{compared}\s*{number}",
        DIMENSIONS.join("|")
    ))
    .ok()
});

impl Threshold {
    /// Reads the condition of `text`, such as "when belief intensity exceeds 0.6"; `None` if it is of another kind.
    pub(super) fn read(text: &str, requirement: impl Into<String>) -> Option<Self> {
        let found = CONDITION.as_ref()?.captures(text)?;
        let named = found.name("dimension").map(|name| name.as_str().to_lowercase());
        found.name("what").map(|_| ()).or(named.as_ref().map(|_| ()))?;
        let number: f64 = found.name("number")?.as_str().parse().ok()?;
        let value = if found.name("percent").is_some() { number / 100.0 } else { number };
        let dimension = named.and_then(|name| DIMENSIONS.iter().position(|other| *other == name)).unwrap_or(DEFAULT);
        (0.0..=1.0).contains(&value).then(|| Self { dimension, value, requirement: requirement.into() })
    }

    /// The first turn of `phase` at which the intensity is reached.
    pub(super) fn turn(&self, phase: &PhaseTurns) -> Option<usize> {
        let (from, to) = *phase.values.get(self.dimension)?;
        let (first, last) = phase.turns;
        let at = |turn: usize| from + (to - from) * (turn - first) as f64 / (last - first).max(1) as f64;
        (first..=last).find(|turn| at(*turn) >= self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_on_an_intensity_are_read_and_others_are_not() {
        let read = |text| Threshold::read(text, "").map(|threshold| (threshold.dimension, threshold.value));
        assert_eq!(read("When intensity exceeds 0.6"), Some((0, 0.6)));
        assert_eq!(read("distress rises above .75 in the talk"), Some((1, 0.75)));
        assert_eq!(read("action level >= 40 %"), Some((2, 0.4)));
        assert_eq!(read("the belief intensity reaches 0.5"), Some((0, 0.5)));
        for other in
            ["someone doubts the two seconds", "when the loan is over 500", "intensity exceeds 7", "sleep is over"]
        {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn the_first_turn_is_found_within_the_phase_alone() {
        let threshold = |value| Threshold { dimension: 0, value, requirement: String::new() };
        let phase = PhaseTurns { number: 1, turns: (4, 8), values: [(0.4, 0.8), (0.0, 0.0), (0.0, 0.0)] };
        assert_eq!(threshold(0.55).turn(&phase), Some(6));
        assert_eq!(threshold(0.3).turn(&phase), Some(4));
        assert_eq!(threshold(0.9).turn(&phase), None);
    }
}
