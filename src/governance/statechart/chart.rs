//! A chart as data: states and transitions with dense ids, in the order of the text, which is SCXML's document order.
//! Made by the loader alone. Knows nothing of how a chart is performed.

use serde::Serialize;

use super::set::StateSet;
use crate::foundation::base::Digest;
use crate::foundation::config::{Choice, Span};

/// The words that charts of one kind may use. A chart that names another word fails to load.
pub trait Vocabulary: Copy + Eq + std::fmt::Debug + 'static {
    /// What may happen.
    type Event: Choice + Eq + Ord + std::hash::Hash + std::fmt::Debug;
    /// What may be asked of the facts.
    type Guard: Choice + Eq + Ord + std::hash::Hash + std::fmt::Debug;
    /// What a chart may ask to be done.
    type Action: Choice + Eq + Ord + std::hash::Hash + std::fmt::Debug;
}

/// The name of a word as charts write it.
pub fn word<T: Choice + Eq>(value: T) -> &'static str {
    T::NAMES.iter().find(|(_, known)| *known == value).map_or("", |(name, _)| *name)
}

/// A state of one chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct StateId(pub(super) u8);

impl StateId {
    /// The chart itself, the root of its states. It is never active.
    pub const ROOT: Self = Self(0);
}

/// A transition of one chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct TransitionId(pub(super) u16);

/// A counter of one chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct CounterId(pub(super) u8);

/// What a state is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It has no states inside.
    Atomic,
    /// One of the states inside is active.
    Compound,
    /// All of the states inside are active.
    Parallel,
    /// Entering it finishes its parent.
    Final,
    /// Not a state but a way back into its parent: to the children that were active last, or to the leaves if deep.
    History {
        /// Back to the leaves.
        deep: bool,
    },
}

/// Something a chart asks for on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act<V: Vocabulary> {
    /// An effect for the caller to perform.
    Do(V::Action),
    /// An event for the chart itself, taken before any other from outside.
    Raise(V::Event),
}

/// What makes a transition possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trigger<V: Vocabulary> {
    /// This event, from outside or raised.
    Event(V::Event),
    /// This state has finished.
    Done(StateId),
}

/// What must hold for a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition<V: Vocabulary> {
    /// What is asked.
    pub test: Test<V>,
    /// The answer that is needed.
    pub wanted: bool,
}

/// What a condition asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test<V: Vocabulary> {
    /// A guard, answered from the facts.
    Guard(V::Guard),
    /// Whether a state is active.
    In(StateId),
}

/// A state.
#[derive(Debug, Clone)]
pub struct State<V: Vocabulary> {
    /// Its name among its siblings.
    pub name: String,
    /// Its name in the chart: those of its ancestors and its own, joined by dots.
    pub path: String,
    /// What it says in a diagram.
    pub label: Option<String>,
    /// What it is.
    pub kind: Kind,
    /// The state it stands in; none for the root.
    pub parent: Option<StateId>,
    /// The states right inside, history left out.
    pub children: StateSet,
    /// The ways back into it.
    pub histories: StateSet,
    /// Everything inside, at any depth.
    pub inside: StateSet,
    /// Done when it is entered.
    pub entry: Vec<Act<V>>,
    /// Done when it is left.
    pub exit: Vec<Act<V>>,
    /// Of a compound state, where entering it leads; of a history, where it leads before there was any.
    pub initial: Option<Initial<V>>,
    /// The transitions that leave from it, in order of precedence.
    pub transitions: Vec<TransitionId>,
    /// The amendment that brought it.
    pub amendment: Option<u16>,
    /// Where it stands in the text.
    pub(super) span: Span,
}

/// Where an entry leads by default.
#[derive(Debug, Clone)]
pub struct Initial<V: Vocabulary> {
    /// The states to enter.
    pub targets: Vec<StateId>,
    /// Done on the way.
    pub acts: Vec<Act<V>>,
}

/// A transition.
#[derive(Debug, Clone)]
pub struct Transition<V: Vocabulary> {
    /// The state it leaves from.
    pub source: StateId,
    /// What makes it possible, any of them; none for a transition that is taken as soon as its conditions hold.
    pub triggers: Vec<Trigger<V>>,
    /// What must hold, all of it.
    pub conditions: Vec<Condition<V>>,
    /// The counter that it spends one of; with none left it is not taken.
    pub spend: Option<CounterId>,
    /// The counters that it fills up again.
    pub refill: Vec<CounterId>,
    /// Done on the way.
    pub acts: Vec<Act<V>>,
    /// The states to enter; none for a transition that leaves no state.
    pub targets: Vec<StateId>,
    /// Whether it stays inside its source, where it can.
    pub internal: bool,
    /// What it says in a diagram.
    pub label: Option<String>,
    /// The amendment that brought it.
    pub amendment: Option<u16>,
    /// Where it stands in the text.
    pub(super) span: Span,
}

impl<V: Vocabulary> Transition<V> {
    /// Whether it can be refused although its trigger came.
    pub fn is_conditional(&self) -> bool {
        !self.conditions.is_empty() || self.spend.is_some()
    }
}

/// A counter: how often some transitions may be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// Its name.
    pub name: String,
    /// How many there are to spend.
    pub limit: u16,
    /// Where it stands in the text.
    pub(super) span: Span,
}

/// An amendment: what a group of states and transitions adds to the first layer, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amendment {
    /// Its number.
    pub number: u16,
    /// What it says.
    pub text: String,
    /// Where it stands in the text.
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
    /// The states without states inside.
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

    /// Every state but the root, in document order.
    pub fn states(&self) -> impl Iterator<Item = (StateId, &State<V>)> {
        self.states.iter().enumerate().skip(1).map(|(index, state)| (StateId(index as u8), state))
    }

    /// Every transition, in document order.
    pub fn transitions(&self) -> impl Iterator<Item = (TransitionId, &Transition<V>)> {
        self.transitions.iter().enumerate().map(|(index, transition)| (TransitionId(index as u16), transition))
    }

    /// Its counters, the highest rank first.
    pub fn counters(&self) -> &[Counter] {
        &self.counters
    }

    /// Its amendments, in the order of the text.
    pub fn amendments(&self) -> &[Amendment] {
        &self.amendments
    }

    /// A state of this chart.
    #[expect(clippy::indexing_slicing, reason = "ids are made by the loader, for the states that it made")]
    pub fn state(&self, id: StateId) -> &State<V> {
        &self.states[usize::from(id.0)]
    }

    /// A transition of this chart.
    #[expect(clippy::indexing_slicing, reason = "ids are made by the loader, for the transitions that it made")]
    pub fn transition(&self, id: TransitionId) -> &Transition<V> {
        &self.transitions[usize::from(id.0)]
    }

    /// A counter of this chart.
    #[expect(clippy::indexing_slicing, reason = "ids are made by the loader, for the counters that it made")]
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

    /// The states without states inside, among those inside `id` and itself.
    pub(super) fn leaves(&self, id: StateId) -> StateSet {
        self.state(id).inside.with(id).and(self.leaves)
    }
}
