//! A chart's configuration: active states, histories and counters.

use serde::Serialize;

use super::chart::{Chart, CounterId, Vocabulary};
use super::set::{StateId, StateSet};
use crate::foundation::base::Digest;

/// A chart's configuration. Only [`start`](super::start) and [`step`](super::step) create one, so illegal ones cannot be
/// represented; to restore one, replay its events.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Configuration {
    pub(super) chart: Digest,
    pub(super) active: StateSet,
    /// States remembered by histories, in document order; empty histories are omitted.
    pub(super) history: Vec<(StateId, StateSet)>,
    pub(super) left: Vec<u16>,
    pub(super) finished: bool,
}

impl Configuration {
    pub(super) fn new<V: Vocabulary>(chart: &Chart<V>) -> Self {
        Self {
            chart: chart.digest(),
            active: StateSet::EMPTY,
            history: Vec::new(),
            left: chart.counters().iter().map(|counter| counter.limit).collect(),
            finished: false,
        }
    }

    /// The digest of the chart that it belongs to.
    pub const fn chart(&self) -> Digest {
        self.chart
    }

    /// The active states.
    pub const fn active(&self) -> StateSet {
        self.active
    }

    /// Whether a top-level final state was entered.
    pub const fn is_finished(&self) -> bool {
        self.finished
    }

    /// The states that a history remembers; empty at first.
    pub fn remembered(&self, history: StateId) -> StateSet {
        self.history.iter().find(|(id, _)| *id == history).map_or(StateSet::EMPTY, |(_, states)| *states)
    }

    /// A counter's current value.
    pub fn left(&self, counter: CounterId) -> u16 {
        self.left.get(usize::from(counter.0)).copied().unwrap_or(0)
    }

    /// The paths of the active leaves, in document order.
    pub fn leaves<'c, V: Vocabulary>(&self, chart: &'c Chart<V>) -> Vec<&'c str> {
        let leaves = self.active.and(chart.leaves(StateId::ROOT));
        leaves.iter().map(|leaf| chart.state(leaf).path.as_str()).collect()
    }

    pub(super) fn remember(&mut self, history: StateId, states: StateSet) {
        if let Some((_, remembered)) = self.history.iter_mut().find(|(id, _)| *id == history) {
            *remembered = states;
        } else {
            // Sorted, so that equal histories compare equal.
            let place = self.history.partition_point(|(id, _)| *id < history);
            self.history.insert(place, (history, states));
        }
    }

    pub(super) fn set_left(&mut self, counter: CounterId, left: u16) {
        if let Some(place) = self.left.get_mut(usize::from(counter.0)) {
            *place = left;
        }
    }
}
