//! hope
