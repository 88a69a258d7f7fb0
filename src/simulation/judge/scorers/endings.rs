//! `ending_variety/1`

use super::{ScoreInfo, Scorer, TextScorer};
use crate::foundation::text::ends_with_question;
use crate::simulation::judge::conversation::{Conversation, EDGE_WORDS, variety};

pub(super) struct EndingVariety;

impl Scorer for EndingVariety {
    fn info(&self) -> ScoreInfo {
        ScoreInfo::share("ending_variety/1", "share of different endings; low is formulaic")
    }
}

impl TextScorer for EndingVariety {
    fn score(&self, conversation: &Conversation<'_>) -> Result<f64, String> {
        let endings = conversation
            .persona()
            .map(|line| (line.words.iter().rev().take(EDGE_WORDS).collect::<Vec<_>>(), ends_with_question(line.text)));
        variety(endings).ok_or_else(|| conversation.too_few())
    }
}
