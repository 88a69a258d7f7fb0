//! `opening_variety/1`

use super::{ScoreInfo, Scorer, TextScorer};
use crate::simulation::judge::conversation::{Conversation, EDGE_WORDS, variety};

pub(super) struct OpeningVariety;

impl Scorer for OpeningVariety {
    fn info(&self) -> ScoreInfo {
        ScoreInfo::share("opening_variety/1", "share of different openings; low is formulaic")
    }
}

impl TextScorer for OpeningVariety {
    fn score(&self, conversation: &Conversation<'_>) -> Result<f64, String> {
        let openings = conversation.persona().map(|line| line.words.iter().take(EDGE_WORDS).collect::<Vec<_>>());
        variety(openings).ok_or_else(|| conversation.too_few())
    }
}
