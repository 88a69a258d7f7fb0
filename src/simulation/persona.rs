//! A persona and its trajectory: from YAML to the prompt of every turn.

mod spec;

pub use spec::*;
