//! The permits of a run, by its receipts: every call of a model counts, and is asked for before the model is opened.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{self, command, ends, told};

const BANNED: &str = "Have you ever felt that?";

/// A folder with scripts, and a config in which `changes` are made.
fn folder(persona: &str, changes: &[(&str, &str)]) -> TempDir {
    let dir = TempDir::new().unwrap();
    let mut yaml = crate::rollout::ANNA.to_owned();
    for (from, to) in changes {
        assert!(yaml.contains(from), "{from}");
        yaml = yaml.replace(from, to);
    }
    for (name, text) in [("anna.yaml", yaml.as_str()), ("persona", persona), ("target", "Go on.")] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn receipts(dir: &Path, kind: &str) -> Vec<Value> {
    let log = fs::read_to_string(dir.join("run/receipts.jsonl")).unwrap();
    let all = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|receipt| receipt["kind"] == kind).map(|receipt| receipt["body"].clone()).collect()
}

/// The calls permitted to a role: by the lease that was granted second (the persona) or third (the interlocutor).
fn permitted(dir: &Path, lease: u64) -> Vec<u64> {
    let granted = receipts(dir, "gate.granted").into_iter().map(|body| body["request"].clone());
    let of_role = granted.filter(|request| request["lease"] == lease);
    of_role.map(|request| request["effect"]["cost"]["calls"].as_u64().unwrap()).collect()
}

fn transcript(dir: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(dir.join("run/rollout_000.json")).unwrap()).unwrap()
}

#[test]
fn a_turn_is_permitted_all_drafts_that_it_can_make() {
    let changes = [("max_retries: 2", "max_retries: 10\nregulator:\n  max_regenerations: 9")];
    let dir = folder(BANNED, &changes);
    let models = ["--persona-model", "scripted:persona", "--target", "scripted:target", "--no-score"];
    ends(dir.path(), 0, &[&["run", "anna.yaml", "--turns", "2", "--output", "run"], models.as_slice()].concat());
    let attempts: Vec<usize> = transcript(dir.path())["turns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|turn| turn["persona"]["attempts"].as_array().unwrap().len() + 1)
        .collect();
    // The banned phrase is in every draft, so all redrafts are used.
    assert_eq!(attempts, [11, 11]);
    // One draft, ten redrafts, nine regenerations, a retry after a failure, the reading of the forbidden phrases,
    // and two readings of what was said before: an instruction that is replaced, and a thought that is left out.
    assert_eq!(permitted(dir.path(), 1), [24, 24]);
    assert_eq!(permitted(dir.path(), 2), [4, 4]);
    let called = &receipts(dir.path(), "run.handed_off")[0]["models"];
    assert_eq!(
        (called["scripted:persona"]["calls"].as_u64(), called["scripted:target"]["calls"].as_u64()),
        (Some(22), Some(2))
    );
}

#[test]
fn probes_and_readings_of_forbidden_phrases_count_as_calls() {
    let dir = folder("Hello.", &[]);
    let adversary = fs::read_to_string(program::root().join("configs/adversaries/contradiction.yaml")).unwrap();
    let probes = "\nprobes: [\"What is your name?\"]\nprobe_every: 2\n";
    fs::write(dir.path().join("adversary.yaml"), adversary + probes).unwrap();
    let models = ["--persona-model", "bundled", "--adversary-model", "scripted:target", "--no-score"];
    let run = ["run", "anna.yaml", "--adversary-file", "adversary.yaml", "--turns", "6", "--output", "run"];
    ends(dir.path(), 0, &[run.as_slice(), models.as_slice()].concat());
    let transcript = transcript(dir.path());
    let turns = transcript["turns"].as_array().unwrap();
    let len = |value: &Value| value.as_array().map_or(0, Vec::len) as u64;
    let probes: u64 = turns.iter().map(|turn| len(&turn["probes"])).sum();
    let drafts: u64 = turns.iter().map(|turn| 1 + len(&turn["persona"]["attempts"])).sum();
    let tokens = fs::read_to_string(dir.path().join("run/rollout_000.tokens.jsonl")).unwrap();
    let readings = tokens.lines().filter(|line| line.contains("\"beginnings\":[{")).count() as u64;
    assert!(probes == 3 && readings > 0, "{probes} {readings}");
    let called = receipts(dir.path(), "run.handed_off")[0]["models"]["bundled"]["calls"].as_u64().unwrap();
    // And at most one reading a turn of what was said before an instruction that is replaced.
    let counted = drafts + probes + readings;
    assert!((counted..=counted + turns.len() as u64).contains(&called), "{called} {counted}");
    // A turn with probes is permitted more calls than one without.
    let permitted = permitted(dir.path(), 1);
    // No call was made without the permit of its turn: that would have been permitted by itself.
    assert_eq!(permitted.len(), turns.len(), "{permitted:?}");
    assert!(
        permitted.iter().sum::<u64>() >= called && permitted.iter().min() < permitted.iter().max(),
        "{permitted:?}"
    );
}

#[test]
fn a_run_whose_model_cannot_be_opened_leaves_no_folder() {
    let dir = folder("Hello.", &[]);
    let told = ends(dir.path(), 5, &["run", "anna.yaml", "--persona-model", "local:nowhere", "--output", "new/run"]);
    assert!(told.contains("nowhere") && !dir.path().join("new").exists(), "{told}");
    // A folder that was there stays.
    fs::create_dir(dir.path().join("old")).unwrap();
    ends(dir.path(), 5, &["run", "anna.yaml", "--persona-model", "local:nowhere", "--output", "old"]);
    let models =
        ["--persona-model", "scripted:persona", "--target", "scripted:target", "--no-score", "--output", "old"];
    ends(dir.path(), 0, &[&["run", "anna.yaml"], models.as_slice()].concat());
}

#[test]
fn without_receipts_no_model_is_opened() {
    let dir = folder("Hello.", &[]);
    // The key that signs receipts cannot be read: it is a folder.
    fs::create_dir_all(dir.path().join(".local/share/loom/key")).unwrap();
    let arguments = ["run", "anna.yaml", "--persona-model", "local:nowhere", "--output", "run"];
    let output = command(dir.path(), &arguments).output().unwrap();
    assert!(!told(&output).contains("nowhere"), "{}", told(&output));
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
}
