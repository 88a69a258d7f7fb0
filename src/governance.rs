//! Layer 2: deciding what may happen. Every core here is pure: a step takes a state and an event and returns a state and
//! effects. Time and scores arrive as events.

pub mod regulator;
pub mod statechart;
pub mod memory;
pub mod mood;
