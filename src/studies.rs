//! Layer 4: studies over many runs or answers, and imports of other tools' formats.

pub mod confidence;
pub mod delta;
pub mod port;
pub mod sweep;
