//! Stages the proposals of a scan within the budgets (Mind Mem 1.0.3, §3, invariants 1 to 5).

use std::collections::{HashMap, HashSet};

use jiff::ToSpan as _;
use jiff::civil::Date;

use super::contradiction::{Contradiction, Severity};
use super::drift::{Drift, DriftKind};
use super::id::BlockKind;
use super::proposal::{Proposal, ProposalOp, ProposalOpKind, TYPES};
use super::scan_input::ScanInput;
use super::state::{MemoryConfig, MemoryState};
use super::texts::{IdSource, WorkspaceTexts};

/// The proposals to stage.
pub(super) struct Staging {
    pub(super) staged: Vec<Proposal>,
    /// Why some candidates were not staged.
    pub(super) note: Option<String>,
}

/// All candidates, most urgent first, without ids.
pub(super) fn candidates(
    found: &[Contradiction<'_, '_>],
    drift: &[Drift],
    known: &ScanInput<'_>,
    today: Date,
) -> Vec<Proposal> {
    let mut candidates = Vec::new();
    let mut files: Option<Vec<(&str, &'static str)>> = None;
    let critical = found.iter().filter(|conflict| conflict.severity == Severity::Critical);
    for conflict in critical {
        // The side with the lower priority is revoked; on a tie, the later one.
        let (a, b) = (&conflict.a, &conflict.b);
        let weaker = if a.signature.priority() < b.signature.priority() { a } else { b };
        let other = if weaker.decision == a.decision { b } else { a };
        let evidence = format!("critical contradiction {}", conflict.description().replace('\n', " "));
        let sources = vec![a.decision.to_owned(), other.decision.to_owned(), b.decision.to_owned()];
        candidates.push(set_status("D", weaker.decision, "revoked", "", "high", evidence, sources, today));
    }
    for drift in drift {
        let evidence = format!("{}: {}", drift.source, drift.description);
        let sources = vec![drift.source.clone()];
        match drift.kind {
            DriftKind::DeadDecision => {
                candidates.push(set_status("D", &drift.source, "revoked", "", "medium", evidence, sources, today));
            }
            DriftKind::StalledTask => {
                let doing = files.get_or_insert_with(|| {
                    let tasks = known.blocks(BlockKind::Task).filter(|task| task.head("Status") == "doing");
                    let mut ids: Vec<_> = tasks.map(|task| (task.id().as_str(), "tasks")).collect();
                    ids.sort_unstable();
                    ids
                });
                if doing.binary_search_by_key(&drift.source.as_str(), |(id, _)| id).is_ok() {
                    let history = format!("{today}: blocked, {}", drift.description);
                    candidates.push(set_status(
                        "T",
                        &drift.source,
                        "blocked",
                        &history,
                        "low",
                        evidence,
                        sources,
                        today,
                    ));
                }
            }
            DriftKind::RepeatedIncident | DriftKind::UnalignedTask => {}
        }
    }
    candidates
}

#[expect(clippy::too_many_arguments, reason = "the fields of one proposal")]
fn set_status(
    prefix: &str,
    target: &str,
    status: &str,
    history: &str,
    risk: &str,
    evidence: String,
    mut sources: Vec<String>,
    today: Date,
) -> Proposal {
    sources.dedup();
    let op = ProposalOp {
        kind: Some(ProposalOpKind::SetStatus),
        file: if prefix == "D" { "decisions/" } else { "tasks/" }.to_owned(),
        target: target.to_owned(),
        status: status.to_owned(),
        history: history.to_owned(),
        ..ProposalOp::default()
    };
    Proposal {
        id: String::new(),
        kind: "edit".to_owned(),
        target: target.to_owned(),
        risk: risk.to_owned(),
        evidence: vec![evidence],
        rollback: "restore_snapshot".to_owned(),
        ops: vec![op],
        fingerprint: String::new(),
        status: "staged".to_owned(),
        sources,
        date: today.to_string(),
        deferred_until: String::new(),
    }
}

/// Selects the candidates that may be staged now and assigns ids. Budgets are counted after duplicates are removed;
/// rejected proposals are not proposed again.
pub(super) fn choose(
    candidates: Vec<Proposal>,
    known: &[Proposal],
    state: &MemoryState,
    config: &MemoryConfig,
    today: Date,
    texts: &WorkspaceTexts,
) -> Staging {
    let budget = config.proposal_budget;
    let pending = known.iter().filter(|proposal| proposal.is_pending()).count();
    let today_so_far =
        known.iter().filter(|proposal| proposal.day() == Some(today)).count().max(state.staged_on(today));
    let cooldown = state.cooldown_days(config);
    let capacity = budget
        .per_run
        .min(budget.per_day.saturating_sub(today_so_far))
        .min(budget.backlog_limit.saturating_sub(pending));
    let mut ids = IdSource::new(BlockKind::Proposal, today, TYPES.map(|(_, file)| texts.text(file)));
    let mut staged: Vec<Proposal> = Vec::new();
    let mut left = 0;
    let mut by_target: HashMap<&str, Vec<&Proposal>> = HashMap::new();
    for proposal in known {
        by_target.entry(&proposal.target).or_default().push(proposal);
    }
    let mut proposed = HashSet::new();
    for mut candidate in candidates {
        let earlier = by_target.get(candidate.target.as_str()).into_iter().flatten();
        if earlier.into_iter().any(|other| prevents_staging(other, &candidate, today, cooldown))
            || !proposed.insert((candidate.target.clone(), candidate.compute_fingerprint()))
        {
            continue;
        }
        if staged.len() >= capacity {
            left += 1;
            continue;
        }
        if !resolve_files(&mut candidate, texts) {
            continue;
        }
        let Some(id) = ids.next() else { break };
        candidate.id = id;
        candidate.fingerprint = candidate.compute_fingerprint();
        staged.push(candidate);
    }
    let note = (left > 0).then(|| {
        format!(
            "{left} more proposals were not staged: the limits are {} per scan, {} per day, {} pending",
            budget.per_run, budget.per_day, budget.backlog_limit
        )
    });
    Staging { staged, note }
}

/// Replaces the folder of each operation by the file that contains its target.
fn resolve_files(candidate: &mut Proposal, texts: &WorkspaceTexts) -> bool {
    candidate.ops.iter_mut().all(|op| {
        let header = format!("[{}]", op.target);
        let folder = op.file.clone();
        let found = texts.under(&folder).find(|(_, text)| text.lines().any(|line| line.trim_end() == header));
        found.is_some_and(|(path, _)| {
            path.clone_into(&mut op.file);
            true
        })
    })
}

/// Whether two proposals request the same change of the same block. History lines contain the date and are ignored.
pub(super) fn same_change(one: &Proposal, other: &Proposal) -> bool {
    one.target == other.target
        && one.ops.len() == other.ops.len()
        && one.ops.iter().zip(&other.ops).all(|(a, b)| {
            (a.kind, &a.target, &a.field, &a.value, &a.status, &a.range, &a.patch)
                == (b.kind, &b.target, &b.field, &b.value, &b.status, &b.range, &b.patch)
        })
}

/// Whether a deferred proposal is still in its cooldown.
pub(super) fn in_cooldown(deferred: &Proposal, today: Date, cooldown: i64) -> bool {
    let until = deferred.deferred_until.parse::<Date>().ok();
    let until = until.or_else(|| Some(deferred.day()?.saturating_add(cooldown.days())));
    deferred.status == "deferred" && until.is_some_and(|until| today < until)
}

/// Whether an earlier proposal prevents staging `candidate`.
pub(super) fn prevents_staging(earlier: &Proposal, candidate: &Proposal, today: Date, cooldown: i64) -> bool {
    same_change(earlier, candidate)
        && (matches!(earlier.status.as_str(), "staged" | "rejected") || in_cooldown(earlier, today, cooldown))
}
