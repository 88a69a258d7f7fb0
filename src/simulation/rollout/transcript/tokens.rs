//! The tokens of a message: statistics in the transcript, single tokens in its side file.

use serde::{Deserialize, Serialize};

use crate::foundation::chat::{Basis, TokenId, TokenLogprob};
use crate::simulation::persona::Speaker;
use crate::simulation::rollout::forbidden_phrases::PhraseLogprob;

/// Statistics of a reply's tokens. Natural logarithms; `null` if no token had the value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenSummary {
    /// The number of tokens.
    pub count: usize,
    /// The distribution the values refer to, if any.
    pub basis: Option<Basis>,
    /// Mean log-probability.
    pub logprob_mean: Option<f64>,
    /// The smallest log-probability.
    pub logprob_min: Option<f64>,
    /// Mean entropy, nats.
    pub entropy_mean: Option<f64>,
    /// The largest, nats.
    pub entropy_max: Option<f64>,
    /// The share of tokens that were the most likely ones.
    pub greedy_share: Option<f64>,
}

impl TokenSummary {
    /// The statistics of `tokens`.
    pub fn of(tokens: &[TokenLogprob]) -> Self {
        let logprobs: Vec<_> = tokens.iter().filter_map(|token| token.logprob.map(f64::from)).collect();
        let entropies: Vec<_> = tokens.iter().filter_map(|token| token.entropy.map(f64::from)).collect();
        let ranks: Vec<_> = tokens.iter().filter_map(|token| token.rank.map(|rank| f64::from(rank == 0))).collect();
        Self {
            count: tokens.len(),
            basis: tokens.iter().find(|token| token.logprob.is_some()).map(|token| token.basis),
            logprob_mean: mean(&logprobs),
            logprob_min: logprobs.iter().copied().reduce(f64::min),
            entropy_mean: mean(&entropies),
            entropy_max: entropies.iter().copied().reduce(f64::max),
            greedy_share: mean(&ranks),
        }
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// One line of the side file: the tokens of one message as columns of equal length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenLine {
    /// The turn, from 0.
    pub turn: usize,
    /// The speaker.
    pub speaker: Speaker,
    /// The distribution the values refer to.
    pub basis: Basis,
    /// Vocabulary indices.
    pub ids: Vec<Option<TokenId>>,
    /// The texts; concatenated they are the message.
    pub text: Vec<String>,
    /// ln p, nats.
    pub logprob: Vec<Option<f32>>,
    /// Entropy of the next-token distribution, nats.
    pub entropy: Vec<Option<f32>>,
    /// How many tokens were more likely.
    pub rank: Vec<Option<u32>>,
    /// The most likely tokens with their log-probabilities, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<Vec<Vec<(TokenId, f32)>>>,
    /// The tokens of the thought before the message; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thought: Option<ThoughtLine>,
    /// The log-probabilities of the persona's forbidden phrases at the start of the reply; absent if not computed.
    #[serde(rename = "beginnings", default, skip_serializing_if = "Option::is_none")]
    pub phrase_logprobs: Option<Vec<PhraseLogprob>>,
}

/// The tokens of a thought, as columns of equal length like those of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThoughtLine {
    /// Vocabulary indices.
    pub ids: Vec<Option<TokenId>>,
    /// The texts; concatenated they are the thought.
    pub text: Vec<String>,
    /// ln p, nats.
    pub logprob: Vec<Option<f32>>,
    /// Entropy of the next-token distribution, nats.
    pub entropy: Vec<Option<f32>>,
    /// How many tokens were more likely.
    pub rank: Vec<Option<u32>>,
}

impl ThoughtLine {
    /// The columns of `tokens`.
    pub fn new(tokens: &[TokenLogprob]) -> Self {
        Self {
            ids: tokens.iter().map(|token| token.id).collect(),
            text: tokens.iter().map(|token| token.text.clone()).collect(),
            logprob: tokens.iter().map(|token| token.logprob).collect(),
            entropy: tokens.iter().map(|token| token.entropy).collect(),
            rank: tokens.iter().map(|token| token.rank).collect(),
        }
    }
}

impl TokenLine {
    /// The columns of `tokens`.
    pub fn new(turn: usize, speaker: Speaker, tokens: &[TokenLogprob]) -> Self {
        let top = tokens.iter().any(|token| !token.top.is_empty());
        Self {
            turn,
            speaker,
            basis: tokens.first().map_or(Basis::Raw, |token| token.basis),
            ids: tokens.iter().map(|token| token.id).collect(),
            text: tokens.iter().map(|token| token.text.clone()).collect(),
            logprob: tokens.iter().map(|token| token.logprob).collect(),
            entropy: tokens.iter().map(|token| token.entropy).collect(),
            rank: tokens.iter().map(|token| token.rank).collect(),
            top: top.then(|| tokens.iter().map(|token| token.top.clone()).collect()),
            thought: None,
            phrase_logprobs: None,
        }
    }

    /// The tokens as a list.
    pub fn tokens(&self) -> Vec<TokenLogprob> {
        let mut top = self.top.iter().flatten();
        self.ids
            .iter()
            .zip(&self.text)
            .zip(&self.logprob)
            .zip(&self.entropy)
            .zip(&self.rank)
            .map(|((((id, text), logprob), entropy), rank)| {
                let mut token = TokenLogprob::unknown(*id, text.clone());
                token.basis = self.basis;
                token.logprob = *logprob;
                token.entropy = *entropy;
                token.rank = *rank;
                token.top = top.next().cloned().unwrap_or_default();
                token
            })
            .collect()
    }
}
