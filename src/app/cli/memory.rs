//! `loom memory`: what has been decided, and the ways to change it.

mod look;
mod mcp;
mod review;
mod write;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Subcommand, ValueEnum};
use serde::Serialize;

use super::{Exit, Failure, Terminal};
use crate::app::watch::{Watch, WatchError};
use crate::foundation::base::{Clock, FixedClock, SystemClock};
use crate::foundation::gate::{Effect, Permit, Refusal};
use crate::foundation::store::StoreError;
use crate::governance::memory::workspace::{MemoryError, Workspace};

/// A governed memory: decisions, tasks and signals in plain Markdown, changed by proposals only
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A day with it:
  loom memory init                  make a workspace in this folder
  loom memory capture --text 'We decided to use SQLite.' --source chat:12
  loom memory signal accept SIG-20260220-001 draft a proposal from it
  loom memory review                what waits, and what it changes
  loom memory apply P-20260220-001  all of it or nothing
  loom memory scan                  contradictions, drift, impact

Exit codes: 0 ok, 1 a check said no, 2 usage, 3 bad mind-mem.json, 4 the mode or the authority denies it.")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(write::Init),
    Validate(look::Validate),
    Scan(write::Scan),
    Show(look::Show),
    Search(look::Search),
    Status(look::Status),
    Capture(write::Capture),
    Log(write::Log),
    Propose(review::Propose),
    Review(review::Review),
    Signal(review::Signal),
    Apply(review::Apply),
    Reject(review::Reject),
    Defer(review::Defer),
    Rollback(review::Rollback),
    Mode(review::Mode),
    Export(look::Export),
    Import(write::Import),
    Mcp(mcp::Mcp),
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        match &self.command {
            Command::Init(args) => args.run(terminal),
            Command::Validate(args) => args.run(terminal),
            Command::Scan(args) => args.run(terminal),
            Command::Show(args) => args.run(terminal),
            Command::Search(args) => args.run(terminal),
            Command::Status(args) => args.run(terminal),
            Command::Capture(args) => args.run(terminal),
            Command::Log(args) => args.run(terminal),
            Command::Propose(args) => args.run(terminal),
            Command::Review(args) => args.run(terminal),
            Command::Signal(args) => args.run(terminal),
            Command::Apply(args) => args.run(terminal),
            Command::Reject(args) => args.run(terminal),
            Command::Defer(args) => args.run(terminal),
            Command::Rollback(args) => args.run(terminal),
            Command::Mode(args) => args.run(terminal),
            Command::Export(args) => args.run(terminal),
            Command::Import(args) => args.run(terminal),
            Command::Mcp(args) => args.run(terminal),
        }
    }
}

/// What every command of the memory takes after its own arguments.
#[derive(Debug, clap::Args)]
struct Common {
    /// The workspace, where it does not stand as the last argument
    #[arg(long, short = 'C', value_name = "DIR")]
    dir: Option<PathBuf>,
    /// How to tell the outcome
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// The time to act at, for replays and tests
    #[arg(long, hide = true, value_name = "TIMESTAMP")]
    now: Option<jiff::Timestamp>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// Asks for the permit of an effect.
type Ask<'a> = dyn Fn(&Effect) -> Result<Permit, Refusal> + 'a;
/// What came of a deed in the memory.
type Done<T> = Result<T, MemoryError>;

impl Common {
    /// The workspace in `folder`, else the one that `--dir` names, else the current folder.
    fn open(&self, folder: Option<&PathBuf>) -> Result<Workspace, Failure> {
        Ok(Workspace::at(self.folder(folder), self.now.unwrap_or_else(|| SystemClock.now()))?)
    }

    /// Changes what is true in the memory, under a permit that this very command line is the word for, with receipts of it
    /// in the memory's own folder.
    fn applying<T>(
        &self,
        folder: Option<&PathBuf>,
        deed: impl FnOnce(&Workspace, &Ask<'_>) -> Done<T>,
    ) -> Result<T, Failure> {
        self.open(folder)?.mode()?;
        self.moving(folder, deed)
    }

    /// The same where the state names no mode: all that is possible then is to set one.
    fn moving<T>(
        &self,
        folder: Option<&PathBuf>,
        deed: impl FnOnce(&Workspace, &Ask<'_>) -> Done<T>,
    ) -> Result<T, Failure> {
        let word = |watch: &Watch, effect: &Effect| watch.ask_by("the user, by the command line", effect);
        self.watched(folder, Watch::applying, word, deed)
    }

    /// Notes something in the memory, or proposes it, in the same way; that takes nobody's word.
    fn proposing<T>(
        &self,
        folder: Option<&PathBuf>,
        deed: impl FnOnce(&Workspace, &Ask<'_>) -> Done<T>,
    ) -> Result<T, Failure> {
        self.open(folder)?.mode()?;
        self.watched(folder, Watch::proposing, Watch::ask, deed)
    }

    fn watched<T>(
        &self,
        folder: Option<&PathBuf>,
        watch: impl FnOnce(&'static str, &Path, Arc<dyn Clock>) -> Result<Watch, WatchError>,
        ask: impl Fn(&Watch, &Effect) -> Result<Permit, Refusal>,
        deed: impl FnOnce(&Workspace, &Ask<'_>) -> Done<T>,
    ) -> Result<T, Failure> {
        let workspace = self.open(folder)?;
        workspace.demand_workspace()?;
        let watch = watch("memory", self.folder(folder), self.clock())?;
        let done = deed(&workspace, &|effect| ask(&watch, effect));
        watch.close()?;
        Ok(done?)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.now.map_or_else(|| Arc::new(SystemClock) as Arc<dyn Clock>, |now| Arc::new(FixedClock(now)))
    }

    fn folder<'a>(&'a self, folder: Option<&'a PathBuf>) -> &'a Path {
        folder.or(self.dir.as_ref()).map_or(Path::new("."), PathBuf::as_path)
    }

    /// Prints `value` as JSON, or else what `human` says.
    fn tell<T: Serialize + ?Sized>(
        &self,
        terminal: &mut Terminal,
        value: &T,
        human: impl FnOnce(&mut Terminal) -> std::io::Result<()>,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Text => human(terminal)?,
            Format::Json => {
                let text = serde_json::to_string_pretty(value).map_err(std::io::Error::other)?;
                writeln!(terminal.out, "{text}")?;
            }
        }
        Ok(())
    }
}

impl From<MemoryError> for Failure {
    fn from(error: MemoryError) -> Self {
        let exit = match &error {
            error if error.is_denial() => Exit::Denied,
            MemoryError::Config(_) => Exit::BadConfig,
            MemoryError::NoWorkspace(_) | MemoryError::Store(StoreError::Io { .. }) => Exit::Usage,
            _ => Exit::CheckFailed,
        };
        Self::Told { message: error.to_string(), exit }
    }
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
