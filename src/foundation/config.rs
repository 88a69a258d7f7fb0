//! YAML with source positions, read into typed records, with every problem collected on the way.
//!
//! A text becomes a tree of [`Node`]s, each with its [`Span`]. A type that implements [`Read`] takes its shape from a
//! node; [`config_record!`](crate::config_record) writes that for a mapping with known keys, so that one
//! declaration is the reader, the JSON Schema and its documentation. Reading never stops at the first problem: what could
//! not be read is `None`, and [`Problems`] remembers why and where. Knows nothing of what is configured.

mod nearest;
mod node;
mod problem;
mod read;

pub use nearest::nearest;
pub use node::{Entry, Key, Node, Span, Value};
pub use problem::{ConfigErrors, Problem, Problems};
pub use read::{At, Choice, Entries, Field, Fields, Maybe, Read, Required};
