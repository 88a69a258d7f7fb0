//! Decisions as Markdown formatters leave them: `tests/data/memory/formatters` holds twenty files and, for each, what
//! prettier 3, mdformat 1 and Obsidian's Linter plugin make of it (`scripts/memory-formatter-cases.py`). No constraint is
//! lost: a file is read as before, or the scan reports what it could not read.

use std::collections::BTreeMap;
use std::path::Path;

use super::contradiction::contradictions;
use super::parse::Document;
use super::scan_input::{active_signatures, contradiction_sides};
use super::state::{MemoryConfig, MemoryState, STATE_FILE};
use super::texts::WorkspaceTexts;
use crate::foundation::base::limits;

const FORMATTERS: [&str; 3] = ["prettier", "mdformat", "obsidian"];

fn text(case: usize, layout: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/memory/formatters");
    std::fs::read_to_string(folder.join(format!("{case:02}/{layout}.md"))).unwrap()
}

/// The constraints of a text, and the contradictions among them. Formatters rewrite emphasis (`*any*`, `_any_`).
fn constraints(text: &str) -> (Vec<String>, Vec<String>) {
    let documents = [Document::parse(text)];
    let signed = active_signatures(&documents);
    let plain = |text: &str| text.replace(['*', '_'], "");
    let describe = |decision: &str, signature: &super::signature::Signature<'_>| {
        let fields = ["id", "domain", "subject", "predicate", "object", "modality", "priority"];
        let values: Vec<_> = fields.iter().map(|key| plain(signature.text(key))).collect();
        let lists = [signature.scope("projects"), signature.scope("channels")];
        format!(
            "{decision} {values:?} {} {lists:?} {:?} {}",
            plain(&signature.axis),
            signature.time(),
            signature.exclusive()
        )
    };
    let all = signed.iter().flat_map(|(decision, signatures)| signatures.iter().map(|one| describe(decision, one)));
    let all = all.collect();
    let (found, _) = contradictions(&contradiction_sides(&signed), limits::CONTRADICTIONS_MAX);
    let found = found.iter().map(|found| format!("{} {} {:?}", found.a.name(), found.b.name(), found.severity));
    (all, found.collect())
}

#[test]
fn no_formatter_loses_a_constraint() {
    let (mut total, mut conflicts) = (0, 0);
    let mut read: BTreeMap<&str, usize> = BTreeMap::new();
    for case in 1..=20 {
        let original = text(case, "original");
        assert!(
            Document::parse(&original).findings().is_empty(),
            "case {case}: {:?}",
            Document::parse(&original).findings()
        );
        let expected = constraints(&original);
        total += expected.0.len();
        conflicts += expected.1.len();
        for formatter in FORMATTERS {
            let formatted = text(case, formatter);
            let document = Document::parse(&formatted);
            assert_eq!(document.to_string(), formatted, "printing is lossless");
            if document.findings().is_empty() {
                assert_eq!(constraints(&formatted), expected, "case {case}, {formatter}");
                *read.entry(formatter).or_default() += 1;
            }
        }
    }
    println!("{total} constraints, {conflicts} contradictions; read without a finding: {read:?} of 20 each");
    assert!(total >= 100 && conflicts >= 20, "{total} constraints, {conflicts} contradictions");
    // The others have continued statements, whose indent formatters remove: these are reported.
    assert!(FORMATTERS.iter().all(|formatter| read.get(formatter).is_some_and(|read| *read >= 15)), "{read:?}");
}

fn scan(decisions: &str) -> (super::scan::ScanReport, MemoryState) {
    let mut texts = WorkspaceTexts::default();
    texts.set("decisions/DECISIONS.md", decisions);
    texts.set(STATE_FILE, r#"{"governance_mode": "detect_only", "clean_days": 6, "last_clean_day": "2026-02-19"}"#);
    let day = jiff::civil::date(2026, 2, 20);
    let (report, writes) = super::scan::scan(&texts, &MemoryConfig::default(), day, "t").unwrap();
    let state = MemoryState::read(Some(writes.draft(STATE_FILE, "")));
    (report, state)
}

/// Two decisions that contradict each other, and what formatters and people do to them.
#[test]
fn a_contradiction_is_found_or_the_scan_says_what_it_did_not_read() {
    let decision = |number: usize, modality: &str| {
        format!(
            "[D-20260101-00{number}]\nDate: 2026-01-01\nStatus: active\nScope: global\nStatement: s\nRationale: r\n\
             Supersedes: none\nTags: x\nSources:\n- chat:1\nConstraintSignatures:\n- id: CS-{number}\n  domain: workflow\n  \
             subject: db\n  predicate: use\n  object: Redis\n  modality: {modality}\n  priority: 8\n  \
             scope: {{projects: [], channels: [], time: {{}}}}\n  evidence: e\n"
        )
    };
    let both = decision(1, "must") + "\n" + &decision(2, "must_not");
    let clean = decision(1, "must") + "\n" + &decision(2, "must").replace("CS-1", "CS-2");
    let (report, state) = scan(&clean);
    assert_eq!((report.contradictions.len(), report.unread.len()), (0, 0), "a healthy file");
    assert!(state.flag("flip_gate_week1_clean"), "the seventh clean day");
    let edits: [(&str, &str, &str); 9] = [
        ("nothing", "", ""),
        ("a blank line before the list", "Signatures:\n- id:", "Signatures:\n\n- id:"),
        ("the key as part of the list item", "\nConstraintSignatures:", "\n  ConstraintSignatures:"),
        ("a blank line in a signature", "  subject:", "\n  subject:"),
        ("tabs", "\n  ", "\n\t"),
        ("prose between the fields", "\nConstraintSignatures:", "\n\nSee below.\n\nConstraintSignatures:"),
        ("a heading of the header", "\n[D-20260101-002]", "\n## [D-20260101-002]"),
        ("an escaped header", "\n[D-20260101-002]", "\n\\[D-20260101-002\\]"),
        ("a quoted header", "\n[D-20260101-002]", "\n> [D-20260101-002]"),
    ];
    for (what, from, to) in edits {
        let (report, state) = scan(&if from.is_empty() { both.clone() } else { both.replace(from, to) });
        let seen = report.contradictions.len() == 1 || !report.unread.is_empty();
        assert!(seen, "{what}: {:?} {:?}", report.contradictions, report.unread);
        assert!(!state.flag("flip_gate_week1_clean"), "{what}: the clean days stop");
    }
    let joined = both.replace(":\n", ": ").replace("\nDate", " Date").replace("\n  ", " ");
    assert!(!scan(&joined).0.unread.is_empty(), "lines that were wrapped into one");
}
