//! Servers: a model over HTTP, and the governed memory over the Model Context Protocol.

mod gains;
mod token_json;

pub mod http;
pub mod mcp;

pub(in crate::app) use gains::Gains;
pub(in crate::app) use token_json::{text_of, text_of_first, token_json};
