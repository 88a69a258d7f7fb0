//! `loom report`: the report on a results folder, finished or under way.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::{Exit, Failure, Terminal};
use crate::simulation::report::{Report, ReportError};

/// Report on a results folder
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom report results/anna                     all forms, into the folder
  loom report results/anna --output anna.md    anna.md, and curves.svg beside it
  loom report results/anna --output anna.html  one page that needs nothing else
  loom report results/anna --output -          prints the report
  loom report results/anna --format json --output - | jq .scores

A run that is still under way, or was interrupted, is reported as far as it is.")]
pub(super) struct Args {
    /// What `loom run` wrote, or one of its transcripts
    #[arg(value_name = "DIR")]
    path: PathBuf,
    /// Write only this file; `-` prints it
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The form of --output; by its ending (.md, .json, .html) if not given
    #[arg(long, value_name = "FORMAT", value_enum, requires = "output")]
    format: Option<Format>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Markdown
    Md,
    /// JSON
    Json,
    /// One HTML page
    Html,
}

impl Format {
    fn of(path: &Path) -> Result<Self, Failure> {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        match ending.as_deref() {
            Some("md" | "markdown" | "txt") => Ok(Self::Md),
            Some("json") => Ok(Self::Json),
            Some("html" | "htm") => Ok(Self::Html),
            // A browser prints the page to PDF; no other form is written under its name.
            Some("pdf") => Err(Failure::usage("no PDF is written; write HTML and print that from a browser")),
            _ => Err(Failure::usage(format!("{} does not say its form; name it with --format", path.display()))),
        }
    }
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let (report, conversations) = Report::with_conversations(&self.path).map_err(|error| failure(&error))?;
        let failed = |error: ReportError| failure(&error);
        match &self.output {
            None => {
                // Beside the transcripts, also when one of them was named.
                let folder = if self.path.is_dir() { self.path.as_path() } else { parent(&self.path) };
                let path = report.write_to(folder, &conversations).map_err(failed)?;
                writeln!(terminal.out, "{}\n{}", path.display(), path.with_extension("html").display())?;
            }
            Some(path) if path == Path::new("-") => match self.format {
                Some(Format::Json) => write!(terminal.out, "{}", report.json().map_err(failed)?)?,
                Some(Format::Html) => write!(terminal.out, "{}", report.html(&conversations).map_err(failed)?)?,
                _ => write!(terminal.out, "{}", report.markdown(None))?,
            },
            Some(path) => {
                match self.format.map_or_else(|| Format::of(path), Ok)? {
                    Format::Json => report.write_json(path).map_err(failed)?,
                    Format::Html => report.write_html(path, &conversations).map_err(failed)?,
                    Format::Md => report.write_markdown(path).map_err(failed)?,
                }
                writeln!(terminal.out, "{}", path.display())?;
            }
        }
        Ok(Exit::Ok)
    }
}

pub(super) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What cannot be reported on is a matter of what the command line names.
pub(super) fn failure(error: &ReportError) -> Failure {
    Failure::usage(error.to_string())
}

/// Writes what a command was asked to write.
pub(super) fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::usage(format!("{} cannot be written: {error}", path.display())))
}
