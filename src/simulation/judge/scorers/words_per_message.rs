//! `words_per_message/1`

use super::{ScoreInfo, Scorer, TextScorer};
use crate::simulation::judge::conversation::{Conversation, SILENT};

pub(super) struct WordsPerMessage;

impl Scorer for WordsPerMessage {
    fn info(&self) -> ScoreInfo {
        ScoreInfo::unbounded("words_per_message/1", "mean length of the persona's messages, words")
    }
}

impl TextScorer for WordsPerMessage {
    fn score(&self, conversation: &Conversation<'_>) -> Result<f64, String> {
        let (messages, words) = conversation.persona().fold((0, 0), |(n, sum), line| (n + 1, sum + line.words.len()));
        if messages == 0 { Err(SILENT.to_owned()) } else { Ok(words as f64 / f64::from(messages)) }
    }
}
