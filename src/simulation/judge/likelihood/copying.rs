//! Which words of a reply are copied from the prompt. A persona that recites its instructions has a high likelihood under
//! them without following them, so the copy rate is reported with the likelihood ratio.

use std::collections::BTreeSet;
use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation as _;

use crate::foundation::text::{fold, words};

/// This many consecutive words of the prompt count as copied; fewer occur by chance.
const RUN: usize = 3;

/// How much of a reply is copied.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CopyStats {
    /// The share of copied words; `None` if the reply has no words.
    pub(super) rate: Option<f64>,
    /// Per token, whether it is copied.
    pub(super) tokens: Vec<bool>,
}

/// How much of the reply with the token texts `texts` is copied from `prompt`.
pub(super) fn copied<'a>(prompt: &str, texts: impl Iterator<Item = &'a str> + Clone) -> CopyStats {
    let prompt = words(prompt);
    let known: BTreeSet<&[String]> = prompt.windows(RUN).collect();
    let reply: String = texts.clone().collect();
    let spans: Vec<(Range<usize>, String)> =
        reply.unicode_word_indices().map(|(at, word)| (at..at + word.len(), fold(word))).collect();
    let folded: Vec<String> = spans.iter().map(|(_, word)| word.clone()).collect();
    let runs: Vec<Range<usize>> = folded
        .windows(RUN)
        .zip(spans.windows(RUN))
        .filter(|(words, _)| known.contains(words))
        .filter_map(|(_, spans)| Some(spans.first()?.0.start..spans.last()?.0.end))
        .collect();
    let inside = |span: &Range<usize>| runs.iter().any(|run| run.start < span.end && span.start < run.end);
    let count = spans.iter().filter(|(span, _)| inside(span)).count();
    let mut end = 0;
    let tokens = texts.map(|text| {
        let start = end;
        end += text.len();
        inside(&(start..end))
    });
    let tokens = tokens.collect();
    CopyStats { rate: (!spans.is_empty()).then(|| count as f64 / spans.len() as f64), tokens }
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
    fn three_consecutive_words_of_the_prompt_count_as_copied() {
        let prompt = "Anna hears patterns in the alarms.";
        check(prompt, &["I", " hear", " patterns"], Some(0.0), &[false; 3]);
        check(
            prompt,
            &["Yes", ",", " Patterns", " in", " the", " night"],
            Some(3.0 / 5.0),
            &[false, false, true, true, true, false],
        );
        // A token that ends inside a character has no text, but belongs to the word.
        check(prompt, &["in", " the", "", " alarms", "!"], Some(1.0), &[true, true, true, true, false]);
        check(prompt, &["…"], None, &[false]);
    }
}
