//! Layer 3: personas, rollouts, scores and reports.

pub mod authorizer;
pub mod persona;
pub mod resampling;
pub mod rollout;
pub mod judge;
pub mod report;
