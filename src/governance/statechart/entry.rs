//! Which states a set of targets enters: downward by default entry, upward to the domain, sideways into parallel regions
//! (SCXML 1.0, appendix D, `computeEntrySet`).

use super::chart::{Chart, Kind, StateId, Vocabulary};
use super::configuration::Configuration;
use super::set::StateSet;

pub(super) struct Entry<'a, V: Vocabulary> {
    chart: &'a Chart<V>,
    /// What every history remembers at this moment.
    memory: Vec<(StateId, StateSet)>,
    /// The states to enter.
    pub(super) states: StateSet,
    /// Those of them that are entered by their initial transition.
    pub(super) by_default: StateSet,
    /// The histories that remember nothing and lead to their default.
    pub(super) histories: StateSet,
}

impl<'a, V: Vocabulary> Entry<'a, V> {
    pub(super) fn new(chart: &'a Chart<V>, now: &Configuration) -> Self {
        let (states, by_default, histories) = (StateSet::EMPTY, StateSet::EMPTY, StateSet::EMPTY);
        Self { chart, memory: now.history.clone(), states, by_default, histories }
    }

    /// Adds what entering `targets` inside `domain` enters.
    pub(super) fn targets(&mut self, targets: &[StateId], domain: StateId) {
        for target in targets {
            self.down(*target);
        }
        for target in self.effective(targets) {
            self.up(target, domain);
        }
    }

    /// The targets, histories replaced by where they lead.
    pub(super) fn effective(&self, targets: &[StateId]) -> StateSet {
        targets.iter().fold(StateSet::EMPTY, |all, target| {
            let state = self.chart.state(*target);
            match (state.kind, &state.initial) {
                (Kind::History { .. }, Some(default)) => match self.remembered(*target) {
                    StateSet::EMPTY => all.or(self.effective(&default.targets)),
                    remembered => all.or(remembered),
                },
                _ => all.with(*target),
            }
        })
    }

    fn remembered(&self, history: StateId) -> StateSet {
        self.memory.iter().find(|(id, _)| *id == history).map_or(StateSet::EMPTY, |(_, states)| *states)
    }

    fn down(&mut self, id: StateId) {
        let state = self.chart.state(id);
        match (state.kind, &state.initial) {
            (Kind::History { .. }, Some(default)) => {
                let home = state.parent.unwrap_or(StateId::ROOT);
                let mut ways: Vec<StateId> = self.remembered(id).into_iter().collect();
                if ways.is_empty() {
                    self.histories.insert(id);
                    ways.clone_from(&default.targets);
                }
                self.all(&ways, home);
            }
            (Kind::Compound, Some(initial)) => {
                self.states.insert(id);
                self.by_default.insert(id);
                self.all(&initial.targets, id);
            }
            _ => {
                self.states.insert(id);
                if state.kind == Kind::Parallel {
                    self.regions(id);
                }
            }
        }
    }

    fn all(&mut self, targets: &[StateId], home: StateId) {
        for target in targets {
            self.down(*target);
        }
        for target in targets {
            self.up(*target, home);
        }
    }

    /// The regions of a parallel state into which nothing leads yet.
    fn regions(&mut self, parallel: StateId) {
        for region in self.chart.state(parallel).children {
            if !self.states.meets(self.chart.state(region).inside) {
                self.down(region);
            }
        }
    }

    fn up(&mut self, id: StateId, domain: StateId) {
        let chart = self.chart;
        for ancestor in chart.ancestors(id).take_while(|ancestor| *ancestor != domain) {
            self.states.insert(ancestor);
            if chart.state(ancestor).kind == Kind::Parallel {
                self.regions(ancestor);
            }
        }
    }
}
