//! "Everything up to here has been read", as a value.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// What a model has read so far. Cloning costs a reference count; the state behind it never changes.
///
/// Only the model that made a snapshot can read it: [`Snapshot::downcast`] gives `None` to any other, which then
/// reads the whole prompt instead and says so in its [`Reading`](super::Reading).
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

    /// How many tokens have been read.
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
