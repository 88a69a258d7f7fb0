//! Searching a model's text for a phrase or a regular expression.

use super::Pattern;
use crate::foundation::text::{contains_phrase, fold, straighten};

impl Pattern {
    /// Whether `text` contains a match. A phrase is compared case-folded and at word boundaries; a regular expression is
    /// applied after typographic quotes are replaced with ASCII ones.
    pub fn is_match(&self, text: &str) -> bool {
        match self {
            Self::Phrase(phrase) => contains_phrase(&fold(text), &fold(phrase)),
            Self::Regex(regex) => regex.is_match(&straighten(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &Pattern, text: &str, expected: bool) {
        assert_eq!(pattern.is_match(text), expected, "{pattern:?} in {text:?}");
    }

    #[test]
    fn a_phrase_matches_regardless_of_case_and_quotes() {
        let phrase = Pattern::Phrase("you're right".into());
        check(&phrase, "Fine. You’re right about that.", true);
        check(&phrase, "YOU'RE\n  RIGHT", true);
        check(&phrase, "you were right", false);
        check(&Pattern::Phrase(" ".into()), "anything", false);
    }

    #[test]
    fn a_regular_expression_sees_plain_quotes() {
        let regex = Pattern::Regex(regex::Regex::new("(?i)i('m| am) done").unwrap());
        check(&regex, "I’m done with this", true);
        check(&regex, "we are done", false);
    }
}
