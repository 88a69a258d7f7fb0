//! `loom memory`: decisions, tasks and signals, and the commands that change them.

mod look;
mod mcp;
mod review;
mod write;

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Subcommand;
use serde::Serialize;

use super::output::OutputFormat;
use super::{Exit, Failure, Terminal};
use crate::foundation::base::{Clock, FixedClock, SystemClock};
use crate::foundation::gate::{Effect, Permit};
use crate::foundation::store::StoreError;
use crate::governance::memory::approval::{Approval, ApprovalError, ApprovalKey};
use crate::governance::memory::workspace::{MemoryError, Workspace};
use crate::simulation::authorizer::{Authorizer, AuthorizerError, approval_key, workspace_identity};

/// A governed memory: decisions, tasks and signals in plain Markdown, changed by proposals only
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A typical day:
  loom memory init                  create a workspace in this folder
  loom memory decide 'Use SQLite for the index' --why 'one file'
  loom memory capture --text 'We decided to use SQLite.' --source chat:12
  loom memory signal accept SIG-20260220-001 draft a proposal from it
  loom memory review                pending proposals and their changes
  loom memory apply P-20260220-001  show the change, ask for your yes, apply it
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
    Decide(review::Decide),
    Approve(review::Approve),
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
            Command::Decide(args) => args.run(terminal),
            Command::Approve(args) => args.run(terminal),
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
    format: OutputFormat,
    /// The time to use instead of the present, for replays and tests
    #[arg(long, hide = true, value_name = "TIMESTAMP")]
    now: Option<jiff::Timestamp>,
}

/// Requests the permit for an effect.
type RequestPermit<'a> = dyn Fn(&Effect) -> MemoryResult<Permit> + 'a;
/// The result of an operation on the memory.
type MemoryResult<T> = Result<T, MemoryError>;

impl Common {
    /// The workspace in `folder`, else in `--dir`, else in the current folder.
    fn open(&self, folder: Option<&PathBuf>) -> Result<Workspace, Failure> {
        Ok(Workspace::at(self.folder(folder), self.now.unwrap_or_else(|| SystemClock.now()))?)
    }

    /// Changes decisions, tasks, entities or the mode, with receipts in the memory's folder. `approve` finds the approval.
    fn with_approval<T>(
        &self,
        folder: Option<&PathBuf>,
        approve: impl Fn(&Approver<'_>, &Effect) -> MemoryResult<Approval>,
        operation: impl FnOnce(&Workspace, &RequestPermit<'_>) -> MemoryResult<T>,
    ) -> Result<T, Failure> {
        let workspace = self.open(folder)?;
        workspace.demand_workspace()?;
        let approver = self.approver(folder, &workspace)?;
        let permit = |gate: &Authorizer, effect: &Effect| -> MemoryResult<Permit> {
            Ok(gate.permit_memory_change(&approve(&approver, effect)?, effect)?)
        };
        self.with_gate(folder, Authorizer::for_memory_changes, permit, operation)
    }

    fn approver<'w>(&self, folder: Option<&PathBuf>, workspace: &'w Workspace) -> Result<Approver<'w>, Failure> {
        let key = approval_key()?;
        let identity = workspace_identity(self.folder(folder));
        Ok(Approver { key, workspace, identity, now: self.clock().now() })
    }

    /// Captures or proposes something; needs no approval.
    fn with_permit<T>(
        &self,
        folder: Option<&PathBuf>,
        operation: impl FnOnce(&Workspace, &RequestPermit<'_>) -> MemoryResult<T>,
    ) -> Result<T, Failure> {
        self.open(folder)?.mode()?;
        let permit = |gate: &Authorizer, effect: &Effect| Ok(gate.permit(effect)?);
        self.with_gate(folder, Authorizer::for_memory_proposals, permit, operation)
    }

    fn with_gate<T>(
        &self,
        folder: Option<&PathBuf>,
        open_gate: impl FnOnce(&'static str, &Path, Arc<dyn Clock>) -> Result<Authorizer, AuthorizerError>,
        permit: impl Fn(&Authorizer, &Effect) -> MemoryResult<Permit>,
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
            OutputFormat::Text => human(terminal)?,
            OutputFormat::Json => {
                let text = serde_json::to_string_pretty(value).map_err(std::io::Error::other)?;
                writeln!(terminal.out, "{text}")?;
            }
        }
        Ok(())
    }
}

/// Finds the approval of a change: a token, a policy, or a person at the terminal.
struct Approver<'w> {
    key: ApprovalKey,
    workspace: &'w Workspace,
    identity: String,
    now: jiff::Timestamp,
}

impl Approver<'_> {
    /// The approval by `token`, or else by a person who confirms `question` at the terminal.
    fn by_token_or_person(
        &self,
        token: Option<&str>,
        effect: &Effect,
        question: &str,
        command: &str,
    ) -> MemoryResult<Approval> {
        if let Some(token) = token {
            return Ok(self.key.check(token, &self.identity, effect, self.now)?);
        }
        if !is_interactive() {
            return Err(ApprovalError::Missing { what: question.to_owned(), command: command.to_owned() }.into());
        }
        self.confirm(question)
    }

    /// Asks the person at the terminal. Only the word `yes` is a confirmation.
    fn confirm(&self, question: &str) -> MemoryResult<Approval> {
        let mut answer = String::new();
        eprint!("{question}: type yes to approve: ");
        match std::io::stdin().read_line(&mut answer) {
            Ok(_) if answer.trim() == "yes" => Ok(self.key.confirmed_at_terminal()),
            _ => Err(ApprovalError::Declined.into()),
        }
    }

    fn token(&self, effect: &Effect, minutes: i64) -> String {
        self.key.token(&self.identity, effect, self.now, minutes)
    }
}

/// Whether a person can be asked: questions go to standard error, answers come from standard input.
fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
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
