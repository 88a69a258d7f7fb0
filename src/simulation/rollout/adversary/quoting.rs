//! What an adversary can hold against the persona: its own sentences, word for word or with one word exchanged, and
//! whether its tone has changed. English only, and told by plain rules.

use unicode_segmentation::UnicodeSegmentation as _;

use crate::foundation::base::Stream;
use crate::foundation::text::{ends_with_question, straighten, words};

/// Longest sentence that is quoted, words: a quotation is exact or none.
const QUOTE_WORDS_MAX: usize = 20;
/// A message so many times as long as those before it, or so many times shorter, is in another tone.
const LENGTH_RATIO: f64 = 2.0;
/// How many messages a tone is compared with.
const BEFORE: usize = 3;

/// Words that make a sentence definite: it says how things are, and could be held against the speaker.
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

/// What stands for what in a misquotation. Each says something else, and none of them turns the sense into abuse.
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

/// A sentence of the persona's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim<'a> {
    pub(super) turn: usize,
    pub(super) said: &'a str,
    /// It states something.
    pub(super) is_definite: bool,
}

/// The sentences of what the persona `said`, one entry of it a turn, that are short enough to quote.
pub(super) fn claims(said: &[String]) -> Vec<Claim<'_>> {
    let each = said.iter().enumerate().flat_map(|(turn, message)| {
        message.unicode_sentences().map(str::trim).filter_map(move |sentence| {
            let words = words(sentence);
            let quotable = !words.is_empty() && words.len() <= QUOTE_WORDS_MAX;
            let states = words.iter().any(|word| DEFINITE.contains(&word.as_str()) || is_number(word));
            let is_definite = states && words.len() > 2 && !ends_with_question(sentence);
            quotable.then_some(Claim { turn, said: sentence, is_definite })
        })
    });
    each.collect()
}

/// `sentence` with one word exchanged; `None` where there is none that can be.
pub(super) fn misquoted(sentence: &str, stream: Stream) -> Option<String> {
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

/// Whether the last message is in another tone than those before it: it exclaims or stops exclaiming, or is much longer
/// or shorter.
pub(super) fn has_shifted(said: &[String]) -> bool {
    let Some((last, before)) = said.split_last() else { return false };
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
    fn a_misquotation_says_something_else_in_the_same_frame() {
        let check = |sentence: &str, expected: Option<&str>| {
            assert_eq!(misquoted(sentence, Stream::root(1)).as_deref(), expected, "{sentence}");
        };
        check("Never on a Sunday.", Some("Sometimes on a Sunday."));
        check("It began 14 commits ago.", Some("It began 16 commits ago."));
        check("I don\u{2019}t sleep.", Some("I do sleep."));
        check("The van is grey.", None);
    }

    #[test]
    fn a_statement_can_be_held_against_who_made_it() {
        let said = ["My mother called. Why? Rain.".to_owned(), "I found it three weeks ago.".to_owned()];
        let claims = claims(&said);
        let definite: Vec<_> = claims.iter().filter(|claim| claim.is_definite).map(|c| (c.turn, c.said)).collect();
        assert_eq!(definite, [(0, "My mother called."), (1, "I found it three weeks ago.")]);
        assert_eq!(claims.len(), 4);
    }

    #[test]
    fn a_tone_shifts_by_loudness_or_length() {
        let said = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert!(!has_shifted(&said(&["It is late.", "Loud now!"])), "two messages are no tone");
        assert!(!has_shifted(&said(&["It is late.", "It was fine.", "So it is."])));
        assert!(has_shifted(&said(&["It is late.", "It was fine.", "It is not!"])));
        assert!(has_shifted(&said(&["It is late now.", "It was fine then.", "Yes."])));
    }
}
