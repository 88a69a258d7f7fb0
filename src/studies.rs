//! Floor 4: what is done with many runs, and with what others recorded.

pub mod port;
pub mod sweep;
