//! Tests of scans: records keep their ids, drift is found, proposals respect the budgets.

use std::fmt::Write as _;
use std::sync::Arc;

use super::parse::Document;
use super::plan;
use super::scan::ScanReport;
use super::workspace::Workspace;
use crate::foundation::store::{Disk, SimDisk};

fn decision(number: usize, modality: &str, priority: u8) -> String {
    format!(
        "[D-20260101-{number:03}]\nDate: 2026-01-01\nStatus: active\nScope: global\nStatement: s\nRationale: r\n\
         Supersedes: none\nTags: x\nSources:\n- chat:1\nConstraintSignatures:\n- id: CS-{number}\n  domain: workflow\n  \
         subject: same\n  predicate: use\n  object: x\n  modality: {modality}\n  priority: {priority}\n  \
         scope: {{projects: [], channels: [], time: {{}}}}\n  evidence: e\n\n"
    )
}

fn task(number: usize, status: &str, rest: &str, last: &str) -> String {
    format!(
        "[T-20260101-{number:03}]\nDate: 2026-01-01\nStatus: {status}\nTitle: t\nPriority: P1\nProject: none\nDue: none\n\
         Owner: user\nContext: none\nNext: none\nDependencies: none\n{rest}Sources:\n- chat:1\nHistory:\n- {last}: x\n\n"
    )
}

fn disk(mode: &str, decisions: &str, tasks: &str, incidents: &str) -> SimDisk {
    let state = format!("{{\"governance_mode\": \"{mode}\"}}");
    SimDisk::with([
        ("decisions/DECISIONS.md", decisions.as_bytes()),
        ("tasks/TASKS.md", tasks.as_bytes()),
        ("entities/incidents.md", incidents.as_bytes()),
        ("intelligence/proposed/EDITS_PROPOSED.md", b"# Edits\n"),
        ("memory/intel-state.json", state.as_bytes()),
    ])
}

fn on(disk: &SimDisk, day: &str) -> Workspace {
    Workspace::on(Arc::new(disk.clone()), "scans", format!("{day}T08:00:00Z").parse().unwrap())
}

fn scan(disk: &SimDisk, day: &str) -> ScanReport {
    on(disk, day).scan().unwrap()
}

fn text(disk: &SimDisk, path: &str) -> String {
    String::from_utf8(disk.read(path).unwrap().unwrap_or_default()).unwrap()
}

/// The blocks of a file as `id key=value …`.
fn records(disk: &SimDisk, path: &str, keys: &[&str]) -> Vec<String> {
    let text = text(disk, path);
    let row = |block: super::parse::Block<'_, '_>| {
        keys.iter().fold(block.id().to_string(), |mut row, key| {
            let _ = write!(row, " {}", block.head(key));
            row
        })
    };
    Document::parse(&text).blocks().map(row).collect()
}

const CONTRADICTIONS: &str = "intelligence/CONTRADICTIONS.md";

#[test]
fn a_contradiction_keeps_its_record() {
    let disk = disk("detect_only", &(decision(1, "must", 5) + &decision(2, "must_not", 5)), "", "");
    let keys = ["DecisionA", "DecisionB", "Severity", "Status", "Resolved"];
    scan(&disk, "2026-02-01");
    let open = records(&disk, CONTRADICTIONS, &keys);
    assert_eq!(open, ["C-20260201-001 D-20260101-001 D-20260101-002 critical open "]);
    let once = text(&disk, CONTRADICTIONS);
    scan(&disk, "2026-02-02");
    assert_eq!(text(&disk, CONTRADICTIONS), once, "a second scan finds the same");
    let decisions = text(&disk, "decisions/DECISIONS.md");
    disk.write("decisions/DECISIONS.md", decisions.replacen("active", "revoked", 1).as_bytes()).unwrap();
    scan(&disk, "2026-02-03");
    let resolved = records(&disk, CONTRADICTIONS, &keys);
    assert_eq!(resolved, ["C-20260201-001 D-20260101-001 D-20260101-002 critical resolved 2026-02-03"]);
    disk.write("decisions/DECISIONS.md", decisions.as_bytes()).unwrap();
    let report = scan(&disk, "2026-02-04");
    assert_eq!(report.contradictions[0].id, "C-20260201-001");
    assert_eq!(records(&disk, CONTRADICTIONS, &["Status"]), ["C-20260201-001 open"]);
    assert_eq!(text(&disk, "intelligence/SCAN_LOG.md").lines().count(), 4);
}

#[test]
fn the_four_kinds_of_drift_are_reported() {
    let incident = |number: usize, cause: &str| {
        format!("[INC-00{number}]\nDate: 2026-01-0{number}\nStatus: closed\nSummary: s\nRootCause: {cause}\n\n")
    };
    let decisions = decision(1, "must", 8) + &decision(2, "must", 8) + &decision(3, "must", 6);
    let tasks = task(1, "doing", "AlignsWith: D-20260101-002\n", "2026-01-20")
        + &task(2, "doing", "Justification: because\n", "2026-01-01")
        + &task(3, "todo", "", "2026-01-30")
        + &task(4, "done", "", "2026-01-01");
    let incidents = incident(1, "Disk full") + &incident(2, "typo") + &incident(3, "disk FULL");
    let disk = disk("detect_only", &decisions, &tasks, &incidents);
    scan(&disk, "2026-02-01");
    assert_eq!(
        records(&disk, "intelligence/DRIFT.md", &["Type", "Source"]),
        [
            "DREF-20260201-001 dead_decision D-20260101-001",
            "DREF-20260201-002 stalled_task T-20260101-002",
            "DREF-20260201-003 unaligned_task T-20260101-003",
            "DREF-20260201-004 repeated_incident INC-003",
        ]
    );
}

#[test]
fn impact_is_recorded() {
    let decisions = decision(1, "must", 5) + &decision(2, "must_not", 5);
    let tasks = task(1, "todo", "AlignsWith: D-20260101-002\n", "2026-01-30");
    let disk = disk("detect_only", &decisions, &tasks, "");
    scan(&disk, "2026-02-01");
    let impact = records(&disk, "intelligence/IMPACT.md", &["Source", "Reaches"]);
    assert_eq!(impact, ["I-20260201-001 D-20260101-002 T-20260101-001"]);
}

#[test]
fn proposals_respect_the_budgets_and_are_not_repeated() {
    let stalled: String = (1..=9).map(|n| task(n, "doing", "Justification: j\n", "2026-01-01")).collect();
    let disk = disk("propose", "", &stalled, "");
    let budget = r#"{"proposal_budget": {"per_run": 3, "per_day": 5, "backlog_limit": 6}, "defer_cooldown_days": 3}"#;
    disk.write("mind-mem.json", budget.as_bytes()).unwrap();
    let staged = |day: &str| scan(&disk, day).staged.len();
    assert_eq!((staged("2026-02-01"), staged("2026-02-01"), staged("2026-02-01")), (3, 2, 0), "per run, per day");
    assert_eq!((staged("2026-02-02"), staged("2026-02-02")), (1, 0), "the backlog");
    on(&disk, "2026-02-02").reject("P-20260201-001").unwrap();
    on(&disk, "2026-02-02").defer("P-20260201-002").unwrap();
    let targets = |report: &ScanReport| {
        let texts = on(&disk, "2026-02-02").texts().unwrap();
        report.staged.iter().map(|id| plan::find(&texts, id).unwrap().1.target).collect::<Vec<_>>()
    };
    assert_eq!(
        targets(&scan(&disk, "2026-02-03")),
        ["T-20260101-007", "T-20260101-008"],
        "rejected and deferred ones excluded"
    );
    on(&disk, "2026-02-04").reject("P-20260203-001").unwrap();
    assert_eq!(targets(&scan(&disk, "2026-02-04")), ["T-20260101-009"]);
    on(&disk, "2026-02-05").reject("P-20260204-001").unwrap();
    assert_eq!(targets(&scan(&disk, "2026-02-05")), ["T-20260101-002"], "the deferred one, after its cooldown");
    let report = scan(&disk, "2026-04-01");
    assert_eq!(report.expired.len(), 6, "{:?}", report.expired);
    assert!(text(&disk, "intelligence/proposed/EDITS_PROPOSED.md").contains("Status: expired"));
}

#[test]
fn a_critical_contradiction_is_resolved_by_revoking_the_lower_priority() {
    let disk = disk("propose", &(decision(1, "must", 9) + &decision(2, "must_not", 5)), "", "");
    let tasks = task(1, "todo", "AlignsWith: D-20260101-001\n", "2026-01-30");
    disk.write("tasks/TASKS.md", tasks.as_bytes()).unwrap();
    let report = scan(&disk, "2026-02-01");
    let texts = on(&disk, "2026-02-01").texts().unwrap();
    let proposal = plan::find(&texts, &report.staged[0]).unwrap().1;
    assert_eq!((proposal.target.as_str(), proposal.risk.as_str()), ("D-20260101-002", "high"));
    assert_eq!(on(&disk, "2026-02-01").apply_approved(&proposal.id).unwrap().result, "applied");
    assert_eq!(scan(&disk, "2026-02-02").contradictions.len(), 0);
    assert_eq!(records(&disk, CONTRADICTIONS, &["Status"]), ["C-20260201-001 resolved"]);
}

#[test]
fn low_risk_proposals_are_applied_together_in_enforce_only() {
    let stalled: String = (1..=3).map(|n| task(n, "doing", "Justification: j\n", "2026-01-01")).collect();
    let disk = disk("propose", "", &stalled, "");
    assert_eq!(scan(&disk, "2026-02-01").staged.len(), 3);
    assert!(on(&disk, "2026-02-01").apply_low_risk_approved().unwrap_err().is_denial());
    let state = text(&disk, "memory/intel-state.json").replace("\"propose\"", "\"enforce\"");
    disk.write("memory/intel-state.json", state.as_bytes()).unwrap();
    assert_eq!(on(&disk, "2026-02-01").apply_low_risk_approved().unwrap().len(), 3);
    assert_eq!(text(&disk, "tasks/TASKS.md").matches("Status: blocked").count(), 3);
}
