//! Layer 5: the program `loom`. Not public API.

pub mod command_gate;
pub mod serve;
pub mod session;
pub mod cli;
