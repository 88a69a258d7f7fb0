//! Computes the states that a transition enters: descendants by default entry, ancestors up to the domain, and parallel
//! regions (SCXML 1.0, appendix D, `computeEntrySet`).

use super::chart::{Chart, StateKind, Vocabulary};
use super::configuration::Configuration;
use super::set::{StateId, StateSet};

/// The states to enter.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EntrySet {
    /// The states to enter.
    pub(super) states: StateSet,
    /// Those that are entered by their initial transition.
    pub(super) by_default: StateSet,
    /// Histories that remember nothing and use their default.
    pub(super) histories: StateSet,
}

/// Computes an [`EntrySet`].
pub(super) struct Entry<'a, V: Vocabulary> {
    chart: &'a Chart<V>,
    now: &'a Configuration,
    pub(super) set: EntrySet,
}

/// The targets, with histories replaced by the states they restore.
pub(super) fn effective<V: Vocabulary>(chart: &Chart<V>, now: &Configuration, targets: &[StateId]) -> StateSet {
    targets.iter().fold(StateSet::EMPTY, |all, target| {
        let state = chart.state(*target);
        match (state.kind, &state.initial, now.remembered(*target)) {
            (StateKind::History { .. }, Some(default), StateSet::EMPTY) => {
                all.or(effective(chart, now, &default.targets))
            }
            (StateKind::History { .. }, _, remembered) => all.or(remembered),
            _ => all.with(*target),
        }
    })
}

impl<'a, V: Vocabulary> Entry<'a, V> {
    pub(super) fn new(chart: &'a Chart<V>, now: &'a Configuration) -> Self {
        Self { chart, now, set: EntrySet::default() }
    }

    /// Adds the states entered for `targets` within `domain`.
    pub(super) fn targets(&mut self, targets: &[StateId], domain: StateId) {
        for target in targets {
            self.down(*target);
        }
        for target in effective(self.chart, self.now, targets) {
            self.up(target, domain);
        }
    }

    fn down(&mut self, id: StateId) {
        let state = self.chart.state(id);
        match (state.kind, &state.initial) {
            (StateKind::History { .. }, Some(default)) => {
                let home = state.parent.unwrap_or(StateId::ROOT);
                let remembered = self.now.remembered(id);
                if remembered.is_empty() {
                    self.set.histories.insert(id);
                    self.all(default.targets.iter().copied(), home);
                } else {
                    self.all(remembered.iter(), home);
                }
            }
            (StateKind::Compound, Some(initial)) => {
                self.set.states.insert(id);
                self.set.by_default.insert(id);
                self.all(initial.targets.iter().copied(), id);
            }
            _ => {
                self.set.states.insert(id);
                if state.kind == StateKind::Parallel {
                    self.regions(id);
                }
            }
        }
    }

    fn all(&mut self, targets: impl Iterator<Item = StateId> + Clone, home: StateId) {
        for target in targets.clone() {
            self.down(target);
        }
        for target in targets {
            self.up(target, home);
        }
    }

    /// Adds the regions of a parallel state that have no target.
    fn regions(&mut self, parallel: StateId) {
        for region in self.chart.state(parallel).children {
            if !self.set.states.intersects(self.chart.state(region).inside) {
                self.down(region);
            }
        }
    }

    fn up(&mut self, id: StateId, domain: StateId) {
        let chart = self.chart;
        for ancestor in chart.ancestors(id).take_while(|ancestor| *ancestor != domain) {
            self.set.states.insert(ancestor);
            if chart.state(ancestor).kind == StateKind::Parallel {
                self.regions(ancestor);
            }
        }
    }
}
