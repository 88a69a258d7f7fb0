//! Floor 5: the program `loom`.

pub mod cli;
