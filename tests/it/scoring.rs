//! `loom score` with dated templates, on sweeps, and on damaged files.

use std::fs;
use std::path::Path;

use loom_agent::simulation::rollout::{Score, read_transcript};
use serde_json::Value;
use tempfile::TempDir;

use crate::program::ends;
use crate::rollout::ANNA;

/// The output of a command that must exit with `code`.
#[track_caller]
fn told(dir: &Path, arguments: &[&str], code: i32) -> String {
    ends(dir, code, arguments)
}

fn scores(path: &Path) -> Vec<Score> {
    read_transcript(path).unwrap().scores
}

/// A folder with Anna, a persona's script, two judges and a template that uses the date.
fn folder() -> TempDir {
    let dir = TempDir::new().unwrap();
    let dated = "{{ strftime_now('%d %B %Y') }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    for (name, text) in [
        ("anna.yaml", ANNA),
        ("p.json", r#"["I count them.", "They ring."]"#),
        ("four.json", r#"["{\"rating\": 4}"]"#),
        ("two.json", r#"["{\"rating\": 2}"]"#),
        ("dated.jinja", dated),
    ] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

#[test]
fn a_template_that_uses_the_date_gets_the_runs() {
    let dir = folder();
    let run = ["run", "anna.yaml", "--turns", "2", "--target", "echo", "--judge-model", "bundled", "--no-score"];
    told(dir.path(), &[&run[..], &["--chat-template", "dated.jinja", "--output", "run"]].concat(), 0);
    let path = dir.path().join("run/rollout_000.json");
    let again = ["score", "run", "--again"];
    let scored = |date: &str| {
        let manifest = dir.path().join("run/run.json");
        let mut value: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
        value["created_at"] = date.into();
        fs::write(&manifest, value.to_string()).unwrap();
        told(dir.path(), &again, 0);
        scores(&path)
    };
    let first = scored("2026-01-01T10:00:00Z");
    let later = scored("2026-02-03T10:00:00Z");
    assert_eq!(scored("2026-01-01T10:00:00Z"), first);
    let of = |scores: &[Score]| scores.iter().find(|score| score.id == "naturalness/1").unwrap().clone();
    let (first, later) = (of(&first), of(&later));
    assert!(first.value.is_some(), "{first:?}");
    assert_ne!(first.value, later.value, "the judge's template got another date");
}

#[test]
fn damaged_files_are_named_and_the_others_scored() {
    let dir = folder();
    let at = dir.path();
    let models = ["--persona-model", "scripted:p.json", "--target", "echo", "--no-score", "--output", "run"];
    told(at, &[&["run", "anna.yaml", "--turns", "2", "--rollouts", "3"], &models[..]].concat(), 0);
    let cut = at.join("run/rollout_001.json");
    let whole = fs::read_to_string(&cut).unwrap();
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let score = ["score", "run", "run/rollout_000.json", "--judge-model", "scripted:four.json", "--likelihood", "off"];
    let output = told(at, &score, 2);
    assert!(output.contains("run/rollout_001.json, line ") && output.contains("EOF while parsing"), "{output}");
    assert!(!output.contains("mania-bench"), "{output}");
    for (name, times) in [("rollout_000.json  ", 1), ("rollout_002.json  ", 1)] {
        assert_eq!(output.matches(name).count(), times, "{output}");
    }

    // Scores next to an imported file: computed once, and not overwritten if unreadable.
    fs::write(at.join("talk.jsonl"), r#"{"messages": [{"role": "assistant", "content": "Hello there."}]}"#).unwrap();
    let score = ["score", "talk.jsonl", "--judge-model", "none"];
    assert!(told(at, &score, 0).contains(" scores in talk.jsonl.scores.json"));
    assert!(told(at, &score, 0).contains("already scored"));
    let kept = at.join("talk.jsonl.scores.json");
    let whole = fs::read_to_string(&kept).unwrap();
    for (text, why) in [
        (whole.replace("\"version\": 1", "\"version\": 9"), "version 9 is not known"),
        (whole[..40].to_owned(), "is damaged: move it away"),
    ] {
        fs::write(&kept, &text).unwrap();
        let output = told(at, &score, 2);
        assert!(output.contains("talk.jsonl.scores.json: ") && output.contains(why), "{output}");
        assert_eq!(fs::read_to_string(&kept).unwrap(), text, "it stays as it was");
    }
}

#[test]
fn outdated_reports_are_named() {
    let dir = folder();
    let at = dir.path();
    let run = ["run", "anna.yaml", "--turns", "2", "--persona-model", "scripted:p.json", "--target", "echo"];
    let reported =
        told(at, &[&run[..], &["--output", "run", "--score", "--judge-model", "scripted:four.json"]].concat(), 0);
    assert!(reported.contains("Report: ") && !reported.contains("older"), "{reported}");
    let by = |judge: &str| told(at, &["score", "run", "--judge-model", &format!("scripted:{judge}.json")], 0);
    assert!(!by("four").contains("older"), "nothing has changed");
    let later = by("two");
    assert!(later.contains("The report in run is older than these scores: loom report run"), "{later}");
}

#[test]
fn a_sweep_is_scored_as_a_whole_and_by_shards() {
    let dir = folder();
    let at = dir.path();
    let sweep = "sweep_version: \"0.1.0\"\nconfigs: [anna.yaml]\npersona_models: [\"scripted:p.json\"]\n\
                 targets: [echo]\nseeds: [0, 1]\nturns: 2\n";
    fs::write(at.join("sweep.yaml"), sweep).unwrap();
    told(at, &["sweep", "sweep.yaml", "--output", "whole"], 0);
    for (shard, part) in [("1/2", "one"), ("2/2", "two")] {
        told(at, &["sweep", "sweep.yaml", "--shard", shard, "--output", part], 0);
    }
    let by = |folder: &str, judge: &str| {
        told(at, &["score", folder, "--judge-model", &format!("scripted:{judge}.json"), "--likelihood", "off"], 0)
    };
    for folder in ["whole", "one", "two"] {
        let output = by(folder, "four");
        let merge = format!("loom merge {folder} --output {folder}");
        assert_eq!(output.contains(&merge), folder == "whole", "a shard has no report: {output}");
    }
    let merge =
        |parts: &[&str], output: &str, code| told(at, &[&["merge"], parts, &["--output", output]].concat(), code);
    merge(&["whole"], "whole", 0);
    merge(&["one", "two"], "merged", 0);
    let report = |folder: &str| fs::read(at.join(folder).join("sweep_report.json")).unwrap();
    assert_eq!(report("merged"), report("whole"));
    let cell = |folder: &str| scores(&at.join(folder).join("cell_0001/rollout_000.json"));
    assert_eq!(cell("merged"), cell("whole"));
    assert!(!cell("merged").is_empty());

    // Scores of different judges are merged; different values of the same judge are a conflict.
    by("one", "two");
    merge(&["merged", "one", "two"], "all", 0);
    let judges: Vec<String> = scores(&at.join("all/cell_0000/rollout_000.json"))
        .into_iter()
        .filter(|score| score.id == "naturalness/1")
        .map(|score| format!("{} {}", score.judge.unwrap().model, score.value.unwrap()))
        .collect();
    assert_eq!(judges, ["scripted:four.json 0.75", "scripted:two.json 0.25"]);
    fs::write(at.join("four.json"), r#"["{\"rating\": 5}"]"#).unwrap();
    told(at, &["score", "two", "--judge-model", "scripted:four.json", "--likelihood", "off", "--again"], 0);
    let conflict = merge(&["merged", "two"], "none", 1);
    assert!(conflict.contains("persona_adherence/1") && conflict.contains("cell 1"), "{conflict}");
    assert!(!at.join("none").exists(), "nothing is written before everything is checked");
}
