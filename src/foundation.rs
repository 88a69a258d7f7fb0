//! Layer 1: types and utilities that every other layer uses. Independent of any model and persona.

pub mod base;
pub mod text;
pub mod stats;
pub mod gate;
pub mod chat;
pub mod config;
pub mod plot;
pub mod store;
