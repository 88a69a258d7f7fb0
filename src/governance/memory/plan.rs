//! Plans the application of a proposal without touching the disk: the pre-check, the new texts, the post-check on them
//! (Mind Mem 1.0.3, §5), and the receipt.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use jiff::civil::Date;

use super::authority::{ApplyWriter, WorkspaceArea, Writer};
use super::contradiction;
use super::edit::{self, EditError};
use super::id::{BlockId, BlockKind};
use super::mode::{MemoryCapability, ModeError};
use super::parse::Document;
use super::proposal::{Proposal, ProposalOp, ProposalOpKind, RISKS};
use super::scan_input;
use super::staging;
use super::state::{MemoryConfig, MemoryState};
use super::texts::WorkspaceTexts;
use super::validate;
use crate::foundation::base::limits;

/// Why a proposal cannot be applied; nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ApplyRefusal {
    /// There is no proposal with that id.
    #[error("there is no proposal {0}: `loom memory review` lists them")]
    Unknown(String),
    /// It cannot be applied.
    #[error("{id}: {reason}")]
    Malformed {
        /// The id.
        id: String,
        /// What is wrong with it.
        reason: String,
    },
    /// It is not staged.
    #[error("{id} is {status}: only a staged proposal can be applied")]
    NotStaged {
        /// The id.
        id: String,
        /// Its status.
        status: String,
    },
    /// The mode does not allow it.
    #[error(transparent)]
    Mode(#[from] ModeError),
    /// Too many proposals are pending.
    #[error("{pending} proposals are pending, the limit is {limit}: reject or defer some first")]
    Backlog {
        /// The number of pending proposals.
        pending: usize,
        /// The limit (`backlog_limit`).
        limit: usize,
    },
    /// An operation does not fit its file.
    #[error("{id}: {source}")]
    Edit {
        /// The id.
        id: String,
        /// Why it does not fit.
        source: EditError,
    },
}

/// The result of applying a proposal.
#[derive(Debug, Clone, PartialEq)]
pub struct ApplyPlan {
    /// The new texts of the changed files.
    pub files: BTreeMap<String, String>,
    /// The violations that the post-check found; empty if the proposal may be applied.
    pub broken: Vec<String>,
}

/// All proposals with their files, in order. Unreadable ones are left out; `validate` reports them.
pub fn proposals(texts: &WorkspaceTexts) -> Vec<(&str, Proposal)> {
    let mut found = Vec::new();
    for (path, text) in texts.under("intelligence/proposed/") {
        let document = Document::parse(text);
        found.extend(document.blocks().filter_map(|block| Some((path, Proposal::read(&block).ok()?))));
    }
    found
}

/// The proposal called `id` and its file.
///
/// # Errors
/// If there is none, or it cannot be read.
pub fn find<'t>(texts: &'t WorkspaceTexts, id: &str) -> Result<(&'t str, Proposal), ApplyRefusal> {
    for (path, text) in texts.under("intelligence/proposed/") {
        if let Some(block) = Document::parse(text).block(id) {
            let proposal =
                Proposal::read(&block).map_err(|reason| ApplyRefusal::Malformed { id: id.to_owned(), reason })?;
            return Ok((path, proposal));
        }
    }
    Err(ApplyRefusal::Unknown(id.to_owned()))
}

/// The risk of `proposal`: the declared one, or the one of its operations if that is higher. The proposer of a
/// change cannot make it look harmless.
pub fn effective_risk(proposal: &Proposal) -> &'static str {
    let level = |risk: &str| RISKS.iter().position(|known| *known == risk).unwrap_or(RISKS.len() - 1);
    let decides = |op: &ProposalOp| {
        let kind = |id: &str| BlockId::parse(id).map(BlockId::kind);
        let patch = Document::parse(&op.patch);
        kind(&op.target) == Some(BlockKind::Decision)
            || patch.blocks().any(|block| block.id().kind() == BlockKind::Decision)
    };
    let least = |op: &ProposalOp| match op.kind {
        Some(ProposalOpKind::SetStatus | ProposalOpKind::SupersedeDecision) if decides(op) => 2,
        Some(
            ProposalOpKind::SetStatus
            | ProposalOpKind::AppendListItem
            | ProposalOpKind::AppendBlock
            | ProposalOpKind::InsertAfterBlock,
        ) if !decides(op) => 0,
        Some(_) => 1,
        None => RISKS.len() - 1,
    };
    let least = proposal.ops.iter().map(least).max().unwrap_or(RISKS.len() - 1);
    RISKS.get(least.max(level(&proposal.risk))).copied().unwrap_or("critical")
}

/// Plans the application of `proposal`.
///
/// # Errors
/// If the pre-check rejects it.
pub fn plan(
    texts: &WorkspaceTexts,
    proposal: &Proposal,
    state: &MemoryState,
    config: &MemoryConfig,
    today: Date,
) -> Result<ApplyPlan, ApplyRefusal> {
    let id = || proposal.id.clone();
    state.require(MemoryCapability::Apply)?;
    if !proposal.is_pending() {
        return Err(ApplyRefusal::NotStaged { id: id(), status: proposal.status.clone() });
    }
    if !proposal.fingerprint_matches() {
        let reason = "its operations do not match its fingerprint: reject it and propose it again";
        return Err(ApplyRefusal::Malformed { id: id(), reason: reason.to_owned() });
    }
    let malformed = |reason| Err(ApplyRefusal::Malformed { id: id(), reason });
    let elsewhere = |op: &&ProposalOp| {
        let places = matches!(op.kind, Some(ProposalOpKind::AppendBlock | ProposalOpKind::InsertAfterBlock));
        !places && op.target != proposal.target
    };
    if let Some(op) = proposal.ops.iter().find(elsewhere) {
        return malformed(format!("its target is {}, but it would change {}", proposal.target, op.target));
    }
    let known = proposals(texts);
    let others = || known.iter().map(|(_, other)| other).filter(|other| other.id != proposal.id);
    if let Some(twin) = others().find(|other| other.is_pending() && staging::same_change(other, proposal)) {
        return malformed(format!("{} is pending with the same operations: reject one of them", twin.id));
    }
    let cooldown = state.cooldown_days(config);
    if let Some(twin) =
        others().find(|other| staging::same_change(other, proposal) && staging::in_cooldown(other, today, cooldown))
    {
        return malformed(format!("{} has the same operations and was deferred: its cooldown has not ended", twin.id));
    }
    let pending = known.iter().filter(|(_, other)| other.is_pending()).count();
    let limit = config.proposal_budget.backlog_limit;
    if pending > limit {
        return Err(ApplyRefusal::Backlog { pending, limit });
    }
    let files = apply_ops(texts, proposal)?;
    let broken = broken(texts, &files);
    Ok(ApplyPlan { files, broken })
}

/// The texts after the operations, without checking modes and invariants.
///
/// # Errors
/// If an operation does not fit its file.
pub fn apply_ops(texts: &WorkspaceTexts, proposal: &Proposal) -> Result<BTreeMap<String, String>, ApplyRefusal> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for op in &proposal.ops {
        let truth = WorkspaceArea::of(&op.file).filter(|place| {
            matches!(place, WorkspaceArea::Decisions | WorkspaceArea::Tasks | WorkspaceArea::Entities)
                && ApplyWriter::AREAS.contains(place)
        });
        let new = (op.kind == Some(ProposalOpKind::AppendBlock)).then(|| new_file(&op.file));
        let text = truth.and_then(|_| texts.get(&op.file).or(new.as_deref()));
        let Some(text) = files.get(&op.file).map(String::as_str).or(text) else {
            let reason = format!("`{}` is no file of decisions, tasks or entities", op.file);
            return Err(ApplyRefusal::Malformed { id: proposal.id.clone(), reason });
        };
        let edited =
            edit::apply_op(text, op).map_err(|source| ApplyRefusal::Edit { id: proposal.id.clone(), source })?;
        files.insert(op.file.clone(), edited);
    }
    Ok(files)
}

/// The text of a file that does not exist yet: a heading with its name.
fn new_file(path: &str) -> String {
    let stem = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".md").to_lowercase();
    let mut letters = stem.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("# {first}{}\n", letters.as_str())
}

/// The violations that `files` would add: new structural errors and new contradictions.
pub fn broken(texts: &WorkspaceTexts, files: &BTreeMap<String, String>) -> Vec<String> {
    let mut broken = Vec::new();
    for (path, text) in files {
        let before = validate::validate(path, &Document::parse(texts.text(path)));
        let after = validate::validate(path, &Document::parse(text));
        let new = validate::new_errors(&before, &after).into_iter();
        broken.extend(new.map(|finding| format!("{}:{}: {} ({})", path, finding.line, finding.message, finding.code)));
    }
    if files.keys().any(|path| path.starts_with("decisions/")) {
        let standing: HashSet<_> = conflicts(texts).into_iter().map(|(pair, _)| pair).collect();
        let now = conflicts(&texts.with(files)).into_iter().filter(|(pair, _)| !standing.contains(pair));
        broken.extend(now.map(|(_, description)| format!("a new contradiction {description}")));
    }
    broken
}

/// Every contradiction as the pair of its sides, with its description.
fn conflicts(texts: &WorkspaceTexts) -> Vec<((String, String), String)> {
    let documents = scan_input::decisions(texts);
    let active_signatures = scan_input::active_signatures(&documents);
    let (found, _) =
        contradiction::contradictions(&scan_input::contradiction_sides(&active_signatures), limits::CONTRADICTIONS_MAX);
    found.into_iter().map(|found| ((found.a.name(), found.b.name()), found.description())).collect()
}

/// The receipt of §5. `result` is `applied`, `rolled_back` or `rejected`.
pub struct ApplyReceipt<'r> {
    /// The time, ISO 8601 with zone.
    pub now: &'r str,
    /// The proposal.
    pub proposal: &'r Proposal,
    /// The result.
    pub result: &'r str,
    /// The snapshot's id: the name of its folder.
    pub snapshot: &'r str,
    /// The touched files.
    pub files: &'r [&'r str],
    /// The checks made before.
    pub checks: &'r str,
    /// How to revert it, or how it was reverted.
    pub rollback: &'r str,
    /// The change as a unified diff.
    pub diff: &'r str,
}

impl ApplyReceipt<'_> {
    /// The receipt as a block with the proposal's id.
    pub fn print(&self) -> String {
        let proposal = self.proposal;
        let actions: Vec<_> = proposal.ops.iter().map(|op| format!("{} {}", op.name(), op.target)).collect();
        let mut out = format!(
            "[{0}]\nDate: {1}\nProposal: {0}\nAction: {2}\nResult: {3}\nSnapshot: {4}\nRisk: {5}\nTargetBlock: {6}\nFilesTouched:\n",
            proposal.id,
            self.now,
            actions.join(", "),
            self.result,
            self.snapshot,
            proposal.risk,
            proposal.target
        );
        for file in self.files {
            let _ = writeln!(out, "- {file}");
        }
        let _ = writeln!(out, "PreChecks: {}\nRollbackPlan: {}", self.checks, self.rollback);
        if !self.diff.is_empty() {
            let _ = writeln!(out, "DIFF:");
            for line in self.diff.lines() {
                let _ = writeln!(out, "  {line}");
            }
        }
        out
    }
}

/// The difference between two texts as one hunk with up to three lines of context. Empty if there is none.
pub fn diff(path: &str, before: &str, after: &str) -> String {
    const AROUND: usize = 3;
    if before == after {
        return String::new();
    }
    let (a, b): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let head = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let room = a.len().min(b.len()) - head;
    let tail = a.iter().rev().zip(b.iter().rev()).take(room).take_while(|(a, b)| a == b).count();
    let from = head.saturating_sub(AROUND);
    let after_context = tail.min(AROUND);
    let (a_end, b_end) = (a.len() - tail, b.len() - tail);
    let mut out = format!(
        "--- a/{path}\n+++ b/{path}\n@@ -{},{} +{},{} @@\n",
        from + 1,
        a_end + after_context - from,
        from + 1,
        b_end + after_context - from
    );
    let mut write = |mark: char, lines: Option<&[&str]>| {
        for line in lines.unwrap_or_default() {
            let _ = writeln!(out, "{mark}{line}");
        }
    };
    write(' ', a.get(from..head));
    write('-', a.get(head..a_end));
    write('+', b.get(head..b_end));
    write(' ', a.get(a_end..a_end + after_context));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_shows_what_changed_and_three_lines_around() {
        let before = "1\n2\n3\n4\n5\n6\n7\n8\n";
        let expected = "--- a/x\n+++ b/x\n@@ -2,6 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n+more\n 6\n 7\n 8\n";
        assert_eq!(
            diff("x", before, &before.replace("5\n", "five\nmore\n")),
            expected.replace("-2,6", "-2,7").replace("+2,7 ", "+2,8 ")
        );
        assert_eq!(diff("x", before, before), "");
        assert_eq!(diff("x", "", "a\n"), "--- a/x\n+++ b/x\n@@ -1,0 +1,1 @@\n+a\n");
    }
}
