//! One message of a conversation.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::TokenId;

/// Who speaks, as the model sees it: each side of a rollout sees itself as [`Role::Assistant`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions that stand above the conversation.
    System,
    /// The other side.
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
    /// Who speaks.
    pub role: Role,
    /// The text, exactly as it was generated or written: nothing is trimmed.
    pub content: String,
    /// The token ids that the model itself generated for `content`. With them a resumed conversation is read exactly as
    /// it was written; without them the text is tokenised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Arc<[TokenId]>>,
}

impl Message {
    /// A message without known token ids.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into(), ids: None }
    }

    /// A system message.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new(Role::System, content)
    }

    /// The other side's message.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new(Role::User, content)
    }

    /// The model's own message.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new(Role::Assistant, content)
    }
}
