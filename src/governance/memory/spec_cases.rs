//! The cases of `tests/data/memory/`: workspaces with the results that Mind Mem 1.0.3 specifies.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::mode::Mode;
use super::parse::Document;
use super::plan::{self, ApplyRefusal};
use super::scan::ScanReport;
use super::state::{CONFIG_FILE, MemoryConfig, MemoryState, STATE_FILE};
use super::workspace::{MemoryError, Workspace};
use crate::foundation::store::{Disk, SimDisk};

struct Case {
    disk: SimDisk,
    expected: Value,
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { walk(&path, found) } else { found.push(path) }
    }
}

impl Case {
    fn open(number: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/memory").join(number);
        let mut paths = Vec::new();
        walk(&folder.join("input"), &mut paths);
        let files: Vec<_> = paths
            .iter()
            .map(|path| {
                (
                    path.strip_prefix(folder.join("input")).unwrap().to_str().unwrap().to_owned(),
                    std::fs::read(path).unwrap(),
                )
            })
            .collect();
        let disk = SimDisk::with(files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice())));
        let expected: Value = serde_json::from_slice(&std::fs::read(folder.join("expected.json")).unwrap()).unwrap();
        Self { disk, expected: expected["spec_expected"].clone() }
    }

    fn workspace(&self) -> Workspace {
        Workspace::on(Arc::new(self.disk.clone()), "case", "2026-02-20T12:00:00Z".parse().unwrap())
    }

    fn text(&self, path: &str) -> String {
        String::from_utf8(self.disk.read(path).unwrap().unwrap()).unwrap()
    }

    fn write(&self, path: &str, text: &str) {
        self.disk.write(path, text.as_bytes()).unwrap();
    }

    /// All files except the lock and transactions.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        self.disk.files().into_iter().filter(|(path, _)| !path.starts_with(".loom")).collect()
    }

    fn receipt(&self) -> String {
        let path = self.files().into_keys().find(|path| path.ends_with("/APPLY_RECEIPT.md"));
        self.text(&path.expect("a receipt"))
    }
}

fn conflicts(report: &ScanReport) -> Vec<[&str; 3]> {
    report
        .contradictions
        .iter()
        .map(|conflict| [conflict.a.as_str(), conflict.b.as_str(), conflict.severity.name()])
        .collect()
}

/// The expected pairs: the first two texts of each row, and the last.
fn rows(expected: &Value) -> Vec<[&str; 3]> {
    let row = |row: &'_ Value| -> [usize; 3] { [0, 1, row.as_array().unwrap().len() - 1] };
    let rows = expected["contradictions"].as_array().unwrap().iter();
    rows.map(|value| row(value).map(|at| value[at].as_str().unwrap())).collect()
}

#[test]
fn case_01_ids_keys_and_values() {
    let case = Case::open("01");
    let text = case.text("decisions/DECISIONS.md");
    let document = Document::parse(&text);
    let strings =
        |value: &Value| value.as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let ids: Vec<_> = document.blocks().map(|block| block.id().as_str().to_owned()).collect();
    assert_eq!(ids, strings(&case.expected["valid_ids_in_order"]));
    let headers = document.findings().iter().filter(|finding| finding.code == "header");
    let headers: Vec<_> = headers.map(|finding| text[finding.span.clone()].to_owned()).collect();
    assert_eq!(headers, strings(&case.expected["diagnostics_for_invalid_headers"]));
    let decision = document.block("D-20260213-001").unwrap();
    for (key, value) in case.expected["fields_of_D-20260213-001"].as_object().unwrap() {
        assert_eq!(decision.value(key).as_deref(), value.as_str(), "{key}");
    }
    assert!(document.findings().iter().any(|finding| finding.code == "duplicate-field" && finding.line == 13));
    // No field was attached to the last block by mistake.
    assert_eq!(document.block("T-001").unwrap().fields().len(), 1);
}

#[test]
fn case_02_continuations_lists_and_the_separator() {
    let case = Case::open("02");
    let text = case.text("decisions/DECISIONS.md");
    let document = Document::parse(&text);
    assert_eq!(document.blocks().len(), 1);
    let block = document.blocks().next().unwrap();
    assert_eq!(block.value("Statement").unwrap(), "line one\nline two\n  line three deeper");
    for (key, value) in [("Tags", "t1"), ("Context", "x"), ("Scope", "global")] {
        assert_eq!(block.value(key).unwrap(), value, "{key}");
    }
    assert_eq!(block.words("Sources"), ["one\nwrapped item\n- nested item", "two"]);
    assert_eq!(document.findings().len(), 4, "{:?}", document.findings());
}

#[test]
fn cases_05_and_07_headers_and_modalities() {
    for number in ["05", "07"] {
        let case = Case::open(number);
        let report = case.workspace().scan().unwrap();
        assert_eq!(conflicts(&report), rows(&case.expected), "case {number}");
    }
}

#[test]
fn case_09_competition_and_preference() {
    let case = Case::open("09");
    let report = case.workspace().scan().unwrap();
    let signature = |name: &str| name.split_once(':').unwrap().1.to_owned();
    let found: Vec<_> =
        conflicts(&report).into_iter().map(|[a, b, severity]| (signature(a), signature(b), severity)).collect();
    let expected: Vec<_> =
        rows(&case.expected).into_iter().map(|[a, b, severity]| (a.to_owned(), b.to_owned(), severity)).collect();
    assert_eq!(found, expected);
}

#[test]
fn case_13_modes() {
    let case = Case::open("13");
    let proposed = case.text("intelligence/proposed/EDITS_PROPOSED.md");
    let report = case.workspace().scan().unwrap();
    assert_eq!((report.contradictions.len(), report.staged.len()), (1, 0));
    let decisions = case.text("decisions/DECISIONS.md");
    assert!(case.workspace().apply_approved("P-20260213-001").unwrap_err().is_denial());
    assert_eq!(case.text("decisions/DECISIONS.md"), decisions);
    assert_eq!(case.text("intelligence/proposed/EDITS_PROPOSED.md"), proposed);

    let variant = |mode: &str| {
        let case = Case::open("13");
        case.write(STATE_FILE, &format!("{{\"governance_mode\": \"{mode}\", \"counters\": {{}}}}\n"));
        case.write(CONFIG_FILE, &format!("{{\"governance_mode\": \"{mode}\"}}\n"));
        case
    };
    assert!(variant("banana").workspace().apply_approved("P-20260213-002").unwrap_err().is_denial());
    // The specification supersedes in `enforce` alone. Here every apply takes a person's approval, so `propose` does too.
    assert_eq!(variant("propose").workspace().apply_approved("P-20260213-003").unwrap().result, "applied");
    let enforce = variant("enforce");
    let applied = enforce.workspace().apply_approved("P-20260213-003").unwrap();
    assert_eq!((applied.result, applied.broken), ("applied", vec![]));
    let text = enforce.text("decisions/DECISIONS.md");
    let document = Document::parse(&text);
    let status = |id| document.block(id).unwrap().head("Status");
    assert_eq!((status("D-20260213-002"), status("D-20260213-003")), ("superseded", "active"));

    for row in case.expected["transition_table"].as_array().unwrap() {
        let mode = |at: usize| row[at].as_str().unwrap();
        let flag = |key: &str| row[2][key].as_bool().unwrap_or(false);
        let text = format!(
            "{{\"governance_mode\": \"{}\", \"flip_gate_week1_clean\": {}}}",
            mode(0),
            flag("flip_gate_week1_clean")
        );
        let config = MemoryConfig { allow_enforce: flag("enforce_opt_in_in_mind-mem.json"), ..MemoryConfig::default() };
        let stepped =
            MemoryState::read(Some(&text)).step(Mode::parse(mode(1)).unwrap(), &config, jiff::civil::date(2026, 2, 20));
        assert_eq!(stepped.is_ok(), mode(3) == "allow", "{row}");
    }
}

#[test]
fn case_16_apply_commits_with_a_receipt_and_without_a_cascade() {
    let case = Case::open("16");
    let before = case.text("decisions/DECISIONS.md");
    let applied = case.workspace().apply_approved("P-20260213-001").unwrap();
    assert_eq!(applied.result, "applied");
    let (head, tail) = before.rsplit_once("Status: active").unwrap();
    assert_eq!(case.text("decisions/DECISIONS.md"), format!("{head}Status: revoked{tail}"));
    let receipt = case.receipt();
    insta::assert_snapshot!("receipt_of_case_16", receipt);
    assert_eq!(receipt.matches("Result:").count(), 1);
    let proposals: Vec<_> =
        case.workspace().review(true).unwrap().into_iter().map(|review| (review.id, review.status)).collect();
    assert_eq!(proposals, [("P-20260213-001".to_owned(), "applied".to_owned())]);
    // The snapshot contains what rule 7 of §5 lists, and nothing else.
    let copied: Vec<_> = case
        .files()
        .into_iter()
        .filter_map(|(path, bytes)| {
            Some((path.strip_prefix("intelligence/applied/20260220-120000/")?.to_owned(), bytes))
        })
        .collect();
    let original = Case::open("16").files();
    for (path, bytes) in &copied {
        assert!(path == "APPLY_RECEIPT.md" || original.get(path) == Some(bytes), "{path}");
    }
    let outside = |path: &&String| {
        path.starts_with("maintenance/") || path.starts_with("intelligence/applied/") || *path == CONFIG_FILE
    };
    assert_eq!(copied.len(), 1 + original.len() - original.keys().filter(outside).count());

    let files = case.files();
    let second = case.workspace().apply_approved("P-20260213-001").unwrap_err();
    assert!(matches!(second, MemoryError::ApplyRefusal(ApplyRefusal::NotStaged { .. })), "{second}");
    assert_eq!(case.files(), files);
}

#[test]
fn case_18_a_refused_post_check_rolls_back_and_bystanders_live() {
    let case = Case::open("18");
    let before = case.files();
    let applied = case.workspace().apply_approved("P-20260213-001").unwrap();
    assert_eq!(applied.result, "rolled_back");
    let truth = |files: BTreeMap<String, Vec<u8>>| {
        let folders = ["decisions/", "tasks/", "entities/"];
        let truth = move |path: &String| {
            folders.iter().any(|folder| path.starts_with(folder))
                || (path.starts_with("memory/") && super::texts::is_markdown(path))
        };
        files.into_iter().filter(move |(path, _)| truth(path)).collect::<Vec<_>>()
    };
    assert_eq!(truth(case.files()), truth(before));
    assert!(case.receipt().contains("\nResult: rolled_back\n"));
    let texts = case.workspace().texts().unwrap();
    assert_eq!(plan::find(&texts, "P-20260213-001").unwrap().1.status, "rolled_back");
}

#[test]
fn a_permit_covers_one_action_on_one_version_of_a_proposal() {
    const STAGED: &str = "intelligence/proposed/EDITS_PROPOSED.md";
    let (case, id) = (Case::open("16"), "P-20260213-001");
    let workspace = case.workspace();
    let permit = || workspace.permit(&workspace.apply_effect(id).unwrap()).unwrap();
    let files = case.files();
    assert!(workspace.rollback(permit(), id).unwrap_err().is_denial());
    let (permit, staged) = (permit(), case.text(STAGED));
    let edited = staged.replace("revoked", "superseded");
    assert_ne!(staged, edited);
    case.write(STAGED, &edited);
    assert!(workspace.apply(permit, id).unwrap_err().is_denial());
    case.write(STAGED, &staged);
    assert_eq!(case.files(), files);
}
