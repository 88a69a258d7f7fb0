//! Governed memory: decisions in plain Markdown, changed only by proposals that are applied atomically.
//!
//! This is Mind Mem 1.0.3. Everything that reads, checks and plans is a pure function from the workspace's texts and
//! today's date; [`workspace`] alone touches the disk.

pub mod finding;
pub mod id;
pub mod parse;
pub mod nested;
pub mod signature;
pub mod contradiction;
pub mod proposal;
pub mod edit;
pub mod texts;
pub mod validate;
pub mod mode;
pub mod state;
pub mod authority;
pub mod scan_input;
pub mod candidate;
pub mod drift;
pub mod impact;
mod staging;
mod records;
pub mod plan;
pub mod approval;
pub mod scan;
pub mod capture;
pub mod search;
pub mod notes;
pub mod workspace;

#[cfg(test)]
mod spec_cases;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod formatter_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod scan_tests;
