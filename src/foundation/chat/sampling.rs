//! How a token is drawn from a distribution.

use serde::{Deserialize, Serialize};

use crate::foundation::base::limits::REPLY_TOKENS_MAX;

/// How a reply is sampled. Applied in this order: repetition penalty, temperature, top-k, top-p, min-p.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Divides the logits; 0 means greedy.
    pub temperature: f32,
    /// Keep the likeliest tokens until they hold this much probability; 1 keeps all.
    pub top_p: f32,
    /// Keep this many of the likeliest tokens; `None` keeps all.
    pub top_k: Option<usize>,
    /// Drop tokens less likely than this share of the likeliest one; 0 drops none.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen in the last `repetition_window` (Keskar et al.
    /// 2019); 1 is off.
    pub repetition_penalty: f32,
    /// How many of the reply's and the prompt's last tokens `repetition_penalty` looks at.
    pub repetition_window: usize,
    /// Longest reply, in tokens.
    pub max_tokens: usize,
    /// Texts that end the reply; they are not part of it.
    pub stop: Vec<String>,
    /// How many alternatives per token to report.
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
    /// Always the likeliest token (the lowest id among equals).
    pub fn greedy() -> Self {
        Self { temperature: 0.0, top_p: 1.0, ..Self::default() }
    }
}
