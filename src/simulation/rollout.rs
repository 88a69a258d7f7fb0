//! Conversations between a persona and the other side: the runner, its monitors, its files.

mod transcript;

pub use transcript::*;
