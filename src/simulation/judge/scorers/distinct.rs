//! `distinct_1/1` and `distinct_2/1`

use super::{ScoreInfo, Scorer, TextScorer};
use crate::foundation::text::distinct_n;
use crate::simulation::judge::conversation::{Conversation, SILENT};

/// The share of different n-grams.
pub(super) struct Distinct<const N: usize>;

impl<const N: usize> Scorer for Distinct<N> {
    fn info(&self) -> ScoreInfo {
        if N == 1 {
            ScoreInfo::share("distinct_1/1", "share of different words among all; falls with length")
        } else {
            ScoreInfo::share("distinct_2/1", "share of different pairs of words among all; falls with length")
        }
    }
}

impl<const N: usize> TextScorer for Distinct<N> {
    fn score(&self, conversation: &Conversation<'_>) -> Result<f64, String> {
        let why = if N == 1 { SILENT } else { "no message has two words" };
        distinct_n(&conversation.persona_words(), N).ok_or_else(|| why.to_owned())
    }
}
