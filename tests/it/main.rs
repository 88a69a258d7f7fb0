//! The one binary of integration tests: a module per subject.

mod commands;
mod configs;
mod memory;
