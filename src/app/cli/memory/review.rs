//! The commands for proposals and the mode: `propose`, `review`, `signal`, `apply`, `reject`, `defer`, `rollback`, `mode`.

use std::io::Write as _;
use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::json;

use super::{Common, plural};
use crate::app::cli::input::read_file;
use crate::app::cli::{Exit, Failure, Terminal};
use crate::governance::memory::mode;
use crate::governance::memory::proposal::{ProposalOp, ProposalOpKind, RISKS};
use crate::governance::memory::workspace::{ApplyOutcome, ProposalRequest, Workspace};

/// Stage a proposal with one operation
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom memory propose set_status --target T-20260220-001 --status done \\
       --evidence 'shipped' --source chat:3
  loom memory propose append_block --patch decision.md \\
       --evidence 'agreed in the meeting' --source chat:3
  loom memory propose supersede_decision --target D-20260220-001 \\
       --patch newer.md --evidence … --source …")]
pub(super) struct Propose {
    /// One of: `append_block`, `insert_after_block`, `update_field`, `append_list_item`, `replace_range`, `set_status`,
    /// `supersede_decision`
    #[arg(value_parser = operation)]
    op: ProposalOpKind,
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    /// The target block; for `append_block` by default the new block's id
    #[arg(long, default_value = "", hide_default_value = true)]
    target: String,
    /// The file; by default the one that contains the target, or the one for its kind
    #[arg(long, default_value = "", hide_default_value = true)]
    file: String,
    /// `set_status`: the new status
    #[arg(long, default_value = "", hide_default_value = true)]
    status: String,
    /// `set_status`: a line for History
    #[arg(long, default_value = "", hide_default_value = true)]
    history: String,
    /// `update_field`, `append_list_item`: the field
    #[arg(long, default_value = "", hide_default_value = true)]
    field: String,
    /// `update_field`, `append_list_item`: the value or the item
    #[arg(long, default_value = "", hide_default_value = true)]
    value: String,
    /// `replace_range`: a substring of the first line to replace
    #[arg(long, default_value = "", hide_default_value = true, requires = "end")]
    start: String,
    /// `replace_range`: a substring of the line after the last
    #[arg(long, default_value = "", hide_default_value = true, requires = "start")]
    end: String,
    /// A file with the new block, or the new lines
    #[arg(long, value_name = "FILE")]
    patch: Option<PathBuf>,
    /// The risk of the change
    #[arg(long, default_value = "medium", value_parser = RISKS)]
    risk: String,
    /// Evidence for the change; can be repeated
    #[arg(long, required = true)]
    evidence: Vec<String>,
    /// The source of the change; can be repeated
    #[arg(long, required = true)]
    source: Vec<String>,
    #[command(flatten)]
    common: Common,
}

fn operation(name: &str) -> Result<ProposalOpKind, String> {
    let known = || ProposalOpKind::ALL.map(|(_, name)| name).join(", ");
    ProposalOpKind::ALL
        .iter()
        .find(|(_, known)| *known == name)
        .map(|(kind, _)| *kind)
        .ok_or_else(|| format!("use one of: {}", known()))
}

impl Propose {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let patch = match &self.patch {
            None => String::new(),
            Some(path) => read_file(path)?,
        };
        let op = ProposalOp {
            kind: Some(self.op),
            file: self.file.clone(),
            target: self.target.clone(),
            field: self.field.clone(),
            value: self.value.clone(),
            status: self.status.clone(),
            history: self.history.clone(),
            range: (!self.start.is_empty()).then(|| (self.start.clone(), self.end.clone())),
            patch: patch.replace("\r\n", "\n").trim_start_matches('\u{feff}').trim_end().to_owned(),
        };
        let request = ProposalRequest {
            ops: vec![op],
            risk: self.risk.clone(),
            evidence: self.evidence.clone(),
            sources: self.source.clone(),
        };
        let id = self.common.with_permit(self.folder.as_ref(), |workspace, ask| {
            workspace.propose(ask(&Workspace::propose_effect(&request))?, request)
        })?;
        print_staged(&self.common, terminal, &id)
    }
}

fn print_staged(common: &Common, terminal: &mut Terminal, id: &str) -> Result<Exit, Failure> {
    common.print(terminal, &json!({"proposal": id}), |terminal| {
        writeln!(terminal.out, "staged {id}: show it with `loom memory review`, apply it with `loom memory apply {id}`")
    })?;
    Ok(Exit::Ok)
}

/// Show pending proposals and the changes they would make
#[derive(Debug, clap::Args)]
pub(super) struct Review {
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    /// Also those that are no longer pending
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    common: Common,
}

impl Review {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let reviews = self.common.open(self.folder.as_ref())?.review(self.all)?;
        self.common.print(terminal, &reviews, |terminal| {
            let out = &mut terminal.out;
            for review in &reviews {
                writeln!(out, "{} {} ({} risk): {}", review.id, review.status, review.risk, review.ops.join(", "))?;
                for line in &review.evidence {
                    writeln!(out, "  evidence: {line}")?;
                }
                for line in review.diff.lines() {
                    writeln!(out, "  {line}")?;
                }
                for line in &review.against {
                    writeln!(out, "  blocked by: {line}")?;
                }
                writeln!(out)?;
            }
            writeln!(out, "{}", plural(reviews.len(), "proposal"))
        })?;
        Ok(Exit::Ok)
    }
}

/// Accept a captured signal (drafts a proposal) or reject it
#[derive(Debug, clap::Args)]
pub(super) struct Signal {
    /// Accept or reject
    #[arg(value_enum)]
    action: SignalAction,
    /// The signal's id
    id: String,
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SignalAction {
    Accept,
    Reject,
}

impl Signal {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let folder = self.folder.as_ref();
        match self.action {
            SignalAction::Accept => {
                let id = self.common.with_permit(folder, |workspace, ask| {
                    workspace.accept_signal(ask(&Workspace::accept_effect(&self.id))?, &self.id)
                })?;
                print_staged(&self.common, terminal, &id)
            }
            SignalAction::Reject => {
                self.common.open(folder)?.reject_signal(&self.id)?;
                print_status(&self.common, terminal, &self.id, "rejected")
            }
        }
    }
}

fn print_status(common: &Common, terminal: &mut Terminal, id: &str, status: &str) -> Result<Exit, Failure> {
    common.print(terminal, &json!({"id": id, "status": status}), |terminal| writeln!(terminal.out, "{id} {status}"))?;
    Ok(Exit::Ok)
}

/// Apply a staged proposal atomically
#[derive(Debug, clap::Args)]
pub(super) struct Apply {
    /// The proposal's id
    #[arg(required_unless_present = "low_risk")]
    id: Option<String>,
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    /// Apply all staged low-risk proposals instead, one by one; mode `enforce` only; give the workspace by --dir
    #[arg(long, conflicts_with = "id")]
    low_risk: bool,
    #[command(flatten)]
    common: Common,
}

impl Apply {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let all = self.common.with_approval(self.folder.as_ref(), |workspace, ask| match &self.id {
            Some(id) => Ok(vec![workspace.apply(ask(&workspace.apply_effect(id)?)?, id)?]),
            None => workspace.apply_low_risk(ask),
        })?;
        for applied in &all {
            print_outcome(&self.common, terminal, applied)?;
        }
        Ok(if all.iter().all(|applied| applied.result == "applied") { Exit::Ok } else { Exit::CheckFailed })
    }
}

fn print_outcome(common: &Common, terminal: &mut Terminal, applied: &ApplyOutcome) -> Result<(), Failure> {
    common.print(terminal, applied, |terminal| {
        write!(terminal.out, "{}", applied.diff)?;
        for line in &applied.broken {
            writeln!(terminal.out, "blocked by: {line}")?;
        }
        let (id, result, snapshot) = (&applied.proposal, applied.result, &applied.snapshot);
        writeln!(terminal.out, "{id} {result}; receipt: intelligence/applied/{snapshot}/APPLY_RECEIPT.md")
    })
}

/// Reject a staged proposal
#[derive(Debug, clap::Args)]
pub(super) struct Reject {
    /// The proposal's id
    id: String,
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

impl Reject {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        self.common.open(self.folder.as_ref())?.reject(&self.id)?;
        print_status(&self.common, terminal, &self.id, "rejected")
    }
}

/// Defer a staged proposal for the cooldown
#[derive(Debug, clap::Args)]
pub(super) struct Defer {
    /// The proposal's id
    id: String,
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

impl Defer {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let until = self.common.open(self.folder.as_ref())?.defer(&self.id)?;
        print_status(&self.common, terminal, &self.id, &format!("deferred until {until}"))
    }
}

/// Roll an applied proposal back
#[derive(Debug, clap::Args)]
pub(super) struct Rollback {
    /// The proposal's id
    id: String,
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

impl Rollback {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let applied = self.common.with_approval(self.folder.as_ref(), |workspace, ask| {
            workspace.rollback(ask(&workspace.rollback_effect(&self.id)?)?, &self.id)
        })?;
        print_outcome(&self.common, terminal, &applied)?;
        Ok(Exit::Ok)
    }
}

/// Show the mode, or change it
#[derive(Debug, clap::Args)]
pub(super) struct Mode {
    /// `detect_only`, `propose` or `enforce`; shows the mode if not given
    #[arg(value_name = "MODE")]
    to: Option<String>,
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

impl Mode {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let workspace = self.common.open(self.folder.as_ref())?;
        if let Some(name) = &self.to {
            let to = mode::Mode::parse(name)
                .map_err(|_| Failure::usage(format!("`{name}` is not a mode: use detect_only, propose or enforce")))?;
            self.common.with_approval_in_any_mode(self.folder.as_ref(), |workspace, ask| {
                workspace.set_mode(ask(&Workspace::mode_effect(to))?, to)
            })?;
        }
        let status = workspace.status()?;
        self.common.print(terminal, &json!({"mode": status.mode, "gates": status.gates}), |terminal| {
            let gates = status.gates;
            writeln!(terminal.out, "{}", status.mode)?;
            writeln!(
                terminal.out,
                "  propose needs seven days of scans without a critical contradiction: {}",
                gates.flip_gate_week1_clean
            )?;
            writeln!(
                terminal.out,
                "  enforce needs allow_enforce in mind-mem.json: {} (clean weeks in propose: {}, two are recommended)",
                gates.allow_enforce, gates.propose_weeks_clean
            )
        })?;
        Ok(Exit::Ok)
    }
}
