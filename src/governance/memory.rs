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
pub mod validate;
pub mod texts;
pub mod mode;
pub mod state;
pub mod authority;
pub mod known;
pub mod drift;
pub mod impact;
mod stage;
mod records;
pub mod plan;
pub mod scan;
pub mod capture;
pub mod search;
pub mod workspace;

#[cfg(test)]
mod cases;
#[cfg(test)]
mod crashes;
#[cfg(test)]
mod model;
#[cfg(test)]
mod scans;
