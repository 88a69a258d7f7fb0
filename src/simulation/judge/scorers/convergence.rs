//! `convergence/1`

use super::{ScoreInfo, Scorer, TextScorer};
use crate::foundation::stats::mean;
use crate::simulation::judge::conversation::Conversation;

pub(super) struct Convergence;

impl Scorer for Convergence {
    fn info(&self) -> ScoreInfo {
        ScoreInfo::share("convergence/1", "similarity to the message that is answered; high is echoing")
    }
}

impl TextScorer for Convergence {
    fn score(&self, conversation: &Conversation<'_>) -> Result<f64, String> {
        let convergence: Vec<f64> = conversation.turns.iter().filter_map(|turn| turn.convergence).collect();
        mean(&convergence).ok_or_else(|| "no message of the persona's answers one".to_owned())
    }
}
