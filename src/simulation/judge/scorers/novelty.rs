//! `novelty/1`

use super::{ScoreInfo, Scorer, TextScorer};
use crate::foundation::stats::mean;
use crate::simulation::judge::conversation::Conversation;

pub(super) struct Novelty;

impl Scorer for Novelty {
    fn info(&self) -> ScoreInfo {
        ScoreInfo::share("novelty/1", "share of new content words per message; low is going in circles")
    }
}

impl TextScorer for Novelty {
    fn score(&self, conversation: &Conversation<'_>) -> Result<f64, String> {
        let novelty: Vec<f64> = conversation.turns.iter().skip(1).filter_map(|turn| turn.novelty).collect();
        mean(&novelty).ok_or_else(|| "no message after the first has content words".to_owned())
    }
}
