//! The pure step of a chart: an event comes in, a new configuration and the effects to perform come out.
//!
//! The order is that of SCXML 1.0 (W3C Recommendation, 2015, appendix D, "Algorithm for SCXML Interpretation"): an event
//! from outside is a macrostep, which ends when neither a transition without an event nor a raised event is left. In each
//! microstep the optimal set of enabled transitions is taken: of two that would leave the same state, the one whose source
//! stands deeper, else the one whose state comes first. States are left in reverse document order, then the transitions'
//! acts are done, then states are entered in document order.
//!
//! Facts do not change within a macrostep: `holds` answers for the moment of the event.

use std::collections::VecDeque;

use serde::Serialize;

use super::chart::{Act, Chart, CounterId, Kind, StateId, Test, TransitionId, Trigger, Vocabulary, word};
use super::configuration::Configuration;
use super::entry::{Entry, EntrySet, effective};
use super::set::StateSet;
use crate::foundation::base::limits;

/// What one event did.
#[derive(Debug, Clone, PartialEq)]
pub struct Step<V: Vocabulary> {
    /// Where the chart stands now; where it stood, if the event was denied.
    pub configuration: Configuration,
    /// What the caller shall do, in this order.
    pub effects: Vec<V::Action>,
    /// How it came about.
    pub trace: Vec<Microstep<V>>,
    /// Why nothing happened, if nothing did.
    pub denial: Option<Denial<V>>,
}

/// One round of transitions taken together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Microstep<V: Vocabulary> {
    /// What it answers; none for transitions without an event, and for the start.
    pub cause: Option<Trigger<V>>,
    /// The transitions, in the order in which their acts were done.
    pub transitions: Vec<TransitionId>,
    /// The states left, in order.
    pub exited: Vec<StateId>,
    /// The states entered, in order.
    pub entered: Vec<StateId>,
}

/// Why an event was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denial<V: Vocabulary> {
    /// The configuration was made with another chart.
    #[error("the configuration belongs to another chart: replay its events on this one")]
    OtherChart,
    /// The chart has come to its end.
    #[error("the chart has come to its end: start it anew")]
    Finished,
    /// No active state listens to the event.
    #[error("no active state listens to `{}`", word(*.0))]
    Unexpected(V::Event),
    /// Active states listen to the event, but none may take it now.
    #[error("no transition on `{}` may be taken now", word(*.event))]
    Refused {
        /// The event.
        event: V::Event,
        /// The transitions that it could have taken, each with what stood against it.
        by: Vec<(TransitionId, Refusal)>,
    },
    /// The step did not end within [`limits::MICROSTEPS_MAX`] microsteps.
    #[error("the chart goes round without end")]
    Endless,
}

/// What stood against a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Refusal {
    /// The condition at this place in its list does not hold.
    Condition(usize),
    /// The counter has run out.
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

/// Takes one event. Total: whatever comes, there is an answer.
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

    /// Goes on until nothing is left to do inside.
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

    /// What stands against taking a transition, if anything does.
    fn against(&self, id: TransitionId) -> Option<Refusal> {
        let transition = self.chart.transition(id);
        let fails = transition.conditions.iter().position(|condition| {
            let answer = match condition.test {
                Test::Guard(guard) => (self.holds)(guard),
                Test::In(state) => self.now.active.contains(state),
            };
            answer != condition.wanted
        });
        let spent = transition.spend.filter(|counter| self.now.left(*counter) == 0);
        fails.map(Refusal::Condition).or(spent.map(Refusal::Spent))
    }

    fn without_conflicts(&self, enabled: Vec<TransitionId>) -> Vec<TransitionId> {
        let mut kept: Vec<(TransitionId, StateSet)> = Vec::new();
        for id in enabled {
            let exits = self.exits(id);
            let source = self.chart.transition(id).source;
            let is_deeper =
                |other: TransitionId| self.chart.state(self.chart.transition(other).source).inside.contains(source);
            if kept.iter().all(|(other, others)| !others.meets(exits) || is_deeper(*other)) {
                kept.retain(|(_, others)| !others.meets(exits));
                kept.push((id, exits));
            }
        }
        kept.into_iter().map(|(id, _)| id).collect()
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

    /// The states that a transition leaves.
    fn exits(&self, id: TransitionId) -> StateSet {
        self.domain(id).map_or(StateSet::EMPTY, |domain| self.now.active.and(self.chart.state(domain).inside))
    }

    /// The state inside which a transition takes place; none if it leaves no state.
    fn domain(&self, id: TransitionId) -> Option<StateId> {
        let transition = self.chart.transition(id);
        let targets = effective(self.chart, &self.now, &transition.targets);
        if targets.is_empty() {
            return None;
        }
        let holds_all = |state: StateId| targets.iter().all(|target| self.chart.state(state).inside.contains(target));
        let source = transition.source;
        let is_compound = |state: StateId| self.chart.state(state).kind == Kind::Compound;
        if transition.internal && is_compound(source) && holds_all(source) {
            return Some(source);
        }
        self.chart.ancestors(source).find(|state| is_compound(*state) && holds_all(*state))
    }

    fn microstep(&mut self, cause: Option<Trigger<V>>, transitions: Vec<TransitionId>) {
        let exits = transitions.iter().fold(StateSet::EMPTY, |exits, id| exits.or(self.exits(*id)));
        // Both are asked before anything is left, as the histories stand then.
        let domains: Vec<_> = transitions.iter().map(|id| self.domain(*id)).collect();
        let exited = self.exit(exits);
        let chart = self.chart;
        for id in &transitions {
            let transition = chart.transition(*id);
            if let Some(counter) = transition.spend {
                // Two regions may spend the last one in the same microstep.
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
                let deep = chart.state(history).kind == Kind::History { deep: true };
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
            if state.kind == Kind::Final {
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
            // The end of the chart is an exit from all that is active.
            let exits = self.now.active;
            self.exit(exits);
            self.now.active = exits;
            return;
        }
        self.raised.push_back(Trigger::Done(parent));
        let outer = self.chart.state(parent).parent;
        if let Some(outer) = outer.filter(|outer| self.chart.state(*outer).kind == Kind::Parallel)
            && self.has_ended(outer)
        {
            self.raised.push_back(Trigger::Done(outer));
        }
    }

    fn has_ended(&self, id: StateId) -> bool {
        let state = self.chart.state(id);
        match state.kind {
            Kind::Parallel => state.children.iter().all(|child| self.has_ended(child)),
            _ => state
                .children
                .iter()
                .any(|child| self.chart.state(child).kind == Kind::Final && self.now.active.contains(child)),
        }
    }

    fn act(&mut self, acts: &[Act<V>]) {
        for act in acts {
            match act {
                Act::Do(action) => self.effects.push(*action),
                Act::Raise(event) => self.raised.push_back(Trigger::Event(*event)),
            }
        }
    }
}
