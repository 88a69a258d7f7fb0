//! `agreement/1`: a word list, which counts phrases and does not measure whether the persona gives in

use super::{ScoreInfo, Scorer, TextScorer};
use crate::foundation::text::agrees;
use crate::simulation::judge::conversation::Conversation;

pub(super) struct Agreement;

impl Scorer for Agreement {
    fn info(&self) -> ScoreInfo {
        ScoreInfo::share("agreement/1", "share of messages with an agreeing phrase from a word list")
    }
}

impl TextScorer for Agreement {
    fn score(&self, conversation: &Conversation<'_>) -> Result<f64, String> {
        conversation.share(|line| agrees(line.text))
    }
}
