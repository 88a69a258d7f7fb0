//! Reports on rollouts between scripted models.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use loom_agent::inference::providers::OpenOptions;
use loom_agent::simulation::persona::{AdversaryKind, parse};
use loom_agent::simulation::report::{Report, ReportError, load};
use loom_agent::simulation::rollout::{Observer, Run, RunPlan, StopFlag, turns};
use tempfile::TempDir;

const ANNA: &str = include_str!("../data/report/anna.yaml");

/// A run of `rollouts` in `folder`. The scripts are named as seen from the repository's root, so the names are stable.
pub(crate) fn run(folder: &Path, rollouts: usize) {
    let config = Arc::new(parse("anna.yaml", ANNA).unwrap());
    let plan = RunPlan {
        adversary_script: None,
        yaml: ANNA.to_owned(),
        seed: 42,
        rollouts,
        turns: turns(&config, None).unwrap(),
        adversary: AdversaryKind::None,
        persona: "scripted:tests/data/report/persona.json".parse().unwrap(),
        interlocutor: "scripted:tests/data/report/interlocutor.json".parse().unwrap(),
        judge: "echo".parse().unwrap(),
        regulator: config.regulator,
        calibration: None,
        config,
    };
    let run = Run::create(&plan, folder, &OpenOptions::default()).unwrap();
    let observer: Observer = Arc::new(|_| {});
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run.play(1, &observer, &StopFlag::default())).unwrap();
}

/// The report without what a clock measured, nor how long the prompts are: that is the templates' matter.
fn timeless(folder: &Path) -> Report {
    let mut report = Report::on(folder).unwrap();
    report.timing.began = "2026-01-01T00:00:00Z".into();
    report.timing.seconds = 12.0;
    report.timing.tokens_per_second = Some(50.0);
    report.persona_side.tokens.tokens_in = 96_000;
    report
}

#[test]
fn a_report_reads_well() {
    let folder = TempDir::new().unwrap();
    run(folder.path(), 3);
    let mut report = timeless(folder.path());
    insta::assert_snapshot!("report_markdown", report.markdown(Some("curves.svg")));
    // One of each kind is enough to see the form.
    report.turns.truncate(1);
    report.rollouts.truncate(1);
    report.rollouts[0].measures.truncate(1);
    report.events.truncate(1);
    report.flags.truncate(1);
    insta::assert_json_snapshot!("report_json", report);
}

#[test]
fn the_same_transcripts_give_the_same_bytes() {
    let folder = TempDir::new().unwrap();
    run(folder.path(), 2);
    let written = || {
        Report::on(folder.path()).unwrap().write_to(folder.path()).unwrap();
        ["report.md", "report.json", "curves.svg"].map(|name| fs::read(folder.path().join(name)).unwrap())
    };
    assert_eq!(written(), written());

    let again = TempDir::new().unwrap();
    run(again.path(), 2);
    assert_eq!(timeless(folder.path()).markdown(None), timeless(again.path()).markdown(None));
}

#[test]
fn a_rollout_under_way_is_reported_as_far_as_it_is() {
    let folder = TempDir::new().unwrap();
    run(folder.path(), 2);
    // What a killed process leaves: the first rollout, and of the second a head, three turns and half a line.
    let path = folder.path().join("rollout_001.json");
    let mut head: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let turns = head["turns"].as_array_mut().map(std::mem::take).unwrap();
    head["outcome"] = serde_json::json!({"status": "unfinished"});
    let mut lines = head.to_string() + "\n";
    for turn in turns.iter().take(3) {
        lines += &(serde_json::json!({"turn": turn, "tokens": []}).to_string() + "\n");
    }
    lines += r#"{"turn": {"index": 3, "pha"#;
    let partial = folder.path().join("rollout_001.partial.jsonl");
    fs::write(&partial, &lines).unwrap();
    fs::remove_file(&path).unwrap();

    let report = Report::on(folder.path()).unwrap();
    assert_eq!(report.rollouts[1].turns, 3);
    let markdown = report.markdown(None);
    assert!(markdown.contains("1 of 2 rollouts finished, 1 under way"), "{markdown}");
    assert_eq!(fs::read_to_string(&partial).unwrap(), lines, "reading leaves the file as it is");
}

#[test]
fn what_is_no_run_says_so() {
    let folder = TempDir::new().unwrap();
    assert!(matches!(load(folder.path()), Err(ReportError::Empty { .. })));
    fs::write(folder.path().join("rollout_000.json"), "{}").unwrap();
    let error = Report::on(folder.path()).unwrap_err().to_string();
    assert!(error.contains("rollout_000.json") && error.contains("line 1"), "{error}");
}
