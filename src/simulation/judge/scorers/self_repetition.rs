//! `self_repetition_4/1`

use super::{ScoreInfo, Scorer, TextScorer};
use crate::foundation::text::self_repetition;
use crate::simulation::judge::conversation::Conversation;

/// Words per n-gram: long enough that shared ones are rarely chance.
const GRAM: usize = 4;

pub(super) struct SelfRepetition;

impl Scorer for SelfRepetition {
    fn info(&self) -> ScoreInfo {
        let meaning = "share of 4-word phrases that occur in several messages; high is repetitive";
        ScoreInfo::share("self_repetition_4/1", meaning)
    }
}

impl TextScorer for SelfRepetition {
    fn score(&self, conversation: &Conversation<'_>) -> Result<f64, String> {
        let texts = conversation.persona_words();
        let value = if texts.len() < 2 { None } else { self_repetition(&texts, GRAM) };
        value.ok_or_else(|| format!("two messages, and one of at least {GRAM} words, are needed"))
    }
}
