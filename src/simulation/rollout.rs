//! Conversations between a persona and the other side: the runner, its monitors, its files.

pub mod monitors;
mod transcript;

pub use transcript::*;
