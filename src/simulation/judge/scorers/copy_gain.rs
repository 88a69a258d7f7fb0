//! `copy_gain/1`

use super::{LikelihoodScorer, NEUTRAL, ReplyLikelihoods, ScoreInfo, Scorer};
use crate::foundation::stats::mean;

/// How much likelier the conversation so far makes the reply.
pub(super) struct CopyGain;

impl Scorer for CopyGain {
    fn info(&self) -> ScoreInfo {
        let meaning = "gain in log-likelihood by the conversation so far, nats per token; high in loops";
        ScoreInfo::unbounded("copy_gain/1", meaning)
    }
}

impl LikelihoodScorer for CopyGain {
    fn prompt(&self) -> Option<&'static str> {
        Some(NEUTRAL)
    }

    fn score(&self, reply: &ReplyLikelihoods<'_>) -> Result<f64, String> {
        let alone = reply.alone.as_ref().map_err(Clone::clone)?;
        let neutral = reply.neutral.as_ref().map_err(Clone::clone)?;
        Ok(mean(neutral).unwrap_or_default() - mean(alone).unwrap_or_default())
    }
}
