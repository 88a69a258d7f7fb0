//! `loom report`: writes the report on a finished or running run.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::{Exit, Failure, Terminal};
use crate::foundation::store::{write_atomic, write_inside};
use crate::simulation::report::{Report, ReportError};

/// Write the report on a results folder
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom report results/anna                     all formats, into the folder
  loom report results/anna --output anna.md    anna.md and curves.svg
  loom report results/anna --output anna.html  one self-contained page
  loom report results/anna --output -          print the report
  loom report results/anna --format json --output - | jq .scores

For a running or interrupted run, the report covers the completed turns.")]
pub(super) struct Args {
    /// Results folder of `loom run`, or one of its transcripts
    #[arg(value_name = "DIR")]
    path: PathBuf,
    /// Write only this file; `-` for standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Format of --output [default: by its extension .md, .json or .html]
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
            Some("pdf") => Err(Failure::usage("PDF is not supported; write HTML and print it from a browser")),
            _ => Err(Failure::usage(format!("{} has no known extension; use --format", path.display()))),
        }
    }
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let (report, conversations) = Report::with_conversations(&self.path).map_err(|error| failure(&error))?;
        let failed = |error: ReportError| failure(&error);
        match &self.output {
            None => {
                // Next to the transcripts, also if one of them was named.
                let folder = if self.path.is_dir() { self.path.as_path() } else { parent(&self.path) };
                let path = report.write_to(folder, &conversations).map_err(failed)?;
                super::run::verdict(terminal, &report)?;
                writeln!(terminal.out, "{}\n{}", path.display(), path.with_extension("html").display())?;
            }
            Some(path) if path == Path::new("-") => match self.format {
                Some(Format::Json) => write!(terminal.out, "{}", report.json().map_err(failed)?)?,
                Some(Format::Html) => write!(terminal.out, "{}", report.html(&conversations).map_err(failed)?)?,
                _ => write!(terminal.out, "{}", report.markdown(None).map_err(failed)?)?,
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

/// Report errors are usage errors: the command line names the wrong path.
pub(super) fn failure(error: &ReportError) -> Failure {
    Failure::usage(error.to_string())
}

/// Writes a file named on the command line.
pub(super) fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    write_atomic(path, text.as_bytes()).map_err(|error| unwritten(path, &error))
}

/// Writes a file of a folder named on the command line.
pub(super) fn write_file_inside(path: &Path, text: &str) -> Result<(), Failure> {
    write_inside(path, text.as_bytes()).map_err(|error| unwritten(path, &error))
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("{} cannot be written: {error}", path.display()))
}
