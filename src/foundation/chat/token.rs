//! Tokens, their log-probabilities, and who may listen while they come.

use serde::{Deserialize, Serialize};

/// An index into a model's vocabulary.
pub type TokenId = u32;

/// Which distribution a log-probability was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Log-softmax in f32 of the model's own logits: no temperature, no penalty, no mask.
    Raw,
    /// The distribution that was sampled from, as a provider reports it.
    Sampled,
}

/// One token and what the model thought of it. Natural logarithms throughout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TokenLogprob {
    /// The vocabulary index, where the provider gives one.
    pub id: Option<TokenId>,
    /// The text that this token completes. The texts of a reply's tokens, joined, are the reply: a token that ends in the
    /// middle of a character has an empty text, and the token that completes the character carries it.
    pub text: String,
    /// ln p(token | everything before it), in nats; `None` where it is not known.
    pub logprob: Option<f32>,
    /// Which distribution `logprob`, `entropy` and `top` were read from.
    pub basis: Basis,
    /// Shannon entropy of the whole next-token distribution, in nats.
    pub entropy: Option<f32>,
    /// How many vocabulary entries are strictly more likely than this one: 0 is the greedy choice.
    pub rank: Option<u32>,
    /// The likeliest tokens with their log-probabilities, best first (ties by lower id); as many as were asked for.
    pub top: Vec<(TokenId, f32)>,
    /// The same by their texts, from a provider that gives no ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub top_texts: Vec<(String, f32)>,
}

impl TokenLogprob {
    /// A token of which only id and text are known.
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

/// A listener's answer to a token.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Flow {
    /// Go on.
    Continue,
    /// End the reply after this token.
    Stop,
}

/// Listens to a reply while it is generated; a stop is obeyed before the next token.
///
/// It is called on the task that awaits the reply, which the local engine waits for: be brief, never block.
pub trait TokenSink: Send {
    /// One more token.
    fn token(&mut self, token: &TokenLogprob) -> Flow;
}

impl<F: FnMut(&TokenLogprob) -> Flow + Send> TokenSink for F {
    fn token(&mut self, token: &TokenLogprob) -> Flow {
        self(token)
    }
}
