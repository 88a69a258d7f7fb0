//! `persona_llr/1` and `persona_llr_own_words/1`

use super::{LikelihoodScorer, NEUTRAL, ReplyLikelihoods, ScoreInfo, Scorer};
use crate::foundation::stats::mean;

/// How much likelier the persona's prompt makes the reply than a neutral one.
pub(super) struct PersonaLlr {
    /// Only tokens that are not copied from the instructions.
    pub(super) own_words: bool,
}

impl Scorer for PersonaLlr {
    fn info(&self) -> ScoreInfo {
        if self.own_words {
            let meaning = "the same over the words that are not copied from the prompt";
            return ScoreInfo::unbounded("persona_llr_own_words/1", meaning);
        }
        let meaning = "gain in log-likelihood of the replies by the persona's prompt, nats per token; 0 is none";
        ScoreInfo::unbounded("persona_llr/1", meaning)
    }
}

impl LikelihoodScorer for PersonaLlr {
    fn prompt(&self) -> Option<&'static str> {
        Some(NEUTRAL)
    }

    fn score(&self, reply: &ReplyLikelihoods<'_>) -> Result<f64, String> {
        let neutral = reply.neutral.as_ref().map_err(Clone::clone)?;
        let pairs = reply.own.iter().zip(neutral).zip(reply.copied);
        let counted = pairs.filter(|(_, copied)| !(self.own_words && **copied));
        mean(&counted.map(|((with, without), _)| with - without).collect::<Vec<_>>())
            .ok_or_else(|| "every word stands in the prompt".to_owned())
    }
}
