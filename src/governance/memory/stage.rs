//! What a scan proposes, within the budgets (Mind Mem 1.0.3, §3, invariants 1 to 5).

use std::collections::{HashMap, HashSet};

use jiff::ToSpan as _;
use jiff::civil::Date;

use super::contradiction::{Contradiction, Severity};
use super::drift::{Drift, DriftKind};
use super::id::Kind;
use super::known::Known;
use super::proposal::{Op, OpKind, Proposal, TYPES};
use super::state::{Config, State};
use super::texts::{IdSource, Texts};

/// What was chosen.
pub(super) struct Chosen {
    pub(super) staged: Vec<Proposal>,
    /// Why fewer were staged than there was cause for.
    pub(super) note: Option<String>,
}

/// Everything there is cause to propose, most urgent first, without ids.
pub(super) fn wishes(
    found: &[Contradiction<'_, '_>],
    drift: &[Drift],
    known: &Known<'_>,
    today: Date,
) -> Vec<Proposal> {
    let mut wishes = Vec::new();
    let mut files: Option<Vec<(&str, &'static str)>> = None;
    let critical = found.iter().filter(|conflict| conflict.severity == Severity::Critical);
    for conflict in critical {
        // The lighter one yields, and among equals the later one.
        let (a, b) = (&conflict.a, &conflict.b);
        let weaker = if a.signature.priority() < b.signature.priority() { a } else { b };
        let other = if weaker.decision == a.decision { b } else { a };
        let evidence = format!("critical contradiction {}", conflict.description().replace('\n', " "));
        let sources = vec![a.decision.to_owned(), other.decision.to_owned(), b.decision.to_owned()];
        wishes.push(set_status("D", weaker.decision, "revoked", "", "high", evidence, sources, today));
    }
    for drift in drift {
        let evidence = format!("{}: {}", drift.source, drift.description);
        let sources = vec![drift.source.clone()];
        match drift.kind {
            DriftKind::DeadDecision => {
                wishes.push(set_status("D", &drift.source, "revoked", "", "medium", evidence, sources, today));
            }
            DriftKind::StalledTask => {
                let doing = files.get_or_insert_with(|| {
                    let tasks = known.blocks(Kind::Task).filter(|task| task.head("Status") == "doing");
                    let mut ids: Vec<_> = tasks.map(|task| (task.id().as_str(), "tasks")).collect();
                    ids.sort_unstable();
                    ids
                });
                if doing.binary_search_by_key(&drift.source.as_str(), |(id, _)| id).is_ok() {
                    let history = format!("{today}: blocked, {}", drift.description);
                    wishes.push(set_status("T", &drift.source, "blocked", &history, "low", evidence, sources, today));
                }
            }
            DriftKind::RepeatedIncident | DriftKind::UnalignedTask => {}
        }
    }
    wishes
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
    let op = Op {
        kind: Some(OpKind::SetStatus),
        file: if prefix == "D" { "decisions/" } else { "tasks/" }.to_owned(),
        target: target.to_owned(),
        status: status.to_owned(),
        history: history.to_owned(),
        ..Op::default()
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

/// Chooses what may be staged now and gives it ids. Budgets are counted after duplicates are gone; what a person has
/// rejected is not proposed again.
pub(super) fn choose(
    wishes: Vec<Proposal>,
    known: &[Proposal],
    state: &State,
    config: &Config,
    today: Date,
    texts: &Texts,
) -> Chosen {
    let budget = config.proposal_budget;
    let pending = known.iter().filter(|proposal| proposal.is_pending()).count();
    let today_so_far =
        known.iter().filter(|proposal| proposal.day() == Some(today)).count().max(state.staged_on(today));
    let cooldown = state.cooldown_days(config);
    let room = budget
        .per_run
        .min(budget.per_day.saturating_sub(today_so_far))
        .min(budget.backlog_limit.saturating_sub(pending));
    let mut ids = IdSource::new(Kind::Proposal, today, TYPES.map(|(_, file)| texts.text(file)));
    let mut staged: Vec<Proposal> = Vec::new();
    let mut left = 0;
    let mut by_target: HashMap<&str, Vec<&Proposal>> = HashMap::new();
    for proposal in known {
        by_target.entry(&proposal.target).or_default().push(proposal);
    }
    let mut asked = HashSet::new();
    for mut wish in wishes {
        let earlier = by_target.get(wish.target.as_str()).into_iter().flatten();
        if earlier.into_iter().any(|other| bars(other, &wish, today, cooldown))
            || !asked.insert((wish.target.clone(), wish.compute_fingerprint()))
        {
            continue;
        }
        if staged.len() >= room {
            left += 1;
            continue;
        }
        if !locate(&mut wish, texts) {
            continue;
        }
        let Some(id) = ids.next() else { break };
        wish.id = id;
        wish.fingerprint = wish.compute_fingerprint();
        staged.push(wish);
    }
    let note = (left > 0).then(|| {
        format!(
            "{left} more proposals wait for room: {} a scan, {} a day, {} pending at most",
            budget.per_run, budget.per_day, budget.backlog_limit
        )
    });
    Chosen { staged, note }
}

/// Puts the file's name where only its folder is known.
fn locate(wish: &mut Proposal, texts: &Texts) -> bool {
    wish.ops.iter_mut().all(|op| {
        let header = format!("[{}]", op.target);
        let folder = op.file.clone();
        let found = texts.under(&folder).find(|(_, text)| text.lines().any(|line| line.trim_end() == header));
        found.is_some_and(|(path, _)| {
            path.clone_into(&mut op.file);
            true
        })
    })
}

/// Whether two proposals ask the same of the same block. A line of history holds the day, and so is no part of it.
pub(super) fn same(one: &Proposal, other: &Proposal) -> bool {
    one.target == other.target
        && one.ops.len() == other.ops.len()
        && one.ops.iter().zip(&other.ops).all(|(a, b)| {
            (a.kind, &a.target, &a.field, &a.value, &a.status, &a.range, &a.patch)
                == (b.kind, &b.target, &b.field, &b.value, &b.status, &b.range, &b.patch)
        })
}

/// Whether a deferred proposal still has to wait.
pub(super) fn cools(deferred: &Proposal, today: Date, cooldown: i64) -> bool {
    let until = deferred.deferred_until.parse::<Date>().ok();
    let until = until.or_else(|| Some(deferred.day()?.saturating_add(cooldown.days())));
    deferred.status == "deferred" && until.is_some_and(|until| today < until)
}

/// Whether an earlier proposal stands against staging `wish`.
pub(super) fn bars(earlier: &Proposal, wish: &Proposal, today: Date, cooldown: i64) -> bool {
    same(earlier, wish) && (matches!(earlier.status.as_str(), "staged" | "rejected") || cools(earlier, today, cooldown))
}
