//! Prohibitions in languages other than English, by cue words: the cue negates what follows it in its clause.
//!
//! Cues exist for a few languages; in any other, a forbidden thing counts as part of the task and doing it is not
//! detected. English is read more closely by [`prohibitions`](super::prohibitions).

use super::features::{CONTENT, weight};
use super::scanner::Word;

/// Cues in languages with spaces between words, in lower case.
const CUES: [&str; 14] = [
    "nicht", "kein", "keine", "keinen", "ohne", "sans", "jamais", "aucun", "aucune", "sin", "nunca", "senza", "não",
    "không",
];
/// Cues in scripts without spaces between words.
const UNSPACED_CUES: [&str; 8] = ["不要", "不得", "不准", "不能", "禁止", "しない", "なしで", "하지"];

/// Longest article, pronoun or particle.
const ARTICLE_CHARS_MAX: u32 = 3;

/// For each word, whether it is negated.
pub(super) fn negated(text: &str, words: &[Word]) -> Vec<bool> {
    let mut reached = false;
    let mut from = 0;
    words
        .iter()
        .map(|word| {
            if text.get(from..word.start as usize).is_some_and(ends_clause) {
                reached = false;
            }
            let was = reached;
            reached |= is_cue(word_text(text, word), word);
            from = word.end as usize;
            was
        })
        .collect()
}

fn word_text<'a>(text: &'a str, word: &Word) -> &'a str {
    text.get(word.start as usize..word.end as usize).unwrap_or_default()
}

fn is_cue(text: &str, word: &Word) -> bool {
    if word.unspaced {
        return UNSPACED_CUES.iter().any(|cue| cue.starts_with(text));
    }
    text.len() <= 8 && CUES.contains(&text.to_lowercase().as_str())
}

/// Whether the text between two words ends a clause. A comma does.
fn ends_clause(between: &str) -> bool {
    between.contains(['.', ',', ';', ':', '!', '?', '\n', '(', ')', '—', '。', '，', '；', '：', '！', '？', '、'])
}

/// The forbidden things: negated content words.
pub(super) fn forbidden<'a>(text: &str, words: &'a [Word]) -> Vec<&'a Word> {
    // "May I return it without the box?"
    if text.trim_end().ends_with(['?', '？']) {
        return Vec::new();
    }
    // Shorter words are articles and the like, which the background does not know in other languages.
    let thing = |word: &&Word| {
        !is_cue(word_text(text, word), word)
            && weight(word) >= CONTENT
            && (word.unspaced || word.chars > ARTICLE_CHARS_MAX)
    };
    words.iter().zip(negated(text, words)).filter(|(_, negated)| *negated).map(|(word, _)| word).filter(thing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::governance::regulator::scanner::Scan;

    #[test]
    fn prohibitions_name_the_forbidden_thing() {
        for (text, expected) in [
            ("Bitte ohne Telemetrie.", &["Telemetrie"][..]),
            ("重构解析器，不要添加日志", &["要添", "添加", "加日", "日志"]),
            ("Refactor this function to be async.", &[]),
        ] {
            let scan = Scan::of(text);
            let found: Vec<_> = forbidden(text, scan.words()).into_iter().map(|word| word_text(text, word)).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
