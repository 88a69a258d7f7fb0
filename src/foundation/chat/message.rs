//! One message of a conversation.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Thought, TokenId};

/// The author of a message from the model's point of view: each participant of a rollout is its own [`Role::Assistant`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// System instructions.
    System,
    /// The other participant.
    User,
    /// The model itself.
    Assistant,
}

impl Role {
    /// The name that chat templates use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The author.
    pub role: Role,
    /// The text, untrimmed.
    pub content: String,
    /// The token ids that the model generated for `content`. With them a resumed conversation has exactly the same ids;
    /// without them the text is tokenised again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Arc<[TokenId]>>,
    /// What the model thought before it. Whether that is told to the model again is decided by its chat template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thought: Option<Thought>,
}

impl Message {
    /// A message without known token ids.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into(), ids: None, thought: None }
    }

    /// A system message.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new(Role::System, content)
    }

    /// A message from the other participant.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new(Role::User, content)
    }

    /// A message from the model.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new(Role::Assistant, content)
    }
}
