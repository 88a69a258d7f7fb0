//! `loom completions`: a shell's completion script.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use super::{Cli, Exit, Failure, Terminal};

/// Print the completion script of a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom completions bash > ~/.local/share/bash-completion/completions/loom
  loom completions zsh  > ~/.zfunc/_loom
  loom completions fish > ~/.config/fish/completions/loom.fish")]
pub(super) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        // clap_complete panics if its writer fails, so it writes into memory.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "loom", &mut script);
        terminal.out.write_all(&script)?;
        Ok(Exit::Ok)
    }
}
