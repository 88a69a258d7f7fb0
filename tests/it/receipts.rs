//! `loom receipts` as a process: a log of moods and permits is verified, damaged, exported and replayed.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;

use jiff::Timestamp;
use loom_agent::foundation::gate::LedgerEntry;
use loom_agent::foundation::store::RealDisk;
use loom_agent::foundation::store::receipts::{ReceiptKey, ReceiptLog};
use loom_agent::governance::mood::{MoodEvent, MoodFacts, MoodState, step, step_entry};
use serde_json::{Value, json};

use crate::program::{self, told};

fn loom(home: &Path, arguments: &[&str]) -> Output {
    let mut command = program::command(&program::root(), arguments);
    command.env("XDG_DATA_HOME", home).args(["--color", "never"]).output().unwrap()
}

fn expect(home: &Path, code: i32, arguments: &[&str]) -> String {
    let output = loom(home, arguments);
    assert_eq!(output.status.code(), Some(code), "{}", told(&output));
    told(&output)
}

/// A log of a few steps in `folder`, signed with the key in `home`.
fn write_log(home: &Path, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let key = Arc::new(ReceiptKey::open(&home.join("loom/key")).unwrap());
    let at = Timestamp::from_second(1_700_000_000).unwrap();
    let (mut log, _) = ReceiptLog::open(Arc::new(RealDisk::new(folder)), key, at).unwrap();
    let entered = MoodState::enter(MoodFacts::NONE);
    let mut entries = vec![step_entry(None, MoodFacts::NONE, &entered)];
    let mut state = entered.state;
    for event in [
        MoodEvent::VerifiersFailed,
        MoodEvent::RiskGrew,
        MoodEvent::Mitigated,
        MoodEvent::VerifiersPassed,
        MoodEvent::Ambiguous,
    ] {
        let after = step(&state, &event);
        entries.push(step_entry(Some(&event), MoodFacts::NONE, &after));
        state = after.state;
    }
    let text = log.contents().put(b"what the user said").unwrap();
    entries[0] = entries[0].clone().with_content("need", text);
    log.commit(at, &entries).unwrap();
    log.erase(text, at).unwrap();
    log.seal().unwrap();
}

#[test]
fn a_log_is_verified_shown_exported_and_replayed_and_damage_is_located() {
    let folder = tempfile::tempdir().unwrap();
    let (home, run) = (folder.path().join("home"), folder.path().join("run"));
    write_log(&home, &run);
    let path = run.to_str().unwrap();
    let verified = expect(&home, 0, &["receipts", "verify", path]);
    assert!(verified.starts_with("8 receipts, 8 signed, 1 texts erased; last "), "{verified}");
    let shown = expect(&home, 0, &["receipts", "show", path, "--kind", "mood."]);
    assert_eq!(shown.lines().count(), 6, "{shown}");
    let spans: Value =
        serde_json::from_str(&expect(&home, 0, &["receipts", "export", path, "--format", "otlp"])).unwrap();
    assert_eq!(spans["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().len(), 8);
    assert_eq!(spans["resourceSpans"][0]["resource"]["attributes"][0]["value"], json!({"stringValue": "loom"}));
    let replayed = expect(&home, 0, &["mood", "replay", path]);
    assert!(replayed.ends_with("6 steps replayed, all as recorded; final mood BOLD\n"), "{replayed}");

    let log = run.join("receipts.jsonl");
    let whole = fs::read_to_string(&log).unwrap();
    let lines: Vec<_> = whole.split_inclusive('\n').collect();
    let damaged = [
        (whole.replacen("verifiers_failed", "verifiers_passed", 1), "line 3: the receipt was altered"),
        ([&lines[..4], &lines[5..]].concat().concat(), "line 5: expected receipt 4, found receipt 5"),
        (
            [&lines[..4], &[lines[5], lines[4]], &lines[6..]].concat().concat(),
            "line 5: expected receipt 4, found receipt 5",
        ),
        (lines[..6].concat(), "line 7: the log was truncated: 8 receipts were signed, 6 are left"),
    ];
    for (text, expected) in damaged {
        fs::write(&log, text).unwrap();
        let told = expect(&home, 1, &["receipts", "verify", path]);
        assert!(told.contains(expected), "{told}");
    }
    fs::write(&log, whole).unwrap();
    let told = expect(&folder.path().join("other"), 0, &["receipts", "verify", path]);
    assert!(told.contains("any signature is accepted"), "{told}");
    let told = expect(&home, 1, &["receipts", "verify", path, "--key", &"ab".repeat(32)]);
    assert!(told.contains("signed with another key"), "{told}");
    fs::remove_file(run.join("receipts.head")).unwrap();
    assert!(expect(&home, 1, &["receipts", "verify", path]).contains("no signed head"));
}

#[test]
fn erasing_a_text_keeps_the_chain_valid() {
    let folder = tempfile::tempdir().unwrap();
    let (home, run) = (folder.path().join("home"), folder.path().join("run"));
    fs::create_dir_all(&run).unwrap();
    let key = Arc::new(ReceiptKey::open(&home.join("loom/key")).unwrap());
    let at = Timestamp::from_second(1_700_000_000).unwrap();
    let (mut log, _) = ReceiptLog::open(Arc::new(RealDisk::new(&run)), key, at).unwrap();
    let texts =
        ["what the user said", "what the user said later"].map(|text| log.contents().put(text.as_bytes()).unwrap());
    let entries = texts.map(|text| LedgerEntry::new("session.answered", json!({})).with_content("answer", text));
    log.commit(at, &entries).unwrap();
    drop(log);
    let path = run.to_str().unwrap();
    let first = texts[0].to_string();
    assert!(expect(&home, 2, &["receipts", "erase", path, "ffffffff"]).contains("exactly one digest"));
    assert!(expect(&home, 2, &["receipts", "erase", path, &first[..4]]).contains("exactly one digest"));
    expect(&home, 0, &["receipts", "erase", path, &first[..8]]);
    let verified = expect(&home, 0, &["receipts", "verify", path]);
    assert!(verified.contains("1 texts erased"), "{verified}");
    assert!(!run.join("contents").join(&first).exists() && run.join("contents").join(texts[1].to_string()).exists());
}
