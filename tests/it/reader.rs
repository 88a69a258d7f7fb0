//! A results folder read by someone else: the report explains its numbers and what was left out of prompts,
//! `docs/FORMATS.md` explains every field, and errors about wrong paths name the right one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{ends, loom, told};
use crate::rollout::ANNA;

/// A folder with a run of two turns by the bundled model, whose prompt budget is too small for this `anna.yaml`.
fn handed() -> TempDir {
    let dir = TempDir::new().unwrap();
    let habit = |n| format!("    - \"Mentions bed {n} of the ward and how often its alarm rang during the night\"\n");
    let habits: String = (0..150).map(habit).collect();
    let config = ANNA.replace("schema_version", "# Kept in the run.\nschema_version");
    let config = config.replace("  speech_patterns:\n", &format!("  speech_patterns:\n{habits}"));
    fs::write(dir.path().join("anna.yaml"), config).unwrap();
    let output = loom(dir.path(), &["run", "anna.yaml", "--turns", "2", "--output", "runs/a"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(messages.contains("The persona's prompt exceeds its model's prompt budget"), "{messages}");
    assert!(messages.contains("1 rollout, 2 turns, seed 0"), "{messages}");
    dir
}

#[test]
fn a_report_explains_itself() {
    let dir = handed();
    let read = |name: &str| fs::read_to_string(dir.path().join("runs/a").join(name)).unwrap();
    let report: Value = serde_json::from_str(&read("report.json")).unwrap();
    let left_out = report["prompts"]["left_out"].as_array().unwrap();
    assert!(!left_out.is_empty(), "{report:#}");
    for form in ["report.md", "report.html"] {
        let text = read(form);
        assert!(text.contains("The model cannot follow instructions that it did not get."), "{form}");
        assert!(text.contains("low is going in circles"), "{form}: novelty is explained");
    }
    let turn: Value = serde_json::from_str(&read("rollout_000.json")).unwrap();
    let dropped = turn["turns"][0]["prompt"]["dropped"].as_array().unwrap();
    assert!(dropped.iter().all(|one| left_out.iter().any(|row| row["item"] == one["item"])), "{left_out:#?}");
}

#[test]
fn errors_about_wrong_paths_name_the_right_one() {
    let dir = handed();
    let check = |arguments: &[&str], expected: &str| {
        let told = ends(dir.path(), 2, arguments);
        assert!(told.contains(expected), "{arguments:?}: {told}");
    };
    check(&["report", "runs"], "name one of them, such as runs/a");
    check(&["compare", "runs/a", "runs"], "such as runs/a");
    check(&["report", "anna.yaml"], "anna.yaml is not a transcript");
    check(&["report", "runs/a", "--output", "report.pdf"], "write HTML and print it");
    check(&["report", "runs/a", "--output", "report.docx"], "--format");
    check(&["run", "anna.yaml", "--seed", "-1"], "write a whole number");
    check(&["run", "anna.yaml", "--rollouts", "four"], "write a whole number");
    check(&["run", "anna.yaml", "--output", "anna.yaml"], "anna.yaml is a file, and a run needs a folder");
    assert!(!dir.path().join("report.docx").exists() && !dir.path().join("report.pdf").exists());
    ends(dir.path(), 0, &["report", "runs/a", "--output", "report.docx", "--format", "md"]);
}

#[test]
fn a_comparison_names_the_adversaries() {
    let dir = handed();
    let run = ["run", "anna.yaml", "--turns", "2", "--adversary", "contradiction", "--seed", "7", "--output", "runs/b"];
    ends(dir.path(), 0, &run);
    let told = ends(dir.path(), 0, &["compare", "runs/a", "runs/b"]);
    let row = |name: &str| -> Vec<String> {
        let line = told.lines().find(|line| line.starts_with(&format!("| {name} "))).unwrap();
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    assert_eq!(row("Other side")[2..4], ["no adversary", "contradiction adversary"]);
    assert_eq!(row("Seed")[2..4], ["0", "7"]);
}

#[test]
fn every_field_is_explained() {
    let dir = handed();
    ends(dir.path(), 0, &["score", "runs/a"]);
    let run = dir.path().join("runs/a");
    let page = include_str!("../../docs/FORMATS.md").to_owned() + include_str!("../../docs/REGULATOR.md");
    let words: BTreeSet<&str> = page.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).collect();
    let mut unknown = BTreeSet::new();
    for name in ["rollout_000.json", "run.json", "report.json"] {
        fields(&json(&run, name), name, &mut |path, key| {
            if !words.contains(key) {
                unknown.insert(format!("{path}.{key}"));
            }
        });
    }
    let line = fs::read_to_string(run.join("rollout_000.tokens.jsonl")).unwrap();
    fields(&serde_json::from_str(line.lines().next().unwrap()).unwrap(), "tokens", &mut |path, key| {
        if !words.contains(key) {
            unknown.insert(format!("{path}.{key}"));
        }
    });
    assert!(unknown.is_empty(), "docs/FORMATS.md explains none of {unknown:#?}");
}

fn json(run: &Path, name: &str) -> Value {
    serde_json::from_slice(&fs::read(run.join(name)).unwrap()).unwrap()
}

/// Calls `see` with the path and the name of every field in `value`.
fn fields(value: &Value, path: &str, see: &mut impl FnMut(&str, &str)) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                see(path, key);
                fields(value, &format!("{path}.{key}"), see);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| fields(value, path, see)),
        _ => {}
    }
}
