//! What a text rules out: "do not add logging" names logging, yet logging is what it forbids.
//!
//! A negation reaches from its cue to the end of its clause. The cues are those of a few languages; in any other one a
//! forbidden thing counts as part of the task, and drifting to it goes unnoticed.

use super::features::{CONTENT, weight};
use super::scanner::Word;

/// Words that open a negation, in lower case. `don't` arrives as `don` and `t`.
const CUES: [&str; 35] = [
    "not",
    "no",
    "never",
    "without",
    "avoid",
    "avoids",
    "avoiding",
    "avoided",
    "skip",
    "skipped",
    "omit",
    "omitted",
    "exclude",
    "excluding",
    "cannot",
    "neither",
    "nor",
    "don",
    "doesn",
    "didn",
    "isn",
    "shouldn",
    "mustn",
    "won",
    "wouldn",
    "unrequested",
    "nicht",
    "kein",
    "keine",
    "ohne",
    "sans",
    "jamais",
    "sin",
    "nunca",
    "không",
];
/// The same where words have no spaces between them.
const UNSPACED_CUES: [&str; 8] = ["不要", "不得", "不准", "不能", "禁止", "しない", "なしで", "하지"];
/// What one does with the forbidden thing; it is not the thing. By the first five letters.
const VERBS: [&str; 26] = [
    "add", "addin", "inclu", "use", "using", "chang", "touch", "modif", "write", "make", "makin", "menti", "talk",
    "discu", "intro", "put", "creat", "imple", "expan", "alter", "renam", "break", "remov", "delet", "provi", "give",
];

/// For each word whether a negation reaches it.
pub(super) fn negated(text: &str, words: &[Word]) -> Vec<bool> {
    let mut reached = false;
    let mut before = 0usize;
    words
        .iter()
        .map(|word| {
            let (start, end) = (word.start as usize, word.end as usize);
            if text.get(before..start).is_some_and(ends_clause) {
                reached = false;
            }
            before = end;
            let was = reached;
            reached |= is_cue(text.get(start..end).unwrap_or_default(), word);
            was
        })
        .collect()
}

fn is_cue(word: &str, at: &Word) -> bool {
    if at.unspaced {
        return UNSPACED_CUES.iter().any(|cue| cue.starts_with(word));
    }
    word.len() <= 12
        && CUES.iter().any(|cue| word.eq_ignore_ascii_case(cue) || (!word.is_ascii() && word.to_lowercase() == *cue))
}

/// What stands between two words ends a clause. A comma does: "do not add logging, make it async".
fn ends_clause(between: &str) -> bool {
    between.contains(['.', ',', ';', ':', '!', '?', '\n', '(', ')', '—', '。', '，', '；', '：', '！', '？', '、'])
}

/// The forbidden things: negated content words that are no verb of doing.
pub(super) fn forbidden<'a>(text: &str, words: &'a [Word], negated: &[bool]) -> Vec<&'a Word> {
    let thing = |word: &&Word| {
        let said: String = text
            .get(word.start as usize..word.end as usize)
            .unwrap_or_default()
            .chars()
            .take(5)
            .collect::<String>()
            .to_lowercase();
        let cue = is_cue(text.get(word.start as usize..word.end as usize).unwrap_or_default(), word);
        !cue && weight(word) >= CONTENT && !VERBS.contains(&said.as_str())
    };
    words.iter().zip(negated).filter(|(_, negated)| **negated).map(|(word, _)| word).filter(thing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::governance::regulator::scanner::Scan;

    fn check(text: &str, expected: &[&str]) {
        let scan = Scan::of(text);
        let marks = negated(text, scan.words());
        let found: Vec<_> = forbidden(text, scan.words(), &marks)
            .into_iter()
            .map(|word| &text[word.start as usize..word.end as usize])
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn a_negation_names_what_it_forbids() {
        check("Refactor this function to be async.", &[]);
        check("Do not add logging.", &["logging"]);
        check("Don’t add logging or telemetry, just refactor the parser.", &["logging", "telemetry"]);
        check("Refactor the parser without changing the API.", &["API"]);
        check("No docstrings! Keep the comments.", &["docstrings"]);
        check("Never mention politics; describe the weather.", &["politics"]);
        check("Bitte ohne Telemetrie.", &["Telemetrie"]);
        check("重构解析器，不要添加日志", &["要添", "添加", "加日", "日志"]);
    }
}
