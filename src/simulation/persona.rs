//! A persona and its trajectory: from YAML to the prompt of every turn.

mod spec;
mod format;
mod lower;
mod load;
mod examples;
mod adversary;

pub use adversary::{AdversaryScript, Strategy};
pub use examples::{Example, STARTER, adversaries, examples};
pub use load::{json_schema, load, parse};
pub use spec::*;

pub use crate::foundation::config::ConfigErrors;
