//! The memory compared with a small model: random sequences of requests, with crashes in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::parse::Document;
use super::proposal::{ProposalOp, ProposalOpKind};
use super::workspace::{MemoryError, ProposalRequest, Workspace};
use crate::foundation::store::{CrashOutcome, SimDisk};

const STATUSES: [&str; 4] = ["todo", "doing", "done", "blocked"];

#[derive(Debug, Clone)]
enum Step {
    Propose { task: usize, status: usize },
    Apply(usize),
    Rollback(usize),
    Reject(usize),
    Defer(usize),
}

/// The expected state: the status of every task, and of every proposal with the task's status before it.
#[derive(Debug, Clone, PartialEq)]
struct Model {
    tasks: [usize; 3],
    proposals: Vec<(usize, usize, &'static str, usize)>,
}

impl Model {
    /// The model after the step; `None` if the step must be rejected.
    fn after(&self, step: &Step) -> Option<Self> {
        let mut next = self.clone();
        match step {
            Step::Propose { task, status } => {
                let barred = |(t, s, state, _): &(usize, usize, &str, usize)| {
                    (t, s) == (task, status) && matches!(*state, "staged" | "deferred")
                };
                if self.proposals.iter().any(barred) {
                    return None;
                }
                next.proposals.push((*task, *status, "staged", 0));
            }
            Step::Apply(at) => {
                let (task, status, state, before) = next.proposals.get_mut(*at)?;
                if *state != "staged" {
                    return None;
                }
                (*state, *before) = ("applied", self.tasks[*task]);
                next.tasks[*task] = *status;
            }
            Step::Rollback(at) => {
                let (task, status, state, before) = next.proposals.get_mut(*at)?;
                // A change without effect can always be reverted.
                let moved = *before != *status;
                if *state != "applied" || (moved && self.tasks[*task] != *status) {
                    return None;
                }
                *state = "rolled_back";
                if moved {
                    next.tasks[*task] = *before;
                }
            }
            Step::Reject(at) | Step::Defer(at) => {
                let (_, _, state, _) = next.proposals.get_mut(*at)?;
                if *state != "staged" {
                    return None;
                }
                *state = if matches!(step, Step::Defer(_)) { "deferred" } else { "rejected" };
            }
        }
        Some(next)
    }
}

fn start() -> SimDisk {
    let tasks = [1, 2, 3].map(|n| {
        format!(
            "[T-20260220-00{n}]\nDate: 2026-02-20\nStatus: todo\nTitle: t\nPriority: P2\nProject: none\nDue: none\n\
             Owner: bot\nContext: none\nNext: none\nDependencies: none\nSources:\n- s\nHistory:\n- 2026-02-20: x\n\n"
        )
    });
    let tasks = tasks.concat();
    SimDisk::with([
        ("tasks/TASKS.md", tasks.as_bytes()),
        ("decisions/DECISIONS.md", b"# Decisions\n"),
        ("intelligence/proposed/EDITS_PROPOSED.md", b"# Edits\n"),
        ("memory/intel-state.json", br#"{"governance_mode": "propose"}"#),
        ("mind-mem.json", br#"{"proposal_budget": {"backlog_limit": 900}}"#),
        (".loom/.gitignore", b"*\n"),
    ])
}

fn workspace(disk: &SimDisk) -> Workspace {
    Workspace::on(Arc::new(disk.clone()), "model", "2026-02-20T12:00:00Z".parse().unwrap())
}

fn act(workspace: &Workspace, step: &Step) -> Result<(), MemoryError> {
    let id = |at: &usize| format!("P-20260220-{:03}", at + 1);
    match step {
        Step::Propose { task, status } => {
            let op = ProposalOp {
                kind: Some(ProposalOpKind::SetStatus),
                target: format!("T-20260220-00{}", task + 1),
                status: STATUSES[*status].to_owned(),
                ..ProposalOp::default()
            };
            let why = || vec!["because".to_owned()];
            workspace
                .propose_approved(ProposalRequest {
                    ops: vec![op],
                    risk: "low".into(),
                    evidence: why(),
                    sources: why(),
                })
                .map(|_| ())
        }
        Step::Apply(at) => workspace.apply_approved(&id(at)).map(|_| ()),
        Step::Rollback(at) => workspace.rollback_approved(&id(at)).map(|_| ()),
        Step::Reject(at) => workspace.reject(&id(at)),
        Step::Defer(at) => workspace.defer(&id(at)).map(|_| ()),
    }
}

/// The state of the memory in the model's terms, without what only rollbacks need.
fn observed(disk: &SimDisk) -> (Vec<String>, BTreeMap<String, String>) {
    let texts = workspace(disk).texts().unwrap();
    let tasks = Document::parse(texts.text("tasks/TASKS.md")).blocks().map(|b| b.head("Status").to_owned()).collect();
    let proposals = super::plan::proposals(&texts).into_iter().map(|(_, p)| (p.id, p.status)).collect();
    (tasks, proposals)
}

fn expected(model: &Model) -> (Vec<String>, BTreeMap<String, String>) {
    let proposal = |(at, (_, _, state, _)): (usize, &(usize, usize, &str, usize))| {
        (format!("P-20260220-{:03}", at + 1), (*state).to_owned())
    };
    let tasks = model.tasks.iter().map(|status| STATUSES[*status].to_owned()).collect();
    (tasks, model.proposals.iter().enumerate().map(proposal).collect())
}

fn step() -> impl Strategy<Value = (Step, Option<(usize, u64)>)> {
    let step = prop_oneof![
        3 => (0..3usize, 0..4usize).prop_map(|(task, status)| Step::Propose { task, status }),
        3 => (0..8usize).prop_map(Step::Apply),
        2 => (0..8usize).prop_map(Step::Rollback),
        1 => (0..8usize).prop_map(Step::Reject),
        1 => (0..8usize).prop_map(Step::Defer),
    ];
    (step, proptest::option::weighted(0.3, (0..60usize, any::<u64>())))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn any_sequence_of_requests_and_crashes_matches_the_model(steps in proptest::collection::vec(step(), 1..24)) {
        let mut disk = start();
        let mut model = Model { tasks: [0; 3], proposals: Vec::new() };
        for (step, crash) in steps {
            let next = model.after(&step);
            if let Some((operation, lot)) = crash {
                disk.stop_at(disk.operations() + operation);
                let done = act(&workspace(&disk), &step).is_ok();
                disk = disk.after_crash(CrashOutcome::Random(lot));
                let now = observed(&disk);
                if next.as_ref().is_some_and(|next| now == expected(next)) {
                    model = next.unwrap();
                } else {
                    prop_assert!(!done, "completed, then lost: {:?}", step);
                }
            } else {
                prop_assert_eq!(act(&workspace(&disk), &step).is_ok(), next.is_some(), "{:?}", step);
                model = next.unwrap_or(model);
            }
            prop_assert_eq!(observed(&disk), expected(&model), "{:?}", step);
        }
    }
}
