//! `standstill/1`

use super::{ScoreInfo, Scorer, TextScorer};
use crate::simulation::judge::conversation::{Conversation, STANDSTILL_WINDOW};

pub(super) struct StandstillShare;

impl Scorer for StandstillShare {
    fn info(&self) -> ScoreInfo {
        ScoreInfo::share("standstill/1", "share of messages in stretches without anything new; high is stuck")
    }
}

impl TextScorer for StandstillShare {
    fn score(&self, conversation: &Conversation<'_>) -> Result<f64, String> {
        let turns = &conversation.turns;
        if turns.len() < STANDSTILL_WINDOW {
            return Err(format!("{} message(s): at least {STANDSTILL_WINDOW} are needed", turns.len()));
        }
        let inside = |turn: usize| conversation.standstills.iter().any(|span| (span.first..=span.last).contains(&turn));
        Ok(turns.iter().filter(|measures| inside(measures.turn)).count() as f64 / turns.len() as f64)
    }
}
