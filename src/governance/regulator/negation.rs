//! Prohibitions in a text: "do not add logging" names logging and forbids it.
//!
//! A negation extends from its cue to the end of its clause. In a task only orders count ("do not …", "no …" at the
//! start of a clause, "without …ing"), since "a land without rivers" forbids no rivers. Cues exist for a few languages;
//! in any other, a forbidden thing counts as part of the task and doing it is not detected.

use super::features::{CONTENT, hash_of, weight};
use super::scanner::Word;

/// Words that begin a negation, in lower case. `don't` is scanned as `don` and `t`.
const CUES: [&str; 28] = [
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
    "stop",
    "refrain",
];
/// Hashes of the cues, for a fast rejection of other words.
const CUE_HASHES: [u32; CUES.len()] = hashes(CUES);
/// Cues in other languages, where position is not considered.
const OTHER_CUES: [&str; 9] = ["nicht", "kein", "keine", "ohne", "sans", "jamais", "sin", "nunca", "không"];
/// Cues in scripts without spaces between words.
const UNSPACED_CUES: [&str; 8] = ["不要", "不得", "不准", "不能", "禁止", "しない", "なしで", "하지"];
/// Words that may precede an order within its clause.
const BEFORE_ORDERS: [&str; 13] =
    ["please", "and", "but", "must", "should", "shall", "may", "do", "also", "just", "then", "so", "you"];
/// Verbs that take the forbidden thing as their object and are not forbidden themselves; first five letters.
const VERBS: [&str; 26] = [
    "add", "addin", "inclu", "use", "using", "chang", "touch", "modif", "write", "make", "makin", "menti", "talk",
    "discu", "intro", "put", "creat", "imple", "expan", "alter", "renam", "break", "remov", "delet", "provi", "give",
];

const fn hashes<const N: usize>(words: [&str; N]) -> [u32; N] {
    let mut hashes = [0; N];
    let (mut to, mut from) = (hashes.as_mut_slice(), words.as_slice());
    while let (Some((hash, others)), Some((word, rest))) = (to.split_first_mut(), from.split_first()) {
        *hash = hash_of(word);
        (to, from) = (others, rest);
    }
    hashes
}

/// For each word, whether it is negated. With `orders`, only prohibitions count as negations.
pub(super) fn negated(text: &str, words: &[Word], orders: bool) -> Vec<bool> {
    let text_of = |word: &Word| text.get(word.start as usize..word.end as usize).unwrap_or_default();
    let mut reached = false;
    let mut before: Option<&Word> = None;
    let mut after = words.iter().skip(1);
    words
        .iter()
        .map(|word| {
            let from = before.map_or(0, |before| before.end as usize);
            let starts_clause = before.is_none() || text.get(from..word.start as usize).is_some_and(ends_clause);
            if starts_clause {
                reached = false;
            }
            let was = reached;
            let previous = before.filter(|_| !starts_clause).map(text_of);
            let next = after.next().map(text_of);
            reached |= is_cue(text_of(word), word) && (!orders || is_order(text_of(word), word, previous, next));
            before = Some(word);
            was
        })
        .collect()
}

fn is_cue(word_text: &str, word: &Word) -> bool {
    if word.unspaced {
        return UNSPACED_CUES.iter().any(|cue| cue.starts_with(word_text));
    }
    let known = || CUES.iter().any(|cue| word_text.eq_ignore_ascii_case(cue));
    word_text.len() <= 12 && (CUE_HASHES.contains(&word.hash) && known() || is_other_cue(word_text))
}

fn is_other_cue(word_text: &str) -> bool {
    if word_text.is_ascii() {
        OTHER_CUES.iter().any(|cue| word_text.eq_ignore_ascii_case(cue))
    } else {
        OTHER_CUES.contains(&word_text.to_lowercase().as_str())
    }
}

/// Whether a cue is an order, by its position.
fn is_order(word_text: &str, word: &Word, previous: Option<&str>, next: Option<&str>) -> bool {
    if word.unspaced || is_other_cue(word_text) {
        return true;
    }
    if word_text.eq_ignore_ascii_case("without") {
        return next.is_some_and(|next| next.len() > 4 && next.to_ascii_lowercase().ends_with("ing"));
    }
    previous.is_none_or(|previous| BEFORE_ORDERS.iter().any(|before| previous.eq_ignore_ascii_case(before)))
}

/// Whether the text between two words ends a clause. A comma does: "do not add logging, make it async".
fn ends_clause(between: &str) -> bool {
    between.contains(['.', ',', ';', ':', '!', '?', '\n', '(', ')', '—', '。', '，', '；', '：', '！', '？', '、'])
}

/// The forbidden things: negated content words other than `VERBS`.
pub(super) fn forbidden<'a>(text: &str, words: &'a [Word], negated: &[bool]) -> Vec<&'a Word> {
    let thing = |word: &&Word| {
        let prefix: String = text
            .get(word.start as usize..word.end as usize)
            .unwrap_or_default()
            .chars()
            .take(5)
            .collect::<String>()
            .to_lowercase();
        let cue = is_cue(text.get(word.start as usize..word.end as usize).unwrap_or_default(), word);
        !cue && weight(word) >= CONTENT && !VERBS.contains(&prefix.as_str())
    };
    words.iter().zip(negated).filter(|(_, negated)| **negated).map(|(word, _)| word).filter(thing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::governance::regulator::scanner::Scan;

    fn check(text: &str, expected: &[&str]) {
        let scan = Scan::of(text);
        let marks = negated(text, scan.words(), true);
        let found: Vec<_> = forbidden(text, scan.words(), &marks)
            .into_iter()
            .map(|word| &text[word.start as usize..word.end as usize])
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn prohibitions_name_the_forbidden_thing() {
        check("Refactor this function to be async.", &[]);
        check("Do not add logging.", &["logging"]);
        check("Don’t add logging or telemetry, just refactor the parser.", &["logging", "telemetry"]);
        check("Refactor the parser without changing the API.", &["API"]);
        check("Describe a land without rivers, where nobody has seen the sea and the king is not wise.", &[]);
        check("No docstrings! Keep the comments.", &["docstrings"]);
        check("Never mention politics; describe the weather.", &["politics"]);
        check("Bitte ohne Telemetrie.", &["Telemetrie"]);
        check("重构解析器，不要添加日志", &["要添", "添加", "加日", "日志"]);
    }
}
