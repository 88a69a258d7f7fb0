//! What a model thinks before it answers: how it is asked to, and what it thought.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{TokenId, TokenLogprob};

/// How a model thinks before it answers, and what else its chat template is told. A field that is absent leaves what the
/// model's files say.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Thinking {
    /// Whether it thinks: the value of the template's own switch (`enable_thinking`, or `thinking`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Most tokens of a thought. When they are spent, the thought is closed with the template's own marker and the answer
    /// follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_max: Option<usize>,
    /// The texts before and after a thought, in place of what the template says; an empty list: replies hold no thoughts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub markers: Option<Vec<String>>,
    /// Further arguments of the chat template, by name.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub template_arguments: Map<String, Value>,
}

impl Thinking {
    /// These settings where `over` says nothing.
    #[must_use]
    pub fn with(&self, over: &Self) -> Self {
        let mut template_arguments = self.template_arguments.clone();
        template_arguments.extend(over.template_arguments.clone());
        Self {
            enabled: over.enabled.or(self.enabled),
            tokens_max: over.tokens_max.or(self.tokens_max),
            markers: over.markers.clone().or_else(|| self.markers.clone()),
            template_arguments,
        }
    }

    /// Whether nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What is known of how a model thinks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ThinkingInfo {
    /// The text before a thought.
    pub open: String,
    /// The text after it.
    pub close: String,
    /// The template's argument that switches thinking on and off; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
    /// Whether it is on under the settings in force.
    pub on: bool,
}

impl ThinkingInfo {
    /// Thoughts between `open` and `close`.
    pub const fn new(open: String, close: String, switch: Option<String>, on: bool) -> Self {
        Self { open, close, switch, on }
    }
}

/// What a model thought before a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thought {
    /// The text between the markers.
    pub text: String,
    /// The token ids that the model generated before the message, markers included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Arc<[TokenId]>>,
}

/// How a thought ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ThoughtEnd {
    /// The model ended it.
    Closed,
    /// Its budget was spent, so it was closed.
    Budget,
    /// The reply ended inside it.
    Unfinished,
}

/// The tokens of a thought, and how it ended.
#[derive(Debug, Clone, PartialEq)]
pub struct ThoughtTokens {
    /// The tokens between the markers, in order.
    pub tokens: Vec<TokenLogprob>,
    /// How it ended.
    pub end: ThoughtEnd,
}
