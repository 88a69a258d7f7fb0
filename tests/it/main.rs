//! The one integration-test binary: a module per subject.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod attacks;
mod charts;
mod commands;
mod confidence;
mod configs;
mod delta;
mod docs;
mod engine;
mod gates;
mod generate;
mod hosted;
mod hub;
mod layers;
mod mcp;
mod memory;
mod moods;
mod mutations;
mod permits;
mod port;
mod program;
mod prompts;
mod proxy;
mod reader;
mod receipts;
mod regulate;
mod report;
mod rollout;
mod run;
mod score;
mod scoring;
mod serve;
mod sessions;
mod sweep;
