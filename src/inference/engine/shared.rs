//! A model that is open: what its handle, and everything that prepares requests for it, need to know.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::history::HistoryCache;
use super::template::ChatTemplate;
use super::thread::Engine;
use super::tokenizer::Tokenizer;
use crate::foundation::chat::{ModelError, ModelInfo, TokenId};

/// State shared by the clones of a handle.
pub(super) struct Shared {
    pub(super) info: ModelInfo,
    /// Longest sequence (prompt and reply), if the architecture has a limit.
    pub(super) window: Option<usize>,
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) template: ChatTemplate,
    pub(super) history_cache: HistoryCache,
    /// Tokens that end the model's turn, and texts that end a reply in a conversation.
    pub(super) end_tokens: Arc<[TokenId]>,
    pub(super) stops: Vec<String>,
    pub(super) engine: Engine,
    pub(super) keys: AtomicU64,
}

impl Shared {
    pub(super) fn unsupported(&self, why: String) -> ModelError {
        ModelError::Unsupported { model: self.info.name.clone(), why }
    }

    pub(super) fn failed(&self, why: String) -> ModelError {
        ModelError::Failed { model: self.info.name.clone(), why }
    }
}
