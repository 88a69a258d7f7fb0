//! A persona and its trajectory: from YAML to the prompt of every turn.

mod spec;
mod intensity;
mod pattern;
mod phases;
mod injection;
mod placeholders;
mod revelations;
mod first_person;
mod assembler;
mod sections;
mod compact;
mod format;
mod lower;
mod load;
mod examples;
mod adversary;

pub use adversary::{AdversaryScript, MISQUOTE, Needs, QUOTE, Strategy};
pub use assembler::{AssembleError, Assembler, PromptBudget, Sections, Situation, TEMPLATE_VERSION, TurnPlan};
pub use compact::{Dropped, Part};
pub use examples::{Example, STARTER, adversaries, examples};
pub use injection::InjectionKind;
pub use load::{json_schema, load, parse};
pub use placeholders::{PLACEHOLDERS, PlaceholderError, Template};
pub use spec::*;

pub use crate::foundation::config::ConfigErrors;
