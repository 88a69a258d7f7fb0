//! A persona and its trajectory: from YAML to the prompt of every turn.

mod spec;
mod format;
mod lower;
mod load;

pub use load::{json_schema, load, parse};
pub use spec::*;

pub use crate::foundation::config::ConfigErrors;
