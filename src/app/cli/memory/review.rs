//! The commands that carry a person's word: `propose`, `review`, `signal`, `apply`, `reject`, `defer`, `rollback`, `mode`.

use std::io::Write as _;
use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::json;

use super::{Common, plural};
use crate::app::cli::input::read_file;
use crate::app::cli::{Exit, Failure, Terminal};
use crate::governance::memory::mode;
use crate::governance::memory::proposal::{Op, OpKind, RISKS};
use crate::governance::memory::workspace::{Applied, Request, Workspace};

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
    op: OpKind,
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    /// The block it is about; for `append_block` the new block's id, by itself
    #[arg(long, default_value = "", hide_default_value = true)]
    target: String,
    /// The file; by itself the one that holds the target, or the one for its kind
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
    /// `replace_range`: what the first line to replace contains
    #[arg(long, default_value = "", hide_default_value = true, requires = "end")]
    start: String,
    /// `replace_range`: what the line after the last contains
    #[arg(long, default_value = "", hide_default_value = true, requires = "start")]
    end: String,
    /// A file with the new block, or the new lines
    #[arg(long, value_name = "FILE")]
    patch: Option<PathBuf>,
    /// How much can go wrong
    #[arg(long, default_value = "medium", value_parser = RISKS)]
    risk: String,
    /// Why; may be given several times
    #[arg(long, required = true)]
    evidence: Vec<String>,
    /// Where it comes from; may be given several times
    #[arg(long, required = true)]
    source: Vec<String>,
    #[command(flatten)]
    common: Common,
}

fn operation(name: &str) -> Result<OpKind, String> {
    let known = || OpKind::ALL.map(|(_, name)| name).join(", ");
    OpKind::ALL
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
        let op = Op {
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
        let request = Request {
            ops: vec![op],
            risk: self.risk.clone(),
            evidence: self.evidence.clone(),
            sources: self.source.clone(),
        };
        let id = self.common.proposing(self.folder.as_ref(), |workspace, ask| {
            workspace.propose(ask(&Workspace::proposing(&request))?, request)
        })?;
        staged(&self.common, terminal, &id)
    }
}

fn staged(common: &Common, terminal: &mut Terminal, id: &str) -> Result<Exit, Failure> {
    common.tell(terminal, &json!({"proposal": id}), |terminal| {
        writeln!(terminal.out, "staged {id}: `loom memory review` shows it, `loom memory apply {id}` applies it")
    })?;
    Ok(Exit::Ok)
}

/// Show what waits for a word, and what it would change
#[derive(Debug, clap::Args)]
pub(super) struct Review {
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    /// Those that do not wait any more as well
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    common: Common,
}

impl Review {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let reviews = self.common.open(self.folder.as_ref())?.review(self.all)?;
        self.common.tell(terminal, &reviews, |terminal| {
            let out = &mut terminal.out;
            for review in &reviews {
                writeln!(out, "{} {} ({} risk): {}", review.id, review.status, review.risk, review.ops.join(", "))?;
                for line in &review.evidence {
                    writeln!(out, "  because {line}")?;
                }
                for line in review.diff.lines() {
                    writeln!(out, "  {line}")?;
                }
                for line in &review.against {
                    writeln!(out, "  against it: {line}")?;
                }
                writeln!(out)?;
            }
            writeln!(out, "{}", plural(reviews.len(), "proposal"))
        })?;
        Ok(Exit::Ok)
    }
}

/// Accept a captured signal, which drafts a proposal, or reject it
#[derive(Debug, clap::Args)]
pub(super) struct Signal {
    /// What to do with it
    #[arg(value_enum)]
    word: Word,
    /// The signal's id
    id: String,
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Word {
    Accept,
    Reject,
}

impl Signal {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let folder = self.folder.as_ref();
        match self.word {
            Word::Accept => {
                let id = self.common.proposing(folder, |workspace, ask| {
                    workspace.accept_signal(ask(&Workspace::accepting(&self.id))?, &self.id)
                })?;
                staged(&self.common, terminal, &id)
            }
            Word::Reject => {
                self.common.open(folder)?.reject_signal(&self.id)?;
                done(&self.common, terminal, &self.id, "rejected")
            }
        }
    }
}

fn done(common: &Common, terminal: &mut Terminal, id: &str, status: &str) -> Result<Exit, Failure> {
    common.tell(terminal, &json!({"id": id, "status": status}), |terminal| writeln!(terminal.out, "{id} {status}"))?;
    Ok(Exit::Ok)
}

/// Apply a staged proposal: all of it or nothing
#[derive(Debug, clap::Args)]
pub(super) struct Apply {
    /// The proposal's id
    #[arg(required_unless_present = "low_risk")]
    id: Option<String>,
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    /// Every staged low-risk one instead, one after the other; in `enforce` only, and the workspace by --dir
    #[arg(long, conflicts_with = "id")]
    low_risk: bool,
    #[command(flatten)]
    common: Common,
}

impl Apply {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let all = self.common.applying(self.folder.as_ref(), |workspace, ask| match &self.id {
            Some(id) => Ok(vec![workspace.apply(ask(&workspace.applying(id)?)?, id)?]),
            None => workspace.apply_low_risk(ask),
        })?;
        for applied in &all {
            tell(&self.common, terminal, applied)?;
        }
        Ok(if all.iter().all(|applied| applied.result == "applied") { Exit::Ok } else { Exit::CheckFailed })
    }
}

fn tell(common: &Common, terminal: &mut Terminal, applied: &Applied) -> Result<(), Failure> {
    common.tell(terminal, applied, |terminal| {
        write!(terminal.out, "{}", applied.diff)?;
        for line in &applied.broken {
            writeln!(terminal.out, "against it: {line}")?;
        }
        let (id, result, snapshot) = (&applied.proposal, applied.result, &applied.snapshot);
        writeln!(terminal.out, "{id} {result}; the receipt is intelligence/applied/{snapshot}/APPLY_RECEIPT.md")
    })
}

/// Say no to a staged proposal
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
        done(&self.common, terminal, &self.id, "rejected")
    }
}

/// Put a staged proposal off for the days of the cooldown
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
        done(&self.common, terminal, &self.id, &format!("deferred until {until}"))
    }
}

/// Take an applied proposal back
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
        let applied = self.common.applying(self.folder.as_ref(), |workspace, ask| {
            workspace.rollback(ask(&workspace.rolling_back(&self.id)?)?, &self.id)
        })?;
        tell(&self.common, terminal, &applied)?;
        Ok(Exit::Ok)
    }
}

/// Tell the mode, or go to another through its gates
#[derive(Debug, clap::Args)]
pub(super) struct Mode {
    /// `detect_only`, `propose` or `enforce`; tells the mode if not given
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
                .map_err(|_| Failure::usage(format!("`{name}` is no mode: use detect_only, propose or enforce")))?;
            self.common.moving(self.folder.as_ref(), |workspace, ask| {
                workspace.set_mode(ask(&Workspace::going_to(to))?, to)
            })?;
        }
        let status = workspace.status()?;
        self.common.tell(terminal, &json!({"mode": status.mode, "gates": status.gates}), |terminal| {
            let gates = status.gates;
            writeln!(terminal.out, "{}", status.mode)?;
            writeln!(terminal.out, "  propose opens after a clean week of scans: {}", gates.flip_gate_week1_clean)?;
            writeln!(
                terminal.out,
                "  enforce opens with allow_enforce in mind-mem.json: {} (clean weeks in propose: {}, two are advised)",
                gates.allow_enforce, gates.propose_weeks_clean
            )
        })?;
        Ok(Exit::Ok)
    }
}
