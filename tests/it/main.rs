//! The one binary of integration tests: a module per subject.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic where a test must fail")]

mod commands;
mod configs;
