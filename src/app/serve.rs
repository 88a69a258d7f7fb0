//! Serving others: a model over HTTP, and the governed memory to assistants over the Model Context Protocol.

mod gains;
mod reading;

pub mod http;
pub mod mcp;

pub(in crate::app) use gains::Gains;
pub(in crate::app) use reading::{reading, text_of};
