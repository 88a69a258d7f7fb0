//! Floor 5: the program `loom`.

pub mod watch;
pub mod serve;
pub mod session;
pub mod cli;
