//! Where commands print, and how they end.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::ColorChoice;
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme};

use crate::app::watch::WatchError;
use crate::foundation::chat::ModelError;
use crate::foundation::config::ConfigErrors;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// All went well.
    Ok = 0,
    /// A check said no.
    CheckFailed = 1,
    /// The command line asks for something that cannot be done.
    Usage = 2,
    /// A config has problems.
    BadConfig = 3,
    /// The gate denied an effect.
    Denied = 4,
    /// A model failed.
    ModelFailed = 5,
    /// A bug in the program.
    Bug = 70,
    /// The user interrupted it; it says how to go on.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command stopped.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A config has problems.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// A model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The output could not be written; a closed pipe among them, which is no failure.
    #[error("the output could not be written: {0}")]
    Output(#[from] io::Error),
    /// The gate said no, or its receipts cannot be kept.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// Anything else, told in full.
    #[error("{message}")]
    Told {
        /// What went wrong and what to do next.
        message: String,
        /// How the program ends.
        exit: Exit,
    },
}

impl Failure {
    /// What the command line asks for cannot be done.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Told { message: message.into(), exit: Exit::Usage }
    }

    const fn exit(&self) -> Exit {
        match self {
            Self::Config(_) => Exit::BadConfig,
            Self::Model(ModelError::Denied { .. }) | Self::Watch(WatchError::Refused(_)) => Exit::Denied,
            Self::Model(_) => Exit::ModelFailed,
            Self::Output(_) | Self::Watch(WatchError::Busy(_)) => Exit::Usage,
            Self::Watch(_) => Exit::CheckFailed,
            Self::Told { exit, .. } => *exit,
        }
    }
}

/// Where a command prints: results to `out`, everything about how it went to `err`.
pub struct Terminal {
    /// The command's result. Write with `writeln!(terminal.out, …)?`: a closed pipe then ends the program quietly.
    pub out: Box<dyn Write>,
    /// Messages for the person, not for the next program.
    pub err: Box<dyn Write>,
    /// Whether `out` takes colours.
    pub color: bool,
    /// Columns to fill.
    pub width: usize,
    color_err: bool,
}

/// Columns where the terminal tells none.
const WIDTH: usize = 100;

impl Terminal {
    /// The process's own standard output and error.
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
            out: Box::new(BufWriter::new(io::stdout())),
            err: Box::new(io::stderr()),
            color: colored(is_terminal),
            width: columns.map_or(WIDTH, |(columns, _)| usize::from(columns).clamp(40, 120)),
            color_err: colored(io::stderr().is_terminal()),
        }
    }

    /// Shows every problem of a config, each with its underlined line.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn show_problems(&mut self, errors: &ConfigErrors) -> Result<(), Failure> {
        let mut text = String::new();
        for problem in errors.related().into_iter().flatten() {
            text.push_str(&render(problem, self.color_err, self.width));
            text.push('\n');
        }
        writeln!(self.err, "{text}{errors}")?;
        Ok(())
    }

    /// Writes out what is left and tells a failure.
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
        // What was printed so far belongs before the message; where neither can be written, the exit code remains.
        let _best_effort = self.out.flush();
        let _best_effort = match &failure {
            Failure::Config(errors) => self.show_problems(errors),
            failure => writeln!(self.err, "loom: {failure}").map_err(Failure::from),
        };
        failure.exit()
    }
}

/// One diagnostic as text.
pub(super) fn render(diagnostic: &dyn Diagnostic, color: bool, width: usize) -> String {
    let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme).with_width(width).with_links(false).with_context_lines(1);
    let mut text = String::new();
    // Writing into a string cannot fail; were it to, the plain message is still there.
    match handler.render_report(&mut text, diagnostic) {
        Ok(()) => text,
        Err(_) => diagnostic.to_string(),
    }
}

/// A path as a shell reads it.
pub(super) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = text.chars().all(|c| c.is_alphanumeric() || "/._-+".contains(c));
    if plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
