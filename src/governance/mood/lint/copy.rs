//! NO-COPY: text by others is cited by a pointer, not repeated.

use std::collections::HashMap;

use crate::foundation::text::words;

/// The minimum number of consecutive shared words that counts as a copy.
pub const SHARED_WORDS_MIN: usize = 8;

/// A passage that also occurs in a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedPassage {
    /// The index of the source.
    pub source: usize,
    /// The words, folded.
    pub text: String,
    /// The index of its first word in the output.
    pub at_word: usize,
}

/// Passages of at least [`SHARED_WORDS_MIN`] words that `output` shares with one of the `sources`, ignoring case, quotes
/// and white space. Each is maximal, and is reported for the first source that contains it.
pub fn copied_passages(output: &str, sources: &[&str]) -> Vec<CopiedPassage> {
    let output = words(output);
    let sources: Vec<_> = sources.iter().map(|source| words(source)).collect();
    let mut places: HashMap<&[String], (usize, usize)> = HashMap::new();
    for (number, source) in sources.iter().enumerate() {
        for (at, window) in source.windows(SHARED_WORDS_MIN).enumerate() {
            places.entry(window).or_insert((number, at));
        }
    }
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(window) = output.get(at..at + SHARED_WORDS_MIN) {
        let Some((source, start)) = places.get(window).copied() else {
            at += 1;
            continue;
        };
        let theirs = sources.get(source).and_then(|source| source.get(start..)).unwrap_or_default();
        let mine = output.get(at..).unwrap_or_default();
        let length = mine.iter().zip(theirs).take_while(|(mine, theirs)| mine == theirs).count();
        let text = mine.get(..length).unwrap_or_default().join(" ");
        found.push(CopiedPassage { source, text, at_word: at });
        at += length;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_passage_is_found_and_a_pointer_is_not() {
        let source = "The model does not know what it does not know, and it says so with great confidence.";
        let check = |output: &str, expected: &[&str]| {
            let found: Vec<_> =
                copied_passages(output, &["Something else.", source]).into_iter().map(|copy| copy.text).collect();
            assert_eq!(found, expected, "{output}");
        };
        check("See af1349b9:0..84, which doubts the confidence of models.", &[]);
        check("The model does not know what it knows.", &[]);
        check(
            "As they write, \u{201c}THE MODEL does not   know what it does not know\u{201d}; so be it.",
            &["the model does not know what it does not know"],
        );
        check(source, &["the model does not know what it does not know and it says so with great confidence"]);
    }
}
