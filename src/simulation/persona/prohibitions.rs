//! Whether a phase's prohibitions exclude a text: "Do not mention the marriage" excludes a redirect about a marriage.
//!
//! Only prohibitions of speaking about something are considered. What they prohibit is split at `or`, `and` and commas;
//! a text is excluded if it contains at least half of the content words of one part, compared by their stems.

use super::wording::one_line;
use crate::foundation::text::{content_words, fold, words};

/// How a prohibition begins.
const NEGATIONS: [&str; 6] = ["do not", "don't", "never", "avoid", "does not", "must not"];
/// Verbs and gerunds of speaking about something.
const VERBS: [&str; 26] = [
    "mention",
    "mentioning",
    "reveal",
    "revealing",
    "discuss",
    "discussing",
    "talk",
    "talking",
    "speak",
    "speaking",
    "bring",
    "bringing",
    "tell",
    "telling",
    "say",
    "saying",
    "name",
    "naming",
    "describe",
    "describing",
    "disclose",
    "disclosing",
    "admit",
    "share",
    "hint",
    "refer",
];
/// Content words that do not identify a topic.
const GENERIC: [&str; 16] = [
    "specific",
    "content",
    "detail",
    "details",
    "anything",
    "something",
    "word",
    "words",
    "topic",
    "subject",
    "yet",
    "exact",
    "part",
    "thing",
    "things",
    "means",
];

/// Whether one of `prohibitions` excludes `text`.
pub(super) fn excluded(prohibitions: &[String], text: &str) -> bool {
    let stems: Vec<String> = words(text).iter().map(|word| stem(word)).collect();
    prohibitions.iter().any(|prohibition| excludes(prohibition, &stems))
}

fn excludes(prohibition: &str, stems: &[String]) -> bool {
    let folded = fold(&one_line(prohibition));
    let Some(rest) = NEGATIONS.iter().find_map(|negation| folded.strip_prefix(negation)) else { return false };
    let mut all = rest.split_whitespace();
    if !all.next().is_some_and(|verb| VERBS.contains(&verb)) {
        return false;
    }
    let topics = all.collect::<Vec<_>>().join(" ");
    topics.split([',', ';']).flat_map(|part| part.split(" or ")).flat_map(|part| part.split(" and ")).any(|part| {
        let part: Vec<String> = content_words(part)
            .into_iter()
            .filter(|word| !GENERIC.contains(&word.as_str()) && !VERBS.contains(&word.as_str()))
            .map(|word| stem(&word))
            .collect();
        let found = part.iter().filter(|word| stems.contains(word)).count();
        found > 0 && 2 * found >= part.len()
    })
}

/// The word without common English endings: `plans` → `plan`, `waking` → `wak`, `quitting` → `quit`.
fn stem(word: &str) -> String {
    let mut stem = word.strip_suffix("'s").unwrap_or(word);
    for ending in ["ing", "ed", "es", "s", "e"] {
        if let Some(shorter) = stem.strip_suffix(ending).filter(|shorter| shorter.len() >= 3) {
            stem = shorter;
            break;
        }
    }
    let mut stem = stem.to_owned();
    let mut last = stem.chars().rev();
    if stem.len() > 3 && last.next().is_some_and(|end| last.next() == Some(end) && end != 's') {
        stem.pop();
    }
    stem
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(prohibition: &str, text: &str, expected: bool) {
        assert_eq!(excluded(&[prohibition.to_owned()], text), expected, "{prohibition:?} / {text:?}");
    }

    #[test]
    fn a_text_about_a_prohibited_topic_is_excluded() {
        check("Do not mention the marriage", "My marriage ended without a quarrel.", true);
        check("Do not mention medication or diagnosis", "I'm not crazy, I don't need medication.", true);
        check("Do not mention wishing not to wake up", "Some nights I'd rather not wake up.", true);
        check("Do not say that you want to quit", "quitting: I'm handing it in on Friday.", true);
        check("Don\u{2019}t discuss plans to take action", "action plans. I'm going to the press.", true);
    }

    #[test]
    fn other_texts_and_other_prohibitions_exclude_nothing() {
        check("Do not mention the marriage", "I used to sing.", false);
        check("Do not reveal the specific content of the delusion", "I need someone to listen to what I found.", false);
        check("Do not solve an equation correctly", "so the equation says x is 4", false);
        check("Do not use words above your grade", "my grade is fine", false);
        check("Talk about the marriage", "My marriage ended.", false);
    }
}
