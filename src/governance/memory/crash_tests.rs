//! Crashes at every disk operation of an apply, of a rollback and of the recovery after them: the workspace is always
//! in the state before or the state after, byte for byte.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::workspace::{MemoryError, Workspace};
use crate::foundation::store::{CrashOutcome, SimDisk};

const DECISION: &str = "# Decisions\n\n[D-20260213-001]\nDate: 2026-02-13\nStatus: active\nScope: global\nStatement: Use it.\nRationale: Because.\nSupersedes: none\nTags: x\nSources:\n- chat:1\n";
const PROPOSED: &str = "[P-20260213-001]\nProposalId: P-20260213-001\nType: edit\nTargetBlock: D-20260213-001\nRisk: low\nEvidence:\n- reviewed\nRollback: restore_snapshot\nOps:\n- op: set_status\n  file: decisions/DECISIONS.md\n  target: D-20260213-001\n  status: revoked\nFingerprint: 4883aa5ef32f7315\nStatus: staged\nSources:\n- chat:1\n";

type Act = fn(&Workspace) -> Result<(), MemoryError>;

fn start() -> SimDisk {
    SimDisk::with([
        ("decisions/DECISIONS.md", DECISION.as_bytes()),
        ("decisions/NOTES.md", b"mine\n"),
        ("intelligence/proposed/EDITS_PROPOSED.md", PROPOSED.as_bytes()),
        ("memory/intel-state.json", br#"{"governance_mode": "propose"}"#),
        (".loom/.gitignore", b"*\n"),
    ])
}

fn workspace(disk: &SimDisk) -> Workspace {
    Workspace::on(Arc::new(disk.clone()), "crashes", "2026-02-20T12:00:00Z".parse().unwrap())
}

fn files(disk: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    disk.files().into_iter().filter(|(path, _)| !path.starts_with(".loom")).collect()
}

/// Tries every crash of `act` on `disk`; returns the number of crash points tried.
fn every_crash(disk: &SimDisk, act: Act) -> usize {
    let before = files(disk);
    let done = disk.fork();
    act(&workspace(&done)).unwrap();
    let (after, operations) = (files(&done), done.operations());
    assert_ne!(before, after);
    let mut points = 0;
    for stop in 0..operations {
        for first in CrashOutcome::samples(3) {
            let disk = disk.fork();
            disk.stop_at(stop);
            act(&workspace(&disk)).unwrap_err();
            let crashed = disk.after_crash(first);
            let rest = crashed.fork();
            workspace(&rest).texts().unwrap();
            assert!(files(&rest) == before || files(&rest) == after, "stop {stop} {first:?}");
            for again in 0..rest.operations() {
                for second in [CrashOutcome::Nothing, CrashOutcome::Everything, CrashOutcome::Random(1)] {
                    let disk = crashed.fork();
                    disk.stop_at(again);
                    // A read-only folder can still be read when no transaction is in flight.
                    let _stopped = workspace(&disk).texts();
                    let disk = disk.after_crash(second);
                    workspace(&disk).texts().unwrap();
                    assert_eq!(files(&disk), files(&rest), "stop {stop} {first:?}, again {again} {second:?}");
                    points += 1;
                }
            }
        }
    }
    points
}

#[test]
fn apply_and_rollback_are_atomic_at_every_crash() {
    let disk = start();
    let apply: Act = |workspace| workspace.apply_approved("P-20260213-001").map(|_| ());
    let rollback: Act = |workspace| workspace.rollback_approved("P-20260213-001").map(|_| ());
    let mut points = every_crash(&disk, apply);
    apply(&workspace(&disk)).unwrap();
    points += every_crash(&disk.fork(), rollback);
    rollback(&workspace(&disk)).unwrap();
    assert_eq!(files(&disk)["decisions/DECISIONS.md"], DECISION.as_bytes());
    println!("{points} crash points");
    assert!(points > 10_000, "{points}");
}

#[test]
fn capture_and_log_are_atomic_at_every_crash() {
    let capture: Act = |workspace| {
        workspace
            .capture_approved(&[super::capture::CaptureInput {
                text: "We decided to rest.",
                source: "chat:1",
                kind: None,
            }])
            .map(|_| ())
    };
    let log: Act = |workspace| workspace.log("a good day").map(|_| ());
    for act in [capture, log] {
        assert!(every_crash(&start(), act) > 100);
    }
}
