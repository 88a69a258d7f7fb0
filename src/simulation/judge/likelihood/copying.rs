//! Which words of a reply stand in the prompt. A persona that recites its instructions is likely under them, and that is
//! no merit: the copy rate is told beside the likelihood ratio.

use std::collections::BTreeSet;
use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation as _;

use crate::foundation::text::{fold, words};

/// So many words in a row are copied; fewer are the language's.
const RUN: usize = 3;

/// What of a reply is copied.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Copied {
    /// The share of its words; `None` if it has none.
    pub(super) rate: Option<f64>,
    /// Per token.
    pub(super) tokens: Vec<bool>,
}

/// What the reply whose tokens complete `texts` copied from `prompt`.
pub(super) fn copied<'a>(prompt: &str, texts: impl Iterator<Item = &'a str> + Clone) -> Copied {
    let prompt = words(prompt);
    let known: BTreeSet<&[String]> = prompt.windows(RUN).collect();
    let reply: String = texts.clone().collect();
    let places: Vec<(Range<usize>, String)> =
        reply.unicode_word_indices().map(|(at, word)| (at..at + word.len(), fold(word))).collect();
    let folded: Vec<String> = places.iter().map(|(_, word)| word.clone()).collect();
    let runs: Vec<Range<usize>> = folded
        .windows(RUN)
        .zip(places.windows(RUN))
        .filter(|(words, _)| known.contains(words))
        .filter_map(|(_, places)| Some(places.first()?.0.start..places.last()?.0.end))
        .collect();
    let inside = |span: &Range<usize>| runs.iter().any(|run| run.start < span.end && span.start < run.end);
    let count = places.iter().filter(|(span, _)| inside(span)).count();
    let mut end = 0;
    let tokens = texts.map(|text| {
        let start = end;
        end += text.len();
        inside(&(start..end))
    });
    let tokens = tokens.collect();
    Copied { rate: (!places.is_empty()).then(|| count as f64 / places.len() as f64), tokens }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(prompt: &str, tokens: &[&str], rate: Option<f64>, expected: &[bool]) {
        let copied = copied(prompt, tokens.iter().copied());
        assert_eq!((copied.rate, copied.tokens.as_slice()), (rate, expected));
    }

    #[test]
    fn three_words_in_a_row_are_copied() {
        let prompt = "Anna hears patterns in the alarms.";
        check(prompt, &["I", " hear", " patterns"], Some(0.0), &[false; 3]);
        check(
            prompt,
            &["Yes", ",", " Patterns", " in", " the", " night"],
            Some(3.0 / 5.0),
            &[false, false, true, true, true, false],
        );
        // A token that ends inside a character has no text; it belongs to the word all the same.
        check(prompt, &["in", " the", "", " alarms", "!"], Some(1.0), &[true, true, true, true, false]);
        check(prompt, &["…"], None, &[false]);
    }
}
