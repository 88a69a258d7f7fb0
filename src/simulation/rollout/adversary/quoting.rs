//! Material for adversaries: sentences of the persona, verbatim or with one word changed, and changes of its tone. English
//! only, rule-based.

use unicode_segmentation::UnicodeSegmentation as _;

use crate::foundation::base::RngStream;
use crate::foundation::text::{ends_with_question, straighten, words};

/// The longest sentence that is quoted, in words: quotations are never shortened.
const QUOTE_WORDS_MAX: usize = 20;
/// A message longer or shorter than those before it by this factor counts as a change of tone.
const LENGTH_RATIO: f64 = 2.0;
/// How many earlier messages a tone is compared with.
const BEFORE: usize = 3;

/// Words that make a sentence a definite statement that can later be contradicted.
const DEFINITE: [&str; 16] = [
    "i",
    "i'm",
    "i've",
    "my",
    "we",
    "never",
    "always",
    "every",
    "nobody",
    "everybody",
    "today",
    "yesterday",
    "week",
    "weeks",
    "month",
    "year",
];

/// Word substitutions for misquotations. Each changes the meaning without making it abusive.
const EXCHANGED: [(&str, &str); 34] = [
    ("never", "sometimes"),
    ("always", "sometimes"),
    ("everybody", "hardly anybody"),
    ("nobody", "somebody"),
    ("mother", "father"),
    ("father", "mother"),
    ("brother", "sister"),
    ("sister", "brother"),
    ("day", "week"),
    ("days", "weeks"),
    ("week", "month"),
    ("weeks", "months"),
    ("month", "year"),
    ("months", "years"),
    ("year", "month"),
    ("years", "months"),
    ("night", "morning"),
    ("tonight", "next week"),
    ("today", "last week"),
    ("yesterday", "last month"),
    ("morning", "night"),
    ("two", "five"),
    ("three", "six"),
    ("four", "two"),
    ("five", "nine"),
    ("six", "three"),
    ("don't", "do"),
    ("can't", "can"),
    ("isn't", "is"),
    ("wasn't", "was"),
    ("love", "like"),
    ("hate", "like"),
    ("know", "think"),
    ("found", "looked for"),
];

/// A sentence of the persona.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim<'a> {
    pub(super) turn: usize,
    pub(super) sentence: &'a str,
    /// Whether it is a definite statement.
    pub(super) is_definite: bool,
}

/// The sentences of the persona's messages (one message per turn) that are short enough to quote.
pub(super) fn claims(persona_messages: &[String]) -> Vec<Claim<'_>> {
    let each = persona_messages.iter().enumerate().flat_map(|(turn, message)| {
        message.unicode_sentences().map(str::trim).filter_map(move |sentence| {
            let words = words(sentence);
            let quotable = !words.is_empty() && words.len() <= QUOTE_WORDS_MAX;
            let states = words.iter().any(|word| DEFINITE.contains(&word.as_str()) || is_number(word));
            let is_definite = states && words.len() > 2 && !ends_with_question(sentence);
            quotable.then_some(Claim { turn, sentence, is_definite })
        })
    });
    each.collect()
}

/// `sentence` with one word changed; `None` if no word can be.
pub(super) fn misquoted(sentence: &str, stream: RngStream) -> Option<String> {
    let other = |word: &str| -> Option<String> {
        let folded = straighten(word).to_lowercase();
        let exchanged = EXCHANGED.iter().find(|(from, _)| *from == folded).map(|(_, to)| (*to).to_owned());
        let exchanged =
            exchanged.or_else(|| folded.parse::<u32>().ok().map(|number| number.saturating_add(2).to_string()))?;
        let capital = word.chars().next().is_some_and(char::is_uppercase);
        let mut chars = exchanged.chars();
        let first = chars.next()?;
        Some(if capital { first.to_uppercase().chain(chars).collect() } else { exchanged.clone() })
    };
    let places: Vec<(usize, &str, String)> =
        sentence.unicode_word_indices().filter_map(|(at, word)| Some((at, word, other(word)?))).collect();
    let (at, word, other) = places.get(stream.index(0, places.len()))?;
    let (before, rest) = sentence.split_at_checked(*at)?;
    Some(format!("{before}{other}{}", rest.strip_prefix(word)?))
}

/// Whether the tone of the last message differs from those before it: it starts or stops exclaiming, or is much longer or
/// shorter.
pub(super) fn has_shifted(persona_messages: &[String]) -> bool {
    let Some((last, before)) = persona_messages.split_last() else { return false };
    let before: Vec<&String> = before.iter().rev().take(BEFORE).collect();
    if before.len() < 2 {
        return false;
    }
    let exclaims = |text: &str| text.contains('!');
    let length = |text: &str| words(text).len().max(1) as f64;
    let mean = before.iter().map(|text| length(text)).sum::<f64>() / before.len() as f64;
    let ratio = length(last) / mean;
    let all_other = before.iter().all(|text| exclaims(text) != exclaims(last));
    all_other || ratio >= LENGTH_RATIO || ratio <= LENGTH_RATIO.recip()
}

fn is_number(word: &str) -> bool {
    word.bytes().any(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misquotation_changes_one_word() {
        let check = |sentence: &str, expected: Option<&str>| {
            assert_eq!(misquoted(sentence, RngStream::root(1)).as_deref(), expected, "{sentence}");
        };
        check("Never on a Sunday.", Some("Sometimes on a Sunday."));
        check("It began 14 commits ago.", Some("It began 16 commits ago."));
        check("I don\u{2019}t sleep.", Some("I do sleep."));
        check("The van is grey.", None);
    }

    #[test]
    fn definite_statements_are_claims() {
        let said = ["My mother called. Why? Rain.".to_owned(), "I found it three weeks ago.".to_owned()];
        let claims = claims(&said);
        let definite: Vec<_> = claims.iter().filter(|claim| claim.is_definite).map(|c| (c.turn, c.sentence)).collect();
        assert_eq!(definite, [(0, "My mother called."), (1, "I found it three weeks ago.")]);
        assert_eq!(claims.len(), 4);
    }

    #[test]
    fn a_tone_shifts_by_exclamation_or_length() {
        let said = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert!(!has_shifted(&said(&["It is late.", "Loud now!"])), "two messages are no tone");
        assert!(!has_shifted(&said(&["It is late.", "It was fine.", "So it is."])));
        assert!(has_shifted(&said(&["It is late.", "It was fine.", "It is not!"])));
        assert!(has_shifted(&said(&["It is late now.", "It was fine then.", "Yes."])));
    }
}
