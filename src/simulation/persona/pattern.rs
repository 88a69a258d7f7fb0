//! Looking for a phrase or a regular expression in what a model wrote.

use super::Pattern;

impl Pattern {
    /// Whether `text` holds it. A phrase is compared without regard to case, typographic quotes and the width of spaces;
    /// a regular expression sees the text with typographic quotes made plain.
    pub fn is_match(&self, text: &str) -> bool {
        let plain = plain_quotes(text);
        match self {
            Self::Phrase(phrase) => {
                let phrase = folded(&plain_quotes(phrase));
                !phrase.is_empty() && folded(&plain).contains(&phrase)
            }
            Self::Regex(regex) => regex.is_match(&plain),
        }
    }
}

/// Models write ’ and “ where people type ' and ".
fn plain_quotes(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\u{2018}' | '\u{2019}' | '\u{201B}' | '\u{02BC}' => '\'',
            '\u{201C}' | '\u{201D}' | '\u{201F}' => '"',
            other => other,
        })
        .collect()
}

fn folded(text: &str) -> String {
    text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &Pattern, text: &str, expected: bool) {
        assert_eq!(pattern.is_match(text), expected, "{pattern:?} in {text:?}");
    }

    #[test]
    fn a_phrase_is_found_whatever_its_case_and_quotes() {
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
