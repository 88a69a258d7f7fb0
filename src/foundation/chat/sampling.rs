//! Sampling settings.

use serde::{Deserialize, Serialize};

use crate::foundation::base::limits::REPLY_TOKENS_MAX;

/// Sampling settings of a reply, applied in this order: repetition penalty, temperature, top-k, top-p, min-p.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Divides the logits; 0 means greedy.
    pub temperature: f32,
    /// Keep the most likely tokens until their probabilities sum to this; 1 keeps all.
    pub top_p: f32,
    /// Keep this many of the most likely tokens; `None` keeps all.
    pub top_k: Option<usize>,
    /// Drop tokens with less than this share of the top probability; 0 drops none.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen in the last `repetition_window` (Keskar et al.
    /// 2019); 1 is off.
    pub repetition_penalty: f32,
    /// Number of last tokens of prompt and reply that `repetition_penalty` covers.
    pub repetition_window: usize,
    /// Longest reply, in tokens.
    pub max_tokens: usize,
    /// Stop texts; they are not part of the reply.
    pub stop: Vec<String>,
    /// Number of alternatives to report per token.
    pub top_logprobs: usize,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_p: 0.95,
            top_k: None,
            min_p: 0.0,
            repetition_penalty: 1.0,
            repetition_window: 64,
            max_tokens: REPLY_TOKENS_MAX,
            stop: Vec::new(),
            top_logprobs: 0,
        }
    }
}

impl Sampling {
    /// Greedy sampling (the lowest id among ties).
    pub fn greedy() -> Self {
        Self { temperature: 0.0, top_p: 1.0, ..Self::default() }
    }
}
