//! `loom memory`: decisions, tasks and signals, and the commands that change them.

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
use crate::foundation::base::{Clock, FixedClock, SystemClock};
use crate::foundation::gate::{Effect, Permit, Refusal};
use crate::foundation::store::StoreError;
use crate::governance::memory::workspace::{MemoryError, Workspace};
use crate::simulation::authorizer::{Authorizer, AuthorizerError};

/// A governed memory: decisions, tasks and signals in plain Markdown, changed by proposals only
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A typical day:
  loom memory init                  create a workspace in this folder
  loom memory capture --text 'We decided to use SQLite.' --source chat:12
  loom memory signal accept SIG-20260220-001 draft a proposal from it
  loom memory review                pending proposals and their changes
  loom memory apply P-20260220-001  apply one atomically
  loom memory scan                  contradictions, drift, impact

Exit codes: 0 ok, 1 a check failed, 2 usage, 3 invalid mind-mem.json, 4 denied by the mode, the write rules or the gate.")]
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

/// Arguments common to all memory commands.
#[derive(Debug, clap::Args)]
struct Common {
    /// The workspace, if it is not given as the last argument
    #[arg(long, short = 'C', value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// The time to use instead of the present, for replays and tests
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

/// Requests the permit for an effect.
type RequestPermit<'a> = dyn Fn(&Effect) -> Result<Permit, Refusal> + 'a;
/// The result of an operation on the memory.
type MemoryResult<T> = Result<T, MemoryError>;

impl Common {
    /// The workspace in `folder`, else in `--dir`, else in the current folder.
    fn open(&self, folder: Option<&PathBuf>) -> Result<Workspace, Failure> {
        Ok(Workspace::at(self.folder(folder), self.now.unwrap_or_else(|| SystemClock.now()))?)
    }

    /// Changes decisions, tasks or entities. The command line counts as the user's approval; receipts are written to the
    /// memory's folder.
    fn with_approval<T>(
        &self,
        folder: Option<&PathBuf>,
        operation: impl FnOnce(&Workspace, &RequestPermit<'_>) -> MemoryResult<T>,
    ) -> Result<T, Failure> {
        self.open(folder)?.mode()?;
        self.with_approval_in_any_mode(folder, operation)
    }

    /// The same without requiring a valid mode, for setting one.
    fn with_approval_in_any_mode<T>(
        &self,
        folder: Option<&PathBuf>,
        operation: impl FnOnce(&Workspace, &RequestPermit<'_>) -> MemoryResult<T>,
    ) -> Result<T, Failure> {
        let approved =
            |gate: &Authorizer, effect: &Effect| gate.permit_approved("the user, by the command line", effect);
        self.with_gate(folder, Authorizer::for_memory_changes, approved, operation)
    }

    /// Captures or proposes something; needs no approval.
    fn with_permit<T>(
        &self,
        folder: Option<&PathBuf>,
        operation: impl FnOnce(&Workspace, &RequestPermit<'_>) -> MemoryResult<T>,
    ) -> Result<T, Failure> {
        self.open(folder)?.mode()?;
        self.with_gate(folder, Authorizer::for_memory_proposals, Authorizer::permit, operation)
    }

    fn with_gate<T>(
        &self,
        folder: Option<&PathBuf>,
        open_gate: impl FnOnce(&'static str, &Path, Arc<dyn Clock>) -> Result<Authorizer, AuthorizerError>,
        permit: impl Fn(&Authorizer, &Effect) -> Result<Permit, Refusal>,
        operation: impl FnOnce(&Workspace, &RequestPermit<'_>) -> MemoryResult<T>,
    ) -> Result<T, Failure> {
        let workspace = self.open(folder)?;
        workspace.demand_workspace()?;
        let gate = open_gate("memory", self.folder(folder), self.clock())?;
        let done = operation(&workspace, &|effect| permit(&gate, effect));
        gate.close()?;
        Ok(done?)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.now.map_or_else(|| Arc::new(SystemClock) as Arc<dyn Clock>, |now| Arc::new(FixedClock(now)))
    }

    fn folder<'a>(&'a self, folder: Option<&'a PathBuf>) -> &'a Path {
        folder.or(self.dir.as_ref()).map_or(Path::new("."), PathBuf::as_path)
    }

    /// Prints `value` as JSON, or calls `human`.
    fn print<T: Serialize + ?Sized>(
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
        Self::Message { message: error.to_string(), exit }
    }
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
