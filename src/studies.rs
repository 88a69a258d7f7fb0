//! Floor 4: what is done with many runs or many answers, and with what others recorded.

pub mod confidence;
pub mod port;
pub mod sweep;
