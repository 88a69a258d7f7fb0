//! `novelty_nll/1`

use super::{LikelihoodScorer, ReplyLikelihoods, ScoreInfo, Scorer};
use crate::foundation::stats::mean;

pub(super) struct NoveltyNll;

impl Scorer for NoveltyNll {
    fn info(&self) -> ScoreInfo {
        let meaning = "negative log-likelihood of the replies, nats per token; high is unexpected";
        ScoreInfo::unbounded("novelty_nll/1", meaning)
    }
}

impl LikelihoodScorer for NoveltyNll {
    fn score(&self, reply: &ReplyLikelihoods<'_>) -> Result<f64, String> {
        Ok(-mean(reply.own).unwrap_or_default())
    }
}
