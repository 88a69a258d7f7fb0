//! What applying a proposal would do, worked out before the disk is touched: the pre-check, the new texts, the
//! post-check on them (Mind Mem 1.0.3, §5), and the receipt.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use jiff::civil::Date;

use super::authority::{Apply, Place, Writer};
use super::contradiction;
use super::edit::{self, EditError};
use super::known;
use super::mode::{Capability, ModeError};
use super::parse::Document;
use super::proposal::{Op, OpKind, Proposal};
use super::stage;
use super::state::{Config, State};
use super::texts::Texts;
use super::validate;
use crate::foundation::base::limits;

/// Why a proposal is not applied, nothing having been changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// There is none of that id.
    #[error("there is no proposal {0}: `loom memory review` lists them")]
    Unknown(String),
    /// It is not one that can be applied.
    #[error("{id}: {reason}")]
    Malformed {
        /// Which.
        id: String,
        /// What is wrong with it.
        reason: String,
    },
    /// It is not staged.
    #[error("{id} is {status}: only a staged proposal can be applied")]
    NotStaged {
        /// Which.
        id: String,
        /// Its status.
        status: String,
    },
    /// The mode forbids it.
    #[error(transparent)]
    Mode(#[from] ModeError),
    /// Too many wait.
    #[error("{pending} proposals wait, {limit} may: reject or defer some first")]
    Backlog {
        /// How many.
        pending: usize,
        /// How many may.
        limit: usize,
    },
    /// An operation does not fit.
    #[error("{id}: {source}")]
    Edit {
        /// Which proposal.
        id: String,
        /// Why.
        source: EditError,
    },
}

/// What applying would do.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The new texts of the files that change.
    pub files: BTreeMap<String, String>,
    /// What the post-check has against it; empty where it may stand.
    pub broken: Vec<String>,
}

/// All proposals of a workspace with their files, in order; those that cannot be read are left out, `validate` tells.
pub fn proposals(texts: &Texts) -> Vec<(&str, Proposal)> {
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
/// Where there is none, or it cannot be read.
pub fn find<'t>(texts: &'t Texts, id: &str) -> Result<(&'t str, Proposal), Refusal> {
    for (path, text) in texts.under("intelligence/proposed/") {
        if let Some(block) = Document::parse(text).block(id) {
            let proposal = Proposal::read(&block).map_err(|reason| Refusal::Malformed { id: id.to_owned(), reason })?;
            return Ok((path, proposal));
        }
    }
    Err(Refusal::Unknown(id.to_owned()))
}

/// Whether `proposal` takes a decision out of force by another: what only `enforce` allows.
pub fn supersedes(proposal: &Proposal) -> bool {
    proposal.ops.iter().any(|op| op.kind == Some(OpKind::SupersedeDecision) || op.status == "superseded")
}

/// Works out what applying `proposal` would do.
///
/// # Errors
/// Where the pre-check refuses it.
pub fn plan(texts: &Texts, proposal: &Proposal, state: &State, config: &Config, today: Date) -> Result<Plan, Refusal> {
    let id = || proposal.id.clone();
    state.demand(Capability::Apply)?;
    if supersedes(proposal) {
        state.demand(Capability::Supersede)?;
    }
    if !proposal.is_pending() {
        return Err(Refusal::NotStaged { id: id(), status: proposal.status.clone() });
    }
    if !proposal.is_untouched() {
        let reason = "its operations are not those its fingerprint was made of: reject it and propose it anew";
        return Err(Refusal::Malformed { id: id(), reason: reason.to_owned() });
    }
    let malformed = |reason| Err(Refusal::Malformed { id: id(), reason });
    let elsewhere = |op: &&Op| {
        let places = matches!(op.kind, Some(OpKind::AppendBlock | OpKind::InsertAfterBlock));
        !places && op.target != proposal.target
    };
    if let Some(op) = proposal.ops.iter().find(elsewhere) {
        return malformed(format!("it is about {}, but would change {}", proposal.target, op.target));
    }
    let known = proposals(texts);
    let others = || known.iter().map(|(_, other)| other).filter(|other| other.id != proposal.id);
    if let Some(twin) = others().find(|other| other.is_pending() && stage::same(other, proposal)) {
        return malformed(format!("{} asks the same and waits as well: reject one of them", twin.id));
    }
    let cooldown = state.cooldown_days(config);
    if let Some(twin) = others().find(|other| stage::same(other, proposal) && stage::cools(other, today, cooldown)) {
        return malformed(format!("{} asked the same and was deferred: its days are not over", twin.id));
    }
    let pending = known.iter().filter(|(_, other)| other.is_pending()).count();
    let limit = config.proposal_budget.backlog_limit;
    if pending > limit {
        return Err(Refusal::Backlog { pending, limit });
    }
    let files = outcome(texts, proposal)?;
    let broken = broken(texts, &files);
    Ok(Plan { files, broken })
}

/// The texts that the operations make, with no regard to modes and checks.
///
/// # Errors
/// Where an operation does not fit its file.
pub fn outcome(texts: &Texts, proposal: &Proposal) -> Result<BTreeMap<String, String>, Refusal> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for op in &proposal.ops {
        let truth = Place::of(&op.file).filter(|place| {
            matches!(place, Place::Decisions | Place::Tasks | Place::Entities) && Apply::PLACES.contains(place)
        });
        let Some(text) = truth.and_then(|_| texts.get(&op.file)) else {
            let reason = format!("`{}` is no file of decisions, tasks or entities", op.file);
            return Err(Refusal::Malformed { id: proposal.id.clone(), reason });
        };
        let text = files.get(&op.file).map_or(text, String::as_str);
        let edited = edit::carry_out(text, op).map_err(|source| Refusal::Edit { id: proposal.id.clone(), source })?;
        files.insert(op.file.clone(), edited);
    }
    Ok(files)
}

/// What `files` would break that stands now: structural errors and contradictions that are not there yet.
pub fn broken(texts: &Texts, files: &BTreeMap<String, String>) -> Vec<String> {
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
fn conflicts(texts: &Texts) -> Vec<((String, String), String)> {
    let documents = known::decisions(texts);
    let signed = known::signed(&documents);
    let (found, _) = contradiction::contradictions(&known::sides(&signed), limits::CONTRADICTIONS_MAX);
    found.into_iter().map(|found| ((found.a.name(), found.b.name()), found.description())).collect()
}

/// The receipt of §5. `result` is `applied`, `rolled_back` or `rejected`.
pub struct Receipt<'r> {
    /// ISO time with zone.
    pub now: &'r str,
    /// What it is about.
    pub proposal: &'r Proposal,
    /// How it ended.
    pub result: &'r str,
    /// The snapshot's id, which is its folder's name.
    pub snapshot: &'r str,
    /// The files it touched.
    pub files: &'r [&'r str],
    /// What was checked before.
    pub checks: &'r str,
    /// What to do, or what was done, to take it back.
    pub rollback: &'r str,
    /// What changed, as a unified diff.
    pub diff: &'r str,
}

impl Receipt<'_> {
    /// The receipt as a block whose id is the proposal's.
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

/// The difference of two texts as one hunk: the lines between their common beginning and end, with up to three lines
/// around. Empty where there is none.
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
