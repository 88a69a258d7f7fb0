//! A pure statechart interpreter after SCXML, and the chart of a piece of work.
//!
//! A chart is text; [`Chart::load`] parses and checks it and reports every problem with its position. [`start`] and
//! [`step`] execute it and return effects for the caller to perform. The interpreter is generic over a chart's events,
//! guards and actions ([`Vocabulary`]); [`hope`] defines those of a piece of work, from a need to a verified result. No
//! clock, randomness or files.

mod chart;
mod check;
mod configuration;
mod diagram;
mod entry;
pub mod hope;
mod line;
mod load;
mod names;
mod picture;
mod set;
mod step;
mod text;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod semantics;

pub use chart::{
    Amendment, Chart, Condition, ConditionTest, Counter, CounterId, Executable, InitialEntry, State, StateKind,
    Transition, TransitionId, Trigger, Vocabulary, word,
};
pub use configuration::Configuration;
pub use set::{StateId, StateSet, StateSetIter};
pub use step::{Denial, Microstep, Refusal, Step, start, step};
