//! A persona and its trajectory: from YAML to the prompt of every turn.
//!
//! [`load`] reads and checks a config; [`Assembler::plan`] gives the phase, the prescribed intensities and the prompt of one
//! turn; [`AdversaryScript`] holds the strategies of an adversary.

mod spec;
mod intensity;
mod pattern;
mod phases;
mod injection;
mod placeholders;
mod revelations;
mod first_person;
mod wording;
mod prohibitions;
mod prompt;
mod fiction;
mod sections;
mod compact;
mod assembler;
mod format;
mod lower;
mod load;
mod citations;
mod examples;
mod adversary;

pub use adversary::{AdversaryScript, MISQUOTE, QUOTE, Strategy, StrategyNeeds};
pub use assembler::{AssembleError, Assembler, TEMPLATE_VERSION, TurnInput, TurnPlan};
pub use citations::{check_decisions, quote_decisions};
pub use examples::{ExampleConfig, STARTER, adversaries, examples};
pub use injection::InjectionKind;
pub use load::{json_schema, load, load_with_text, parse};
pub use placeholders::{PLACEHOLDERS, PlaceholderError, Template};
pub use prompt::{DroppedItem, PromptBudget, PromptSection, PromptSections, ToldLevel, ToldState};
pub use sections::instruction_phrases;
pub use spec::*;

pub use crate::foundation::config::ConfigErrors;
