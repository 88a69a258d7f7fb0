//! Floor 1: the words all parts share, and what they stand on. Knows no model and no persona.

pub mod base;
pub mod text;
pub mod stats;
pub mod chat;
pub mod config;
pub mod plot;
pub mod gate;
pub mod store;
