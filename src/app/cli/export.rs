//! `loom export`: transcripts in the formats of other tools.

use std::io::Write;
use std::path::PathBuf;

use clap::ValueEnum;

use super::report::{failure, write_file_inside};
use super::{Exit, Failure, Terminal};
use crate::simulation::report::{ExportFormat, Report, export};

/// Export transcripts for other tools
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom export results/anna --to inspect --output logs
  loom export results/anna --to messages  one line per rollout, one file per side
  loom export results/anna --to sharegpt

In `messages_persona.jsonl` the persona is the assistant, in `messages_interlocutor.jsonl` the other side is. Instructions \
after the first turn are left out; the transcripts contain them.")]
pub(super) struct Args {
    /// Results folder of `loom run`, or one of its transcripts
    #[arg(value_name = "RESULTS")]
    path: PathBuf,
    /// Export format
    #[arg(long, value_name = "FORMAT", value_enum)]
    to: Target,
    /// Output folder [default: `export` inside the results]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Target {
    /// A log for Inspect's viewer and data frames
    Inspect,
    /// OpenAI-style messages, JSONL
    Messages,
    /// ShareGPT conversations, JSONL
    Sharegpt,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let (report, conversations) = Report::with_conversations(&self.path).map_err(|error| failure(&error))?;
        let format = match self.to {
            Target::Inspect => ExportFormat::Inspect,
            Target::Messages => ExportFormat::Messages,
            Target::Sharegpt => ExportFormat::ShareGpt,
        };
        let folder = self.output.clone().unwrap_or_else(|| {
            let results = if self.path.is_dir() { self.path.as_path() } else { super::report::parent(&self.path) };
            results.join("export")
        });
        std::fs::create_dir_all(&folder)
            .map_err(|error| Failure::usage(format!("{} cannot be created: {error}", folder.display())))?;
        for (name, text) in export(&report, &conversations, format).map_err(|error| failure(&error))? {
            let path = folder.join(name);
            write_file_inside(&path, &text)?;
            writeln!(terminal.out, "{}", path.display())?;
        }
        Ok(Exit::Ok)
    }
}
