//! Output streams and exit codes of commands.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::ColorChoice;
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme};

use super::safe_writer::SafeWriter;
use crate::foundation::base::limits::PROBLEMS_SHOWN_MAX;
use crate::foundation::chat::ModelError;
use crate::foundation::config::ConfigErrors;
pub(super) use crate::foundation::text::printable;
use crate::simulation::authorizer::AuthorizerError;

/// The exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Success.
    Ok = 0,
    /// A check failed.
    CheckFailed = 1,
    /// The command line is invalid, or a file or the output cannot be read or written.
    Usage = 2,
    /// A config is invalid.
    BadConfig = 3,
    /// The gate denied an effect.
    Denied = 4,
    /// A model failed.
    ModelFailed = 5,
    /// A bug in the program.
    Bug = 70,
    /// The user interrupted it; the output says how to resume.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error that ends a command.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A config is invalid.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// A model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The output cannot be written. A closed pipe is included, but not treated as a failure.
    #[error("the output could not be written: {0}")]
    Output(#[from] io::Error),
    /// The gate denied an effect, or its receipts cannot be written.
    #[error(transparent)]
    Gate(#[from] AuthorizerError),
    /// Any other error.
    #[error("{message}")]
    Message {
        /// What went wrong and what to do next.
        message: String,
        /// The exit code.
        exit: Exit,
    },
}

impl Failure {
    /// A usage error.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Message { message: message.into(), exit: Exit::Usage }
    }

    fn exit(&self) -> Exit {
        match self {
            Self::Config(_) => Exit::BadConfig,
            Self::Model(ModelError::Denied { .. }) | Self::Gate(AuthorizerError::Denied(_)) => Exit::Denied,
            Self::Model(_) => Exit::ModelFailed,
            Self::Output(_) | Self::Gate(AuthorizerError::Busy(_)) => Exit::Usage,
            Self::Gate(error) if error.is_io() => Exit::Usage,
            Self::Gate(_) => Exit::CheckFailed,
            Self::Message { exit, .. } => *exit,
        }
    }
}

/// The output streams of a command: results go to `out`, messages about progress and problems to `err`.
pub struct Terminal {
    /// The command's result. Write with `writeln!(terminal.out, …)?`: a closed pipe then ends the program without an error.
    pub out: Box<dyn Write>,
    /// Messages for the user.
    pub err: Box<dyn Write>,
    /// Whether to write colours to `out`.
    pub color: bool,
    /// The terminal's width, columns.
    pub width: usize,
    color_err: bool,
}

/// The width if there is no terminal.
const WIDTH: usize = 100;

impl Terminal {
    /// The process's standard output and error.
    pub(super) fn stdout(color: ColorChoice) -> Self {
        let colored = |is_terminal: bool| match color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => is_terminal && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()),
        };
        let is_terminal = io::stdout().is_terminal();
        let columns =
            if is_terminal || io::stderr().is_terminal() { ratatui::crossterm::terminal::size().ok() } else { None };
        Self {
            out: Box::new(SafeWriter::new(BufWriter::new(io::stdout()), colored(is_terminal))),
            err: Box::new(SafeWriter::new(io::stderr(), colored(io::stderr().is_terminal()))),
            color: colored(is_terminal),
            width: columns.map_or(WIDTH, |(columns, _)| usize::from(columns).clamp(40, 120)),
            color_err: colored(io::stderr().is_terminal()),
        }
    }

    /// Prints every problem of a config with its underlined line.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn show_problems(&mut self, errors: &ConfigErrors) -> Result<(), Failure> {
        let mut text = String::new();
        // Each is drawn with its lines, which are searched from the beginning of the file.
        let mut problems = errors.related().into_iter().flatten();
        for problem in problems.by_ref().take(PROBLEMS_SHOWN_MAX) {
            text.push_str(&render(problem, self.color_err, self.width));
            text.push('\n');
        }
        let more = problems.count();
        if more > 0 {
            text.push_str(&format!("… and {more} more\n\n"));
        }
        writeln!(self.err, "{text}{errors}")?;
        Ok(())
    }

    /// Flushes the output, prints a failure, and returns the exit code.
    pub(super) fn finish(mut self, outcome: Result<Exit, Failure>) -> Exit {
        let outcome = outcome.and_then(|exit| {
            self.out.flush()?;
            Ok(exit)
        });
        let failure = match outcome {
            Ok(exit) => return exit,
            Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => return Exit::Ok,
            Err(failure) => failure,
        };
        // The output belongs before the message. If neither can be written, only the exit code is left.
        let _best_effort = self.out.flush();
        let _best_effort = match &failure {
            Failure::Config(errors) => self.show_problems(errors),
            failure => writeln!(self.err, "loom: {failure}").map_err(Failure::from),
        };
        failure.exit()
    }
}

/// A diagnostic as text.
pub(super) fn render(diagnostic: &dyn Diagnostic, color: bool, width: usize) -> String {
    let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme).with_width(width).with_links(false).with_context_lines(1);
    let mut text = String::new();
    // Writing to a string does not fail; otherwise the plain message is used.
    match handler.render_report(&mut text, diagnostic) {
        Ok(()) => text,
        Err(_) => diagnostic.to_string(),
    }
}

/// A path quoted for a shell.
pub(super) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = text.chars().all(|c| c.is_alphanumeric() || "/._-+".contains(c));
    if plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
