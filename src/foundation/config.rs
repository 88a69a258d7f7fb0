//! YAML with source positions, parsed into typed records, with all problems collected.
//!
//! A text is parsed to a tree of [`Node`]s, each with its [`Span`]. A type that implements [`FromNode`] is built from a
//! node; [`config_record!`](crate::config_record) derives that for a mapping with known keys, so that one declaration is
//! the parser, the JSON Schema and the documentation. Parsing never stops at the first problem: a value that could not be
//! parsed is `None`, and [`Problems`] stores the reason and the position. Independent of what is configured.

mod nearest;
mod node;
mod problem;
mod read;
mod span;

pub use nearest::nearest;
pub use node::{MapEntry, MapKey, Node, NodeValue};
pub use problem::{ConfigErrors, Problem, Problems};
pub use read::{Choice, Field, Fields, FromNode, Located, OpenMap, Optional, Required};
pub use span::Span;
