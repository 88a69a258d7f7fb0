//! `copy_rate/1`

use super::{LikelihoodScorer, ReplyLikelihoods, ScoreInfo, Scorer};

pub(super) struct CopyRate;

impl Scorer for CopyRate {
    fn info(&self) -> ScoreInfo {
        ScoreInfo::share("copy_rate/1", "share of words copied from the instructions; high is reciting")
    }
}

impl LikelihoodScorer for CopyRate {
    fn score(&self, reply: &ReplyLikelihoods<'_>) -> Result<f64, String> {
        reply.copy_rate.ok_or_else(|| "the reply has no words".to_owned())
    }
}
