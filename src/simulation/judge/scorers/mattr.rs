//! `mattr_50/1`: the moving-average type-token ratio

use super::{ScoreInfo, Scorer, TextScorer};
use crate::foundation::text::moving_type_token_ratio;
use crate::simulation::judge::conversation::Conversation;

/// The window, words.
const WINDOW: usize = 50;

pub(super) struct Mattr;

impl Scorer for Mattr {
    fn info(&self) -> ScoreInfo {
        ScoreInfo::share("mattr_50/1", "share of different words in windows of 50: variety, independent of length")
    }
}

impl TextScorer for Mattr {
    fn score(&self, conversation: &Conversation<'_>) -> Result<f64, String> {
        let words: Vec<&str> = conversation.persona().flat_map(|line| &line.words).map(String::as_str).collect();
        moving_type_token_ratio(&words, WINDOW)
            .ok_or_else(|| format!("{} words: at least {WINDOW} are needed", words.len()))
    }
}
