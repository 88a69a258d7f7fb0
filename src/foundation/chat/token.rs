//! Tokens, their log-probabilities, and the sink that receives them during generation.

use serde::{Deserialize, Serialize};

/// An index into a model's vocabulary.
pub type TokenId = u32;

/// The distribution that a log-probability refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Log-softmax in f32 of the model's own logits: no temperature, no penalty, no mask.
    Raw,
    /// The sampling distribution, as a provider reports it.
    Sampled,
}

/// One token with its log-probability, entropy and rank. All logarithms are natural.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TokenLogprob {
    /// The vocabulary index, if the provider gives one.
    pub id: Option<TokenId>,
    /// The text that this token adds; concatenated, they give the reply. A token that ends inside a UTF-8 character has an
    /// empty text, and the token that completes the character contains it.
    pub text: String,
    /// ln p(token | everything before it), in nats; `None` if not known.
    pub logprob: Option<f32>,
    /// The distribution that `logprob`, `entropy` and `top` refer to.
    pub basis: Basis,
    /// Shannon entropy of the whole next-token distribution, in nats.
    pub entropy: Option<f32>,
    /// Number of vocabulary entries that are strictly more likely: 0 is the greedy choice.
    pub rank: Option<u32>,
    /// The most likely tokens with their log-probabilities, best first (ties by lower id), as many as requested.
    pub top: Vec<(TokenId, f32)>,
    /// The same with texts, from a provider that gives no ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub top_texts: Vec<(String, f32)>,
}

impl TokenLogprob {
    /// A token with id and text only.
    pub fn unknown(id: Option<TokenId>, text: impl Into<String>) -> Self {
        Self {
            id,
            text: text.into(),
            logprob: None,
            basis: Basis::Raw,
            entropy: None,
            rank: None,
            top: Vec::new(),
            top_texts: Vec::new(),
        }
    }
}

/// Whether generation continues after a token.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Flow {
    /// Continue.
    Continue,
    /// End the reply after this token.
    Stop,
}

/// Receives the tokens of a reply during generation. [`Flow::Stop`] ends the reply before the next token.
///
/// It is called on the task that awaits the reply while the local engine waits: it must return quickly and never block.
pub trait TokenSink: Send {
    /// Called for each token of the answer.
    fn token(&mut self, token: &TokenLogprob) -> Flow;

    /// Called for each token of a thought before the answer.
    fn thought(&mut self, _token: &TokenLogprob) -> Flow {
        Flow::Continue
    }
}

impl<F: FnMut(&TokenLogprob) -> Flow + Send> TokenSink for F {
    fn token(&mut self, token: &TokenLogprob) -> Flow {
        self(token)
    }
}
