//! Layer 5: the program `loom`. Not public API.

pub mod serve;
pub mod session;
pub mod proxy;
pub mod cli;
