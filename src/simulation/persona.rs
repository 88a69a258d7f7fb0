//! A persona and its trajectory: from YAML to the prompt of every turn.

mod spec;
mod intensity;
mod pattern;
mod phases;
mod injection;

pub use injection::InjectionKind;
pub use spec::*;
