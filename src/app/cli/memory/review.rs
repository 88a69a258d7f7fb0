//! The commands for proposals and the mode: `propose`, `review`, `signal`, `approve`, `apply`, `reject`, `defer`, `rollback`, `mode`.

use std::cell::RefCell;
use std::io::Write as _;
use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::json;

use super::{Approver, Common, is_interactive, plural};
use crate::app::cli::input::read_file;
use crate::app::cli::{Exit, Failure, Terminal};
use crate::foundation::gate::Effect;
use crate::governance::memory::approval::{self, Approval};
use crate::governance::memory::mode;
use crate::governance::memory::proposal::{ProposalOp, ProposalOpKind, RISKS};
use crate::governance::memory::workspace::{ApplyOutcome, DecisionDraft, ProposalRequest, Workspace};

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
        writeln!(
            terminal.out,
            "staged {id}: show it with `loom memory review`; a person applies it with `loom memory apply {id}`"
        )
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

/// Approve one change at the terminal and print a token for it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The token is for this change in this workspace as shown, and for nothing else. Pass it to an assistant, or to `apply`,
`rollback` or `mode` with --token.

Exit codes: 0 approved, 4 not approved.")]
pub(super) struct Approve {
    /// The proposal's id
    #[arg(required_unless_present = "mode")]
    id: Option<String>,
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    /// Approve rolling the proposal back instead of applying it
    #[arg(long, requires = "id")]
    rollback: bool,
    /// Approve changing the mode to this one; give the workspace by --dir
    #[arg(long, value_name = "MODE", conflicts_with = "id")]
    mode: Option<String>,
    /// How long the token is valid
    #[arg(long, default_value_t = approval::TOKEN_MINUTES, value_parser = clap::value_parser!(i64).range(1..=1440))]
    minutes: i64,
    #[command(flatten)]
    common: Common,
}

impl Approve {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let workspace = self.common.open(self.folder.as_ref())?;
        let (effect, question) = match (&self.id, &self.mode) {
            (Some(id), _) if self.rollback => (workspace.rollback_effect(id)?, format!("rolling {id} back")),
            (Some(id), _) => {
                eprint!("{}", workspace.preview(id)?);
                (workspace.apply_effect(id)?, format!("applying {id}"))
            }
            (None, mode) => {
                let to = parse_mode(mode.as_deref().unwrap_or_default())?;
                (Workspace::mode_effect(to), format!("changing the mode to {to}"))
            }
        };
        let approver = self.common.approver(self.folder.as_ref(), &workspace)?;
        if !is_interactive() {
            return Err(Failure::Message {
                message: format!("{question} is approved by a person at a terminal: this is none"),
                exit: Exit::Denied,
            });
        }
        approver.confirm(&question)?;
        let token = approver.token(&effect, self.minutes);
        self.common.print(terminal, &json!({"token": token, "minutes": self.minutes}), |terminal| {
            writeln!(terminal.out, "{token}")
        })?;
        Ok(Exit::Ok)
    }
}

/// Apply a staged proposal atomically, with a person's approval
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The change is shown and you are asked for a yes. Where nobody can be asked, pass a token from `loom memory approve`, or
list risks that need none in mind-mem.json, for example \"auto_approve\": [\"low\"].")]
pub(super) struct Apply {
    /// The proposal's id
    #[arg(required_unless_present = "low_risk")]
    id: Option<String>,
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    /// Apply all staged low-risk proposals instead, one by one; mode `enforce` only; give the workspace by --dir
    #[arg(long, conflicts_with = "id")]
    low_risk: bool,
    /// A token from `loom memory approve`
    #[arg(long, conflicts_with = "low_risk")]
    token: Option<String>,
    #[command(flatten)]
    common: Common,
}

impl Apply {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let current = RefCell::new(self.id.clone().unwrap_or_default());
        let approve = |approver: &Approver<'_>, effect: &Effect| {
            let id = current.borrow();
            if let (None, Some(approval)) = (&self.token, approver.workspace.policy_approval(&id)?) {
                return Ok(approval);
            }
            if self.token.is_none() && is_interactive() {
                eprint!("{}", approver.workspace.preview(&id)?);
            }
            let (question, command) = (format!("applying {id}"), format!("loom memory approve {id}"));
            approver.by_token_or_person(self.token.as_deref(), effect, &question, &command)
        };
        let all = self.common.with_approval(self.folder.as_ref(), approve, |workspace, ask| match &self.id {
            Some(id) => Ok(vec![workspace.apply(ask(&workspace.apply_effect(id)?)?, id)?]),
            None => workspace.apply_low_risk(|id, effect| {
                id.clone_into(&mut current.borrow_mut());
                ask(effect)
            }),
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

/// Record a decision: proposes it, shows the change, asks for your yes, applies it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom memory decide 'Use SQLite for the index' --why 'one file, no server'
  loom memory decide 'Use Redis for the index' --why 'it outgrew one machine' --supersedes D-20260220-001 \\
       --constraint 'must use Redis for index'

A constraint is a sentence of modality (must, must_not, should, should_not, may), verb, object, `for` and subject. Scans
find contradictions between constraints on the same subject.

Exit codes: 0 decided, 1 it contradicts another decision, 4 not approved: the proposal stays staged.")]
pub(super) struct Decide {
    /// The decision
    statement: String,
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    /// The reason
    #[arg(long)]
    why: String,
    /// The decision that it supersedes
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    supersedes: String,
    /// A constraint, for example `must use SQLite for index`; can be repeated
    #[arg(long, value_name = "SENTENCE")]
    constraint: Vec<String>,
    /// A tag; can be repeated
    #[arg(long)]
    tag: Vec<String>,
    /// The source of the decision
    #[arg(long, default_value = "the user")]
    source: String,
    #[command(flatten)]
    common: Common,
}

impl Decide {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let folder = self.folder.as_ref();
        let draft = DecisionDraft {
            statement: self.statement.clone(),
            why: self.why.clone(),
            supersedes: self.supersedes.clone(),
            tags: self.tag.clone(),
            source: self.source.clone(),
            signatures: self.constraint.clone(),
        };
        let request = self.common.open(folder)?.decision_request(&draft)?;
        let id = self.common.with_permit(folder, |workspace, ask| {
            workspace.propose(ask(&Workspace::propose_effect(&request))?, request)
        })?;
        let approve = |approver: &Approver<'_>, effect: &Effect| {
            if let Some(approval) = approver.workspace.policy_approval(&id)? {
                return Ok(approval);
            }
            if is_interactive() {
                eprint!("{}", approver.workspace.preview(&id)?);
            }
            approver.by_token_or_person(None, effect, &format!("applying {id}"), &format!("loom memory approve {id}"))
        };
        let applied = self.common.with_approval(folder, approve, |workspace, ask| {
            workspace.apply(ask(&workspace.apply_effect(&id)?)?, &id)
        })?;
        print_outcome(&self.common, terminal, &applied)?;
        Ok(if applied.result == "applied" { Exit::Ok } else { Exit::CheckFailed })
    }
}

/// Roll an applied proposal back, with a person's approval
#[derive(Debug, clap::Args)]
pub(super) struct Rollback {
    /// The proposal's id
    id: String,
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    /// A token from `loom memory approve ID --rollback`
    #[arg(long)]
    token: Option<String>,
    #[command(flatten)]
    common: Common,
}

impl Rollback {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let approve = |approver: &Approver<'_>, effect: &Effect| {
            let command = format!("loom memory approve {} --rollback", self.id);
            approver.by_token_or_person(self.token.as_deref(), effect, &format!("rolling {} back", self.id), &command)
        };
        let applied = self.common.with_approval(self.folder.as_ref(), approve, |workspace, ask| {
            workspace.rollback(ask(&workspace.rollback_effect(&self.id)?)?, &self.id)
        })?;
        print_outcome(&self.common, terminal, &applied)?;
        Ok(Exit::Ok)
    }
}

/// Show the mode, or change it; raising it takes a person's approval
#[derive(Debug, clap::Args)]
pub(super) struct Mode {
    /// `detect_only`, `propose` or `enforce`; shows the mode if not given
    #[arg(value_name = "MODE")]
    to: Option<String>,
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    /// A token from `loom memory approve --mode MODE`
    #[arg(long, requires = "to")]
    token: Option<String>,
    #[command(flatten)]
    common: Common,
}

fn parse_mode(name: &str) -> Result<mode::Mode, Failure> {
    mode::Mode::parse(name)
        .map_err(|_| Failure::usage(format!("`{name}` is not a mode: use detect_only, propose or enforce")))
}

impl Mode {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let workspace = self.common.open(self.folder.as_ref())?;
        if let Some(name) = &self.to {
            let to = parse_mode(name)?;
            let from = workspace.mode().ok();
            let approve = |approver: &Approver<'_>, effect: &Effect| match Approval::for_lower_mode(from, to) {
                Some(approval) => Ok(approval),
                None => {
                    let (question, command) =
                        (format!("changing the mode to {to}"), format!("loom memory approve --mode {to}"));
                    approver.by_token_or_person(self.token.as_deref(), effect, &question, &command)
                }
            };
            self.common.with_approval(self.folder.as_ref(), approve, |workspace, ask| {
                workspace.check_mode_change(to)?;
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
