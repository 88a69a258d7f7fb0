//! Floor 2: deciding what may happen. Every core here is pure: a step takes a state and an event and gives a state and
//! effects; time and scores come in as events.

pub mod regulator;
pub mod statechart;
pub mod memory;
pub mod mood;
