//! A least-recently-used cache of states for prompt prefixes. An entry is identified by the ids that its state has read
//! and the gains under which it read them. Adopting a cached state does not change any bit of the results.

use std::collections::VecDeque;
use std::sync::Arc;

use super::sequence::{PrefixState, common_prefix_len};
use crate::foundation::base::limits::PREFIXES_MAX;
use crate::foundation::chat::{DeltaGains, TokenId};

/// The cache.
pub(super) struct PrefixCache<S> {
    /// Least recently used first.
    entries: VecDeque<CachedPrefix<S>>,
    bytes: usize,
    bytes_max: usize,
}

struct CachedPrefix<S> {
    prefix: Arc<PrefixState<S>>,
    gains: Option<DeltaGains>,
    bytes: usize,
}

impl<S> PrefixCache<S> {
    /// An empty cache with a limit in bytes; 0 disables it.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Whether anything can be cached.
    pub(super) fn is_enabled(&self) -> bool {
        self.bytes_max > 0
    }

    /// The entry with the longest ids that `opening` begins with.
    pub(super) fn longest(&mut self, opening: &[TokenId], gains: Option<&DeltaGains>) -> Option<Arc<PrefixState<S>>> {
        let matches =
            |entries: &CachedPrefix<S>| entries.gains.as_ref() == gains && opening.starts_with(entries.prefix.ids());
        let fitting = self.entries.iter().enumerate().filter(|(_, entries)| matches(entries));
        let (at, _) = fitting.max_by_key(|(_, entries)| entries.prefix.ids().len())?;
        let entries = self.entries.remove(at)?;
        let prefix = Arc::clone(&entries.prefix);
        self.entries.push_back(entries);
        Some(prefix)
    }

    /// Length of the longest common prefix of `opening` and an entry.
    pub(super) fn common_len(&self, opening: &[TokenId], gains: Option<&DeltaGains>) -> usize {
        let alike = self.entries.iter().filter(|entries| entries.gains.as_ref() == gains);
        alike.map(|entries| common_prefix_len(entries.prefix.ids(), opening)).max().unwrap_or(0)
    }

    /// Adds a state of `bytes` bytes if it fits, and evicts old entries.
    pub(super) fn insert(&mut self, prefix: Arc<PrefixState<S>>, gains: Option<&DeltaGains>, bytes: usize) {
        let known = |entries: &CachedPrefix<S>| entries.gains.as_ref() == gains && entries.prefix.ids() == prefix.ids();
        if bytes > self.bytes_max || self.entries.iter().any(known) {
            return;
        }
        self.bytes += bytes;
        self.entries.push_back(CachedPrefix { prefix, gains: gains.cloned(), bytes });
        while self.bytes > self.bytes_max || self.entries.len() > PREFIXES_MAX {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.bytes;
        }
    }
}
