//! `loom memory mcp`: the memory as MCP tools.

use std::path::PathBuf;

use super::Common;
use crate::app::cli::{Exit, Failure, Terminal};
use crate::app::serve::mcp::serve_memory;

/// Serve the memory to an assistant over the Model Context Protocol, on standard input and output
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The assistant starts the server. A typical entry in its settings:
  {\"mcpServers\": {\"memory\": {\"command\": \"loom\", \"args\": [\"memory\", \"mcp\", \"/path/to/workspace\"]}}}

Tools: status, search, show, review, scan, capture; propose and apply in the modes that allow them.")]
pub(super) struct Mcp {
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

impl Mcp {
    pub(super) fn run(&self, _: &mut Terminal) -> Result<Exit, Failure> {
        // Opened first so that a wrong folder is reported to the user rather than to the MCP client.
        self.common.open(self.folder.as_ref())?.status()?;
        let folder = self.folder.as_ref().or(self.common.dir.as_ref()).cloned().unwrap_or_else(|| ".".into());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(serve_memory(folder)).map_err(|error| Failure::usage(error.to_string()))?;
        // The thread that blocks on standard input cannot be stopped.
        runtime.shutdown_background();
        Ok(Exit::Ok)
    }
}
