//! `structural_diversity/1`

use unicode_segmentation::UnicodeSegmentation as _;

use super::{ScoreInfo, Scorer, TextScorer};
use crate::foundation::stats::mean;
use crate::foundation::text::words;
use crate::simulation::judge::conversation::Conversation;

/// The mean normalised edit distance, over all pairs of messages, of their sequences of sentence kinds and lengths.
pub(super) struct StructuralDiversity;

impl Scorer for StructuralDiversity {
    fn info(&self) -> ScoreInfo {
        ScoreInfo::share("structural_diversity/1", "how much the messages differ in structure; 0 is all the same")
    }
}

impl TextScorer for StructuralDiversity {
    fn score(&self, conversation: &Conversation<'_>) -> Result<f64, String> {
        let structures: Vec<String> = conversation.persona().map(|line| structure(line.text)).collect();
        let pairs = structures
            .iter()
            .enumerate()
            .flat_map(|(index, one)| structures.iter().skip(index + 1).map(move |two| (one, two)));
        mean(&pairs.map(|(one, two)| 1.0 - strsim::normalized_levenshtein(one, two)).collect::<Vec<_>>())
            .ok_or_else(|| conversation.too_few())
    }
}

/// One letter per sentence for its kind and length: short (below 6 words), medium or long (from 16).
fn structure(text: &str) -> String {
    let sentence = |sentence: &str| {
        let letters = match sentence.trim_end_matches(['"', '\'', '\u{201D}', '\u{2019}', ')']).chars().next_back() {
            Some('?') => ['a', 'b', 'c'],
            Some('!') => ['d', 'e', 'f'],
            Some('\u{2026}' | '-' | '\u{2014}') => ['g', 'h', 'i'],
            _ => ['j', 'k', 'l'],
        };
        let [short, medium, long] = letters;
        match words(sentence).len() {
            ..6 => short,
            6..16 => medium,
            _ => long,
        }
    };
    text.unicode_sentences().map(str::trim).filter(|text| !text.is_empty()).map(sentence).collect()
}
