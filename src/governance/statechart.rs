//! A pure statechart kernel, and the charts of a piece of work.
//!
//! A chart is text ([`Chart::load`] says what is wrong with it, line by line); [`start`] and [`step`] perform it and ask for
//! effects. The kernel is generic over the words of a chart ([`Vocabulary`]); [`hope`] brings the words of a piece of work,
//! from a need to a verified result. Knows no clock, no randomness and no files, and performs nothing itself.

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
    Act, Amendment, Chart, Condition, Counter, CounterId, Initial, Kind, State, StateId, Test, Transition,
    TransitionId, Trigger, Vocabulary, word,
};
pub use configuration::Configuration;
pub use set::{StateSet, States};
pub use step::{Denial, Microstep, Refusal, Step, start, step};
