//! Immutable snapshots of a model's state.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A model's state after a sequence of tokens. Cloning increments a reference count; the state is immutable.
///
/// Only the model that made a snapshot can use it: for any other, [`Snapshot::downcast`] returns `None`; that model then
/// reads the whole prompt and reports [`PrefixReuse::Reread`](super::PrefixReuse::Reread).
#[derive(Clone)]
pub struct Snapshot {
    state: Arc<dyn Any + Send + Sync>,
    tokens: usize,
}

impl Snapshot {
    /// A snapshot of `state`, after `tokens` tokens.
    pub fn new<S: Any + Send + Sync>(state: S, tokens: usize) -> Self {
        Self { state: Arc::new(state), tokens }
    }

    /// Number of tokens read.
    pub const fn tokens(&self) -> usize {
        self.tokens
    }

    /// The state, if it is an `S`.
    pub fn downcast<S: Any + Send + Sync>(&self) -> Option<Arc<S>> {
        Arc::clone(&self.state).downcast().ok()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({} tokens)", self.tokens)
    }
}
