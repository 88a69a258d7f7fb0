//! `loom schema`: the JSON Schema of the config format.

use std::io::Write;

use super::{Exit, Failure, Terminal};
use crate::simulation::persona;

/// Print the JSON Schema of the config format, for editors
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom schema > loom.schema.json

Editors with the YAML language server complete and check configs with the first line
  # yaml-language-server: $schema=loom.schema.json")]
pub(super) struct Args {}

impl Args {
    #[expect(clippy::unused_self, reason = "every command has the same form")]
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        writeln!(terminal.out, "{:#}", persona::json_schema())?;
        Ok(Exit::Ok)
    }
}
