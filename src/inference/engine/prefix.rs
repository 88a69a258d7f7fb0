//! Openings that several prompts share, as states: read once, kept as long as there is room, the one used longest ago
//! leaving first. A state stands for the ids that it has read and the gains under which it read them; taking it over
//! changes no bit of what follows.

use std::collections::VecDeque;
use std::sync::Arc;

use super::sequence::{Past, common};
use crate::foundation::base::limits::PREFIXES_MAX;
use crate::foundation::chat::{DeltaGains, TokenId};

/// The states that an engine keeps for others.
pub(super) struct Prefixes<S> {
    /// The one used longest ago first.
    kept: VecDeque<Kept<S>>,
    bytes: usize,
    bytes_max: usize,
}

struct Kept<S> {
    past: Arc<Past<S>>,
    gains: Option<DeltaGains>,
    bytes: usize,
}

impl<S> Prefixes<S> {
    /// None yet, and never more than `bytes_max` bytes of them: with 0, nothing is shared at all.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { kept: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Whether anything can be kept.
    pub(super) fn is_on(&self) -> bool {
        self.bytes_max > 0
    }

    /// The state that has read most of `opening`, and nothing else.
    pub(super) fn longest(&mut self, opening: &[TokenId], gains: Option<&DeltaGains>) -> Option<Arc<Past<S>>> {
        let fits = |kept: &Kept<S>| kept.gains.as_ref() == gains && opening.starts_with(kept.past.ids());
        let fitting = self.kept.iter().enumerate().filter(|(_, kept)| fits(kept));
        let (at, _) = fitting.max_by_key(|(_, kept)| kept.past.ids().len())?;
        let kept = self.kept.remove(at)?;
        let past = Arc::clone(&kept.past);
        self.kept.push_back(kept);
        Some(past)
    }

    /// How far `opening` goes along with what was read before.
    pub(super) fn parts(&self, opening: &[TokenId], gains: Option<&DeltaGains>) -> usize {
        let alike = self.kept.iter().filter(|kept| kept.gains.as_ref() == gains);
        alike.map(|kept| common(kept.past.ids(), opening)).max().unwrap_or(0)
    }

    /// Keeps a state of `bytes` bytes, if it fits at all.
    pub(super) fn keep(&mut self, past: Arc<Past<S>>, gains: Option<&DeltaGains>, bytes: usize) {
        let known = |kept: &Kept<S>| kept.gains.as_ref() == gains && kept.past.ids() == past.ids();
        if bytes > self.bytes_max || self.kept.iter().any(known) {
            return;
        }
        self.bytes += bytes;
        self.kept.push_back(Kept { past, gains: gains.cloned(), bytes });
        while self.bytes > self.bytes_max || self.kept.len() > PREFIXES_MAX {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.bytes -= oldest.bytes;
        }
    }
}
