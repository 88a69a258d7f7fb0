//! The pure step function: from a configuration and an event to a new configuration and the effects to perform.
//!
//! The order is that of SCXML 1.0 (W3C Recommendation, 2015, appendix D, "Algorithm for SCXML Interpretation"): an event
//! from outside is a macrostep, which ends when no eventless transition is enabled and no raised event is queued. In each
//! microstep the optimal set of enabled transitions is taken: of two that would exit the same state, the one with the
//! deeper source, otherwise the one whose state comes first. States are exited in reverse document order, then the
//! transitions' content is executed, then states are entered in document order.
//!
//! Facts do not change within a macrostep: `holds` answers as of the event.

use std::collections::VecDeque;

use serde::Serialize;

use super::chart::{Chart, ConditionTest, CounterId, Executable, StateKind, TransitionId, Trigger, Vocabulary, word};
use super::configuration::Configuration;
use super::entry::{Entry, EntrySet, effective};
use super::set::{StateId, StateSet};
use crate::foundation::base::limits;

/// The result of one event.
#[derive(Debug, Clone, PartialEq)]
pub struct Step<V: Vocabulary> {
    /// The new configuration; the old one if the event was denied.
    pub configuration: Configuration,
    /// The effects to perform, in order.
    pub effects: Vec<V::Action>,
    /// The microsteps taken.
    pub trace: Vec<Microstep<V>>,
    /// Why the event was denied, if it was.
    pub denial: Option<Denial<V>>,
}

/// A set of transitions taken together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Microstep<V: Vocabulary> {
    /// Its trigger; none for eventless transitions and for the start.
    pub cause: Option<Trigger<V>>,
    /// The transitions, in the order of execution.
    pub transitions: Vec<TransitionId>,
    /// The exited states, in order.
    pub exited: Vec<StateId>,
    /// The entered states, in order.
    pub entered: Vec<StateId>,
}

/// Why an event was denied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denial<V: Vocabulary> {
    /// The configuration belongs to another chart.
    #[error("the configuration belongs to another chart: replay its events on this one")]
    OtherChart,
    /// The chart has finished.
    #[error("the chart has finished: start it again")]
    Finished,
    /// No active state has a transition on the event.
    #[error("no active state has a transition on `{}`", word(*.0))]
    Unexpected(V::Event),
    /// Active states have transitions on the event, but all are disabled.
    #[error("every transition on `{}` is disabled now", word(*.event))]
    Refused {
        /// The event.
        event: V::Event,
        /// The disabled transitions, each with its reason.
        by: Vec<(TransitionId, Refusal)>,
    },
    /// The step did not end within [`limits::MICROSTEPS_MAX`] microsteps.
    #[error("the step did not end within the limit of microsteps")]
    Endless,
}

/// Why a transition was disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Refusal {
    /// The condition at this index does not hold.
    Condition(usize),
    /// The counter is zero.
    Spent(CounterId),
}

/// Enters the chart's initial states.
pub fn start<V: Vocabulary>(chart: &Chart<V>, holds: impl Fn(V::Guard) -> bool) -> Step<V> {
    let empty = Configuration::new(chart);
    let mut machine = Machine::new(chart, &empty, &holds);
    let mut entered = Vec::new();
    let mut entry = Entry::new(chart, &machine.now);
    if let Some(initial) = &chart.state(StateId::ROOT).initial {
        entry.targets(&initial.targets, StateId::ROOT);
        let set = entry.set;
        machine.act(&initial.acts);
        entered = machine.enter(set);
    }
    machine.trace.push(Microstep { cause: None, transitions: Vec::new(), exited: Vec::new(), entered });
    machine.finish(&empty)
}

/// Processes one event. Total: every event gives a result or a denial.
pub fn step<V: Vocabulary>(
    chart: &Chart<V>,
    configuration: &Configuration,
    event: V::Event,
    holds: impl Fn(V::Guard) -> bool,
) -> Step<V> {
    if configuration.chart != chart.digest() {
        return denied(configuration, Denial::OtherChart);
    }
    if configuration.finished {
        return denied(configuration, Denial::Finished);
    }
    let mut machine = Machine::new(chart, configuration, &holds);
    let cause = Trigger::Event(event);
    let enabled = machine.select(Some(cause));
    if enabled.is_empty() {
        return denied(configuration, machine.refusal(event));
    }
    machine.microstep(Some(cause), enabled);
    machine.finish(configuration)
}

fn denied<V: Vocabulary>(configuration: &Configuration, denial: Denial<V>) -> Step<V> {
    let configuration = configuration.clone();
    Step { configuration, effects: Vec::new(), trace: Vec::new(), denial: Some(denial) }
}

struct Machine<'a, V: Vocabulary, H> {
    chart: &'a Chart<V>,
    holds: &'a H,
    now: Configuration,
    raised: VecDeque<Trigger<V>>,
    effects: Vec<V::Action>,
    trace: Vec<Microstep<V>>,
}

impl<'a, V: Vocabulary, H: Fn(V::Guard) -> bool> Machine<'a, V, H> {
    fn new(chart: &'a Chart<V>, configuration: &Configuration, holds: &'a H) -> Self {
        let now = configuration.clone();
        Self { chart, holds, now, raised: VecDeque::new(), effects: Vec::new(), trace: Vec::new() }
    }

    /// Runs microsteps until the macrostep ends.
    fn finish(mut self, before: &Configuration) -> Step<V> {
        let mut rounds = 0;
        while !self.now.finished {
            let eventless = self.select(None);
            if !eventless.is_empty() {
                self.microstep(None, eventless);
            } else if let Some(raised) = self.raised.pop_front() {
                let enabled = self.select(Some(raised));
                if !enabled.is_empty() {
                    self.microstep(Some(raised), enabled);
                }
            } else {
                break;
            }
            rounds += 1;
            if rounds > limits::MICROSTEPS_MAX {
                return denied(before, Denial::Endless);
            }
        }
        Step { configuration: self.now, effects: self.effects, trace: self.trace, denial: None }
    }

    /// The optimal set of transitions that `cause` enables, conflicts resolved.
    fn select(&self, cause: Option<Trigger<V>>) -> Vec<TransitionId> {
        let mut enabled = Vec::new();
        for leaf in self.now.active.and(self.chart.leaves(StateId::ROOT)) {
            let nearest = self.candidates(leaf, cause).find(|id| self.against(*id).is_none());
            if let Some(id) = nearest.filter(|id| !enabled.contains(id)) {
                enabled.push(id);
            }
        }
        self.without_conflicts(enabled)
    }

    /// The transitions that `leaf` and its ancestors have for `cause`, in order of precedence.
    fn candidates(&self, leaf: StateId, cause: Option<Trigger<V>>) -> impl Iterator<Item = TransitionId> {
        let states = std::iter::once(leaf).chain(self.chart.ancestors(leaf));
        states.flat_map(|state| self.chart.state(state).transitions.iter().copied()).filter(move |id| {
            let triggers = &self.chart.transition(*id).triggers;
            cause.map_or(triggers.is_empty(), |cause| triggers.contains(&cause))
        })
    }

    /// Why a transition is disabled, if it is.
    fn against(&self, id: TransitionId) -> Option<Refusal> {
        let transition = self.chart.transition(id);
        let fails = transition.conditions.iter().position(|condition| {
            let answer = match condition.test {
                ConditionTest::Guard(guard) => (self.holds)(guard),
                ConditionTest::In(state) => self.now.active.contains(state),
            };
            answer != condition.wanted
        });
        let spent = transition.spend.filter(|counter| self.now.left(*counter) == 0);
        fails.map(Refusal::Condition).or(spent.map(Refusal::Spent))
    }

    fn without_conflicts(&self, enabled: Vec<TransitionId>) -> Vec<TransitionId> {
        let mut selected: Vec<(TransitionId, StateSet)> = Vec::new();
        for id in enabled {
            let exits = self.exits(id);
            let source = self.chart.transition(id).source;
            let is_deeper =
                |other: TransitionId| self.chart.state(self.chart.transition(other).source).inside.contains(source);
            if selected.iter().all(|(other, others)| !others.intersects(exits) || is_deeper(*other)) {
                selected.retain(|(_, others)| !others.intersects(exits));
                selected.push((id, exits));
            }
        }
        selected.into_iter().map(|(id, _)| id).collect()
    }

    fn refusal(&self, event: V::Event) -> Denial<V> {
        let mut by: Vec<(TransitionId, Refusal)> = Vec::new();
        for leaf in self.now.active.and(self.chart.leaves(StateId::ROOT)) {
            for id in self.candidates(leaf, Some(Trigger::Event(event))) {
                if let Some(refusal) = self.against(id).filter(|_| by.iter().all(|(known, _)| *known != id)) {
                    by.push((id, refusal));
                }
            }
        }
        if by.is_empty() { Denial::Unexpected(event) } else { Denial::Refused { event, by } }
    }

    /// The states that a transition exits.
    fn exits(&self, id: TransitionId) -> StateSet {
        self.domain(id).map_or(StateSet::EMPTY, |domain| self.now.active.and(self.chart.state(domain).inside))
    }

    /// The transition's domain; none for a targetless transition.
    fn domain(&self, id: TransitionId) -> Option<StateId> {
        let transition = self.chart.transition(id);
        let targets = effective(self.chart, &self.now, &transition.targets);
        if targets.is_empty() {
            return None;
        }
        let holds_all = |state: StateId| targets.iter().all(|target| self.chart.state(state).inside.contains(target));
        let source = transition.source;
        let is_compound = |state: StateId| self.chart.state(state).kind == StateKind::Compound;
        if transition.internal && is_compound(source) && holds_all(source) {
            return Some(source);
        }
        self.chart.ancestors(source).find(|state| is_compound(*state) && holds_all(*state))
    }

    fn microstep(&mut self, cause: Option<Trigger<V>>, transitions: Vec<TransitionId>) {
        let exits = transitions.iter().fold(StateSet::EMPTY, |exits, id| exits.or(self.exits(*id)));
        // Both are computed before any exit, with the histories as they are.
        let domains: Vec<_> = transitions.iter().map(|id| self.domain(*id)).collect();
        let exited = self.exit(exits);
        let chart = self.chart;
        for id in &transitions {
            let transition = chart.transition(*id);
            if let Some(counter) = transition.spend {
                // Two regions may decrement the same counter in one microstep.
                self.now.set_left(counter, self.now.left(counter).saturating_sub(1));
            }
            for counter in &transition.refill {
                self.now.set_left(*counter, chart.counter(*counter).limit);
            }
            self.act(&transition.acts);
        }
        let mut entry = Entry::new(chart, &self.now);
        for (id, domain) in transitions.iter().zip(domains) {
            if let Some(domain) = domain {
                entry.targets(&chart.transition(*id).targets, domain);
            }
        }
        let set = entry.set;
        let entered = self.enter(set);
        self.trace.push(Microstep { cause, transitions, exited, entered });
    }

    fn exit(&mut self, exits: StateSet) -> Vec<StateId> {
        let chart = self.chart;
        let before = self.now.active;
        for state in exits {
            for history in chart.state(state).histories {
                let deep = chart.state(history).kind == StateKind::History { deep: true };
                let remembered = if deep { chart.leaves(state) } else { chart.state(state).children };
                self.now.remember(history, before.and(remembered));
            }
        }
        let exited: Vec<_> = exits.iter().rev().collect();
        for state in &exited {
            self.act(&chart.state(*state).exit);
            self.now.active.remove(*state);
        }
        exited
    }

    fn enter(&mut self, set: EntrySet) -> Vec<StateId> {
        let chart = self.chart;
        let EntrySet { states, by_default, histories } = set;
        for id in states {
            let state = chart.state(id);
            self.now.active.insert(id);
            self.act(&state.entry);
            let ways = by_default.contains(id).then_some(id).into_iter().chain(state.histories.and(histories));
            for way in ways {
                if let Some(initial) = &chart.state(way).initial {
                    self.act(&initial.acts);
                }
            }
            if state.kind == StateKind::Final {
                self.ended(state.parent);
            }
        }
        states.into_iter().collect()
    }

    /// A final state of `parent` was entered.
    fn ended(&mut self, parent: Option<StateId>) {
        let Some(parent) = parent else { return };
        if parent == StateId::ROOT {
            self.now.finished = true;
            // At the end of the chart all active states exit.
            let exits = self.now.active;
            self.exit(exits);
            self.now.active = exits;
            return;
        }
        self.raised.push_back(Trigger::Done(parent));
        let outer = self.chart.state(parent).parent;
        if let Some(outer) = outer.filter(|outer| self.chart.state(*outer).kind == StateKind::Parallel)
            && self.has_ended(outer)
        {
            self.raised.push_back(Trigger::Done(outer));
        }
    }

    fn has_ended(&self, id: StateId) -> bool {
        let state = self.chart.state(id);
        match state.kind {
            StateKind::Parallel => state.children.iter().all(|child| self.has_ended(child)),
            _ => state
                .children
                .iter()
                .any(|child| self.chart.state(child).kind == StateKind::Final && self.now.active.contains(child)),
        }
    }

    fn act(&mut self, acts: &[Executable<V>]) {
        for act in acts {
            match act {
                Executable::Do(action) => self.effects.push(*action),
                Executable::Raise(event) => self.raised.push_back(Trigger::Event(*event)),
            }
        }
    }
}
