//! A parsed chart: states and transitions with dense ids, in the order of the text (SCXML's document order). Only the
//! loader creates charts.

use serde::Serialize;

use super::set::{StateId, StateSet};
use crate::foundation::base::Digest;
use crate::foundation::config::{Choice, Span};

/// The events, guards and actions that charts of one kind may use. A chart that uses another name fails to load.
pub trait Vocabulary: Copy + Eq + std::fmt::Debug + 'static {
    /// Events.
    type Event: Choice + Eq + Ord + std::hash::Hash + std::fmt::Debug;
    /// Guards: conditions answered from the facts.
    type Guard: Choice + Eq + Ord + std::hash::Hash + std::fmt::Debug;
    /// Actions: effects that a chart requests.
    type Action: Choice + Eq + Ord + std::hash::Hash + std::fmt::Debug;
}

/// The name of an event, guard or action as charts write it.
pub fn word<T: Choice + Eq>(value: T) -> &'static str {
    T::NAMES.iter().find(|(_, known)| *known == value).map_or("", |(name, _)| *name)
}

/// A transition of one chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct TransitionId(pub(super) u16);

/// A counter of one chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct CounterId(pub(super) u8);

/// The kind of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateKind {
    /// No child states.
    Atomic,
    /// Exactly one child is active.
    Compound,
    /// All children are active.
    Parallel,
    /// Entering it completes its parent.
    Final,
    /// A history pseudo-state: entering it restores the parent's last active children, or leaves if deep.
    History {
        /// Restores leaves.
        deep: bool,
    },
}

/// Executable content of a transition, entry or exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executable<V: Vocabulary> {
    /// Requests an effect from the caller.
    Do(V::Action),
    /// Raises an internal event, processed before further external events.
    Raise(V::Event),
}

/// What triggers a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trigger<V: Vocabulary> {
    /// This event, external or raised.
    Event(V::Event),
    /// Completion of this state.
    Done(StateId),
}

/// A condition of a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition<V: Vocabulary> {
    /// What is tested.
    pub test: ConditionTest<V>,
    /// The required answer.
    pub wanted: bool,
}

/// What a condition tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionTest<V: Vocabulary> {
    /// A guard.
    Guard(V::Guard),
    /// Whether a state is active.
    In(StateId),
}

/// A state.
#[derive(Debug, Clone)]
pub struct State<V: Vocabulary> {
    /// Its name among its siblings.
    pub name: String,
    /// Its full name: the names of its ancestors and its own, joined by dots.
    pub path: String,
    /// Its label in diagrams.
    pub label: Option<String>,
    /// Its kind.
    pub kind: StateKind,
    /// The parent state; none for the root.
    pub parent: Option<StateId>,
    /// Child states, without histories.
    pub children: StateSet,
    /// Its histories.
    pub histories: StateSet,
    /// All descendants.
    pub inside: StateSet,
    /// Executed on entry.
    pub entry: Vec<Executable<V>>,
    /// Executed on exit.
    pub exit: Vec<Executable<V>>,
    /// The default entry of a compound state, or the default of a history that remembers nothing.
    pub initial: Option<InitialEntry<V>>,
    /// Its outgoing transitions, in order of precedence.
    pub transitions: Vec<TransitionId>,
    /// The amendment that added it.
    pub amendment: Option<u16>,
    /// Its position in the text.
    pub(super) span: Span,
}

/// A default entry.
#[derive(Debug, Clone)]
pub struct InitialEntry<V: Vocabulary> {
    /// The states to enter.
    pub targets: Vec<StateId>,
    /// Executed before entering.
    pub acts: Vec<Executable<V>>,
}

/// A transition.
#[derive(Debug, Clone)]
pub struct Transition<V: Vocabulary> {
    /// Its source state.
    pub source: StateId,
    /// Its triggers, any of which suffices; empty for an eventless transition.
    pub triggers: Vec<Trigger<V>>,
    /// Its conditions, all of which must hold.
    pub conditions: Vec<Condition<V>>,
    /// A counter that it decrements; at zero the transition is disabled.
    pub spend: Option<CounterId>,
    /// Counters that it resets to their limits.
    pub refill: Vec<CounterId>,
    /// Executed between exits and entries.
    pub acts: Vec<Executable<V>>,
    /// The states to enter; empty for a targetless transition, which exits no state.
    pub targets: Vec<StateId>,
    /// Whether it is internal (does not exit its source).
    pub internal: bool,
    /// Its label in diagrams.
    pub label: Option<String>,
    /// The amendment that added it.
    pub amendment: Option<u16>,
    /// Its position in the text.
    pub(super) span: Span,
}

impl<V: Vocabulary> Transition<V> {
    /// Whether it has conditions or a counter.
    pub fn is_conditional(&self) -> bool {
        !self.conditions.is_empty() || self.spend.is_some()
    }
}

/// A counter that limits how often some transitions are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// Its name.
    pub name: String,
    /// Its initial value.
    pub limit: u16,
    /// Its position in the text.
    pub(super) span: Span,
}

/// An amendment: a numbered reason for states and transitions added to the original chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amendment {
    /// Its number.
    pub number: u16,
    /// Its text.
    pub text: String,
    /// Its position in the text.
    pub(super) span: Span,
}

/// A statechart.
#[derive(Debug, Clone)]
pub struct Chart<V: Vocabulary> {
    pub(super) name: String,
    pub(super) digest: Digest,
    pub(super) states: Vec<State<V>>,
    pub(super) transitions: Vec<Transition<V>>,
    pub(super) counters: Vec<Counter>,
    pub(super) amendments: Vec<Amendment>,
    /// All leaf states.
    pub(super) leaves: StateSet,
}

impl<V: Vocabulary> Chart<V> {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The digest of its text.
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Every state except the root, in document order.
    pub fn states(&self) -> impl Iterator<Item = (StateId, &State<V>)> {
        self.states.iter().enumerate().skip(1).map(|(index, state)| (StateId(index as u8), state))
    }

    /// Every transition, in document order.
    pub fn transitions(&self) -> impl Iterator<Item = (TransitionId, &Transition<V>)> {
        self.transitions.iter().enumerate().map(|(index, transition)| (TransitionId(index as u16), transition))
    }

    /// Its counters, in descending rank.
    pub fn counters(&self) -> &[Counter] {
        &self.counters
    }

    /// Its amendments, in the order of the text.
    pub fn amendments(&self) -> &[Amendment] {
        &self.amendments
    }

    /// A state of this chart.
    #[expect(clippy::indexing_slicing, reason = "ids are created by the loader for existing states")]
    pub fn state(&self, id: StateId) -> &State<V> {
        &self.states[usize::from(id.0)]
    }

    /// A transition of this chart.
    #[expect(clippy::indexing_slicing, reason = "ids are created by the loader for existing transitions")]
    pub fn transition(&self, id: TransitionId) -> &Transition<V> {
        &self.transitions[usize::from(id.0)]
    }

    /// A counter of this chart.
    #[expect(clippy::indexing_slicing, reason = "ids are created by the loader for existing counters")]
    pub fn counter(&self, id: CounterId) -> &Counter {
        &self.counters[usize::from(id.0)]
    }

    /// The state with this path.
    pub fn find(&self, path: &str) -> Option<StateId> {
        self.states().find(|(_, state)| state.path == path).map(|(id, _)| id)
    }

    /// The ancestors of a state, nearest first, the root last.
    pub(super) fn ancestors(&self, id: StateId) -> impl Iterator<Item = StateId> {
        std::iter::successors(self.state(id).parent, |parent| self.state(*parent).parent)
    }

    /// The leaves among `id` and its descendants.
    pub(super) fn leaves(&self, id: StateId) -> StateSet {
        self.state(id).inside.with(id).and(self.leaves)
    }
}
