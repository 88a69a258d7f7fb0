//! A session with a memory: what it reads from it, and what it proposes to it.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::{NEED, scripts};
use crate::program::{loom, told};

#[track_caller]
fn does(folder: &Path, arguments: &[&str]) -> String {
    let output = loom(folder, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", told(&output));
    told(&output)
}

/// A memory that knows something of students, in the mode that takes proposals.
fn memory(root: &Path) {
    scripts(root);
    does(root, &["memory", "init", "notes"]);
    fs::write(
        root.join("notes/decisions/DECISIONS.md"),
        "# Decisions\n\n[D-20260101-001]\nDate: 2026-01-01\nStatus: active\nScope: global\nStatement: A student talks in short questions\nRationale: seen in ten runs\nSupersedes: none\nTags: persona\nSources:\n- run:1\n\n[D-20260101-002]\nDate: 2026-01-01\nStatus: active\nScope: global\nStatement: Use SQLite for the cache\nRationale: small\nSupersedes: none\nTags: storage\nSources:\n- chat:2\n",
    )
    .unwrap();
    set_mode(root, "propose");
}

fn set_mode(root: &Path, mode: &str) {
    let path = root.join("notes/memory/intel-state.json");
    let mut state: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let key = ["governance_mode", "mode"].into_iter().find(|key| state.get(key).is_some()).unwrap();
    state[key] = serde_json::json!(mode);
    fs::write(&path, serde_json::to_string_pretty(&state).unwrap()).unwrap();
}

fn start<'a>(output: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["session", "start", NEED, "--engagement", "autonomous", "--turns", "2"];
    arguments.extend(["--model", "scripted:model", "--persona-model", "scripted:persona"]);
    arguments.extend(["--target", "scripted:target", "--memory", "notes", "--output", output]);
    arguments.extend(more);
    arguments
}

#[test]
fn the_memory_is_searched_and_the_verdict_is_proposed_once() {
    let root = TempDir::new().unwrap();
    memory(root.path());
    let before = fs::read_to_string(root.path().join("notes/decisions/DECISIONS.md")).unwrap();
    let said = does(root.path(), &start("s", &[]));
    assert!(said.contains("[KNOWN] D-20260101-001 active:") && !said.contains("D-20260101-002"), "{said}");
    assert!(said.contains("The verdict was proposed to the memory"), "{said}");
    let brief = fs::read_to_string(root.path().join("s/brief.md")).unwrap();
    assert!(brief.contains("## Related entries in the memory") && brief.contains("D-20260101-001"), "{brief}");
    // A proposal is no decision: a person applies it.
    assert_eq!(fs::read_to_string(root.path().join("notes/decisions/DECISIONS.md")).unwrap(), before);
    let review = does(root.path(), &["memory", "review", "notes"]);
    assert!(review.contains("the session s, report"), "{review}");
    let proposed = proposals(root.path());
    assert_eq!(proposed.matches("Verdict on \"Look at how a student talks\": cannot tell").count(), 1, "{proposed}");

    // Searching and proposing are asked for, with receipts in the session's own log.
    let log = fs::read_to_string(root.path().join("s/receipts.jsonl")).unwrap();
    let search = log.lines().find(|line| line.contains("gate.granted") && line.contains("\"memory_read\"")).unwrap();
    let propose =
        log.lines().find(|line| line.contains("gate.granted") && line.contains("\"memory_propose\"")).unwrap();
    assert!(search.contains("\"seq\"") && propose.contains("\"seq\""));
    assert!(log.contains("\"tool\":\"memory_propose\"") && !log.contains("\"memory_apply\""), "{log}");

    // Taken up again, it proposes nothing twice.
    does(root.path(), &["session", "resume", "s"]);
    assert_eq!(proposals(root.path()).matches("[P-").count(), proposed.matches("[P-").count());
    does(root.path(), &["receipts", "verify", "s"]);
}

#[test]
fn an_unusable_memory_does_not_stop_a_session() {
    let root = TempDir::new().unwrap();
    memory(root.path());
    set_mode(root.path(), "detect_only");
    let said = does(root.path(), &start("s", &[]));
    assert!(said.contains("The verdict was not proposed to the memory"), "{said}");
    assert_eq!(proposals(root.path()).matches("[P-").count(), 0);

    fs::write(root.path().join("notes/memory/intel-state.json"), "{").unwrap();
    let said = does(root.path(), &start("again", &[]));
    assert!(said.contains("SHIP") || said.contains("MONITOR") || said.contains("RESEARCH"), "{said}");
    assert!(fs::read_to_string(root.path().join("again/report.md")).unwrap().contains("## Results"));
}

/// All that was ever proposed.
fn proposals(root: &Path) -> String {
    let mut text = String::new();
    // The folder is made with the first proposal.
    for entry in fs::read_dir(root.join("notes/intelligence/proposed")).into_iter().flatten() {
        text += &fs::read_to_string(entry.unwrap().path()).unwrap();
    }
    text
}
