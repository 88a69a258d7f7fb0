//! Serving others: the governed memory to assistants, over the Model Context Protocol.

pub mod mcp;
