//! Folding of case and typography, words, and phrase search at word boundaries (UAX #29).

use std::borrow::Cow;

use unicode_segmentation::UnicodeSegmentation as _;

/// `text` with typographic quotes, apostrophes, dashes, ellipses and spaces converted to ASCII, and soft hyphens and
/// zero-width characters removed. Case is kept.
pub fn straighten(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{2018}' | '\u{2019}' | '\u{201A}' | '\u{201B}' | '\u{2032}' | '\u{02BC}' | '\u{00B4}' | '\u{FF07}' => {
                plain.push('\'');
            }
            '\u{201C}' | '\u{201D}' | '\u{201E}' | '\u{201F}' | '\u{2033}' | '\u{00AB}' | '\u{00BB}' | '\u{FF02}' => {
                plain.push('"');
            }
            '\u{2010}'..='\u{2015}' | '\u{2212}' => plain.push('-'),
            '\u{2026}' => plain.push_str("..."),
            '\u{00AD}' | '\u{200B}' | '\u{2060}' | '\u{FEFF}' => {}
            c if c.is_whitespace() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{0085}') => {
                plain.push(if c.is_ascii() { c } else { ' ' });
            }
            c => plain.push(c),
        }
    }
    Cow::Owned(plain)
}

/// `text` straightened, in lower case (Unicode's simple mapping: `ß` stays `ß`), each run of white space one space,
/// none at the ends.
pub fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for part in straighten(text).split_whitespace() {
        if !folded.is_empty() {
            folded.push(' ');
        }
        folded.extend(part.chars().flat_map(char::to_lowercase));
    }
    folded
}

/// The words of `text`, folded, in order. A contraction is one word (`you're`), a hyphen separates.
pub fn words(text: &str) -> Vec<String> {
    fold(text).unicode_words().map(str::to_owned).collect()
}

/// Whether `phrase` occurs in `text` at word boundaries; both must be folded. `you're right` does not occur in
/// `you're righteous`. An empty phrase never occurs.
pub fn contains_phrase(text: &str, phrase: &str) -> bool {
    if phrase.is_empty() || !text.contains(phrase) {
        return false;
    }
    let bounds: Vec<usize> = text.split_word_bound_indices().map(|(at, _)| at).collect();
    let is_bound = |at: usize| at == text.len() || bounds.binary_search(&at).is_ok();
    // Searches from every boundary, because `match_indices` misses overlapping occurrences.
    bounds.iter().any(|&at| text.get(at..).is_some_and(|rest| rest.starts_with(phrase)) && is_bound(at + phrase.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn folding_makes_typography_plain() {
        let check = |text: &str, folded: &str| assert_eq!(fold(text), folded, "{text}");
        check("You\u{2019}re  RIGHT\n", "you're right");
        check("\u{201C}No\u{201D} \u{2014} wait\u{2026}", "\"no\" - wait...");
        check("10\u{202F}%\u{00A0}off", "10 % off");
        check("co\u{00AD}operate", "cooperate");
        check("\u{00AB}\u{00C9}t\u{00E9}\u{00BB}", "\"\u{e9}t\u{e9}\"");
        check("", "");
    }

    #[test]
    fn straightening_keeps_case_and_lines() {
        assert_eq!(straighten("It\u{2019}s\nHERE"), "It's\nHERE");
        assert!(matches!(straighten("plain"), Cow::Borrowed("plain")));
    }

    #[test]
    fn a_contraction_is_one_word_and_a_hyphen_separates() {
        let check = |text: &str, expected: &[&str]| assert_eq!(words(text), expected, "{text}");
        check("You\u{2019}re well-known, aren't you?", &["you're", "well", "known", "aren't", "you"]);
        check("3.5 GB of logs!", &["3.5", "gb", "of", "logs"]);
        check(" \u{2014} ", &[]);
    }

    #[test]
    fn phrases_keep_to_word_bounds() {
        let check = |text: &str, phrase: &str, found: bool| {
            assert_eq!(contains_phrase(&fold(text), &fold(phrase)), found, "{phrase:?} in {text:?}");
        };
        check("Well, you\u{2019}re right.", "you're right", true);
        check("You're\nright!", "you\u{2019}re right", true);
        check("you're righteous", "you're right", false);
        check("Say you.", "you", true);
        check("you're", "you", false);
        check("I appreciate that, but no", "I appreciate that, but", true);
        check("I appreciate that, butter", "I appreciate that, but", false);
        check("an anagram", "an", true);
        check("bananas ana", "ana", true);
        check("anything", "", false);
        check("", "x", false);
    }

    proptest! {
        #[test]
        fn folding_twice_changes_nothing(text in "\\PC{0,60}") {
            let once = fold(&text);
            prop_assert_eq!(fold(&once), once);
        }

        #[test]
        fn every_word_of_a_text_is_found_in_it(text in "[a-z' -]{0,40}") {
            let folded = fold(&text);
            for word in words(&text) {
                prop_assert!(contains_phrase(&folded, &word));
            }
        }
    }
}
