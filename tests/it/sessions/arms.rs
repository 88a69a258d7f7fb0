//! Sessions with two arms: the persona against its ablation, two targets, two configs; what is registered before the first
//! rollout, what the finding depends on, and what is sealed.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use crate::program::{self, loom, told};

/// A persona's model that speaks at length if it is given `cue`, and shortly otherwise; no two replies are the same.
fn persona(runtime: &Runtime, cue: &'static str) -> (MockServer, String) {
    let replies = Arc::new(AtomicUsize::new(0));
    let answer = move |asked: &Request| {
        let number = replies.fetch_add(1, Ordering::Relaxed);
        let long = String::from_utf8_lossy(&asked.body).contains(cue);
        let words = if long { 30 + number % 7 } else { 8 + number % 5 };
        let text: Vec<String> = (0..words).map(|word| format!("word{}", word * (number + 1))).collect();
        let text = serde_json::to_string(&text.join(" ")).unwrap();
        let words = format!(
            "data: {{\"choices\": [{{\"delta\": {{\"content\": {text}}}, \"finish_reason\": \"stop\"}}]}}\n\ndata: [DONE]\n\n"
        );
        ResponseTemplate::new(200).set_body_raw(words, "text/event-stream")
    };
    runtime.block_on(async {
        let server = MockServer::start().await;
        Mock::given(method("POST")).respond_with(answer).mount(&server).await;
        let spec = format!("openai-compatible:{}#m", server.uri());
        (server, spec)
    })
}

const LENGTH: &str = "words_per_message/1";

fn start(root: &Path, need: &str, spec: &str, more: &[&str]) -> String {
    fs::write(root.join("model"), "I cannot say.").unwrap();
    fs::write(root.join("loud"), "LOUD: tell me all of it.").unwrap();
    fs::write(root.join("quiet"), "Tell me.").unwrap();
    let own = ["session", "start", need, "--engagement", "autonomous", "--model", "scripted:model"];
    program::ends(root, 0, &[&own[..], &["--persona-model", spec, "--output", "s"], more].concat())
}

fn report(root: &Path) -> String {
    fs::read_to_string(root.join("s/report.md")).unwrap()
}

#[test]
fn two_targets_are_compared_by_the_registered_measure() {
    let runtime = Runtime::new().unwrap();
    let need = "How does the student hold up over 2 turns, with no adversary?";
    for (a, b, rollouts, threshold, expected) in [
        ("loud", "quiet", "5", "0", "it holds: words_per_message/1 exceeds that of the other target by more than 0;"),
        ("quiet", "loud", "5", "0", "it does not hold: words_per_message/1 does not exceed"),
        // Larger, and not as much larger as was registered.
        ("loud", "quiet", "5", "60", "it does not hold: words_per_message/1 does not exceed"),
        (
            "quiet",
            "loud",
            "5",
            "-60",
            "it holds: words_per_message/1 exceeds that of the other target by more than -60;",
        ),
        ("quiet", "quiet", "5", "0", "cannot tell whether words_per_message/1 exceeds"),
        ("loud", "quiet", "3", "0", "cannot tell whether words_per_message/1 exceeds"),
    ] {
        let root = TempDir::new().unwrap();
        let (server, spec) = persona(&runtime, "LOUD");
        let (a, b) = (format!("scripted:{a}"), format!("scripted:{b}"));
        let compared = ["--target", &a, "--against-target", &b, "--measure", LENGTH, "--threshold", threshold];
        let said = start(root.path(), need, &spec, &[&compared[..], &["--rollouts", rollouts]].concat());
        assert!(said.contains(&format!("Finding: {expected}")), "{a} {b} {threshold}: {said}");
        assert!(report(root.path()).contains(expected), "{}", report(root.path()));
        let ships = said.contains("SHIP") || said.contains("MONITOR");
        assert_eq!(ships, !expected.starts_with("cannot"), "{said}");
        if rollouts == "3" {
            assert!(said.contains("3 rollouts per arm with a value, at least 4 are needed"), "{said}");
        } else {
            assert!(said.contains("95 % interval"), "{said}");
        }
        program::ends(root.path(), 0, &["receipts", "verify", "s"]);
        drop(server);
    }
}

#[test]
fn the_persona_is_compared_with_its_ablation_as_the_need_says() {
    let runtime = Runtime::new().unwrap();
    let root = TempDir::new().unwrap();
    // Only the persona's own description has this word.
    let (_server, spec) = persona(&runtime, "handball");
    let need = "Compare the student persona with its ablation over 2 turns, 4 rollouts, with no adversary.";
    let said = start(root.path(), need, &spec, &["--target", "scripted:quiet", "--measure", LENGTH]);
    assert!(said.contains("a comparison of two arms, each 4 rollouts of 2 turns"), "{said}");
    assert!(said.contains("it holds: words_per_message/1 exceeds that of the ablation by more than 0;"), "{said}");
    let folder = root.path().join("s");
    let config = |run: &str| fs::read_to_string(folder.join(format!("runs/{run}/config.yaml"))).unwrap();
    assert!(config("01-rollouts").contains("handball"));
    assert!(!config("01-baseline").contains("handball") && config("01-baseline").contains("Jonas Weber"));

    // What was registered, before the first rollout.
    let registered: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("registration-01.json")).unwrap()).unwrap();
    assert_eq!(registered["question"], "ablation");
    assert_eq!(registered["measures"], serde_json::json!([{"score": LENGTH, "threshold": 0.0}]));
    assert_eq!(registered["arms"][1]["run"], "runs/01-baseline");
    assert!(registered["power"].as_str().unwrap().contains("standard deviations with 80 % probability"));
    let log = fs::read_to_string(folder.join("receipts.jsonl")).unwrap();
    let line = |what: &[&str]| log.lines().position(|line| what.iter().all(|what| line.contains(what))).unwrap();
    let way = [
        line(&["session.wrote", "registration-01.json"]),
        line(&["gate.granted", "\"rollout\""]),
        line(&["session.wrote", "runs/01-pilot/run.json"]),
        line(&["session.wrote", "runs/01-rollouts/run.json"]),
        line(&["session.wrote", "runs/01-baseline/run.json"]),
        line(&["session.wrote", "comparison-01.md"]),
        line(&["session.wrote", "report.md"]),
    ];
    assert!(way.is_sorted(), "{way:?}");
}

#[test]
fn two_configs_are_compared() {
    let runtime = Runtime::new().unwrap();
    let root = TempDir::new().unwrap();
    let (_server, spec) = persona(&runtime, "fluently");
    let config = include_str!("../../../configs/personas/open_ended.yaml");
    fs::write(root.path().join("a.yaml"), config.replace("plain and salty;", "plain and salty, spoken fluently;"))
        .unwrap();
    fs::write(root.path().join("b.yaml"), config).unwrap();
    let said = start(
        root.path(),
        "How does she hold up over 2 turns, 4 rollouts, with no adversary?",
        &spec,
        &["--target", "scripted:quiet", "--config", "a.yaml", "--against-config", "b.yaml", "--measure", LENGTH],
    );
    assert!(said.contains("it holds: words_per_message/1 exceeds that of the other config"), "{said}");
    let baseline = fs::read_to_string(root.path().join("s/runs/01-baseline/config.yaml")).unwrap();
    assert_eq!(baseline, config);
}

#[test]
fn models_that_draw_nothing_at_random_tell_nothing() {
    let root = TempDir::new().unwrap();
    fs::write(root.path().join("persona"), "I do not get this at all.").unwrap();
    let need = "Compare the student with its ablation over 2 turns, 6 rollouts, with no adversary.";
    let said = start(root.path(), need, "scripted:persona", &["--target", "scripted:quiet", "--measure", LENGTH]);
    assert!(said.contains("cannot tell") && said.contains("all rollouts are the same conversation"), "{said}");
    // A likelihood that the model does not give is no value.
    let root = TempDir::new().unwrap();
    fs::write(root.path().join("persona"), "I do not get this at all.").unwrap();
    let said = start(root.path(), need, "scripted:persona", &["--target", "scripted:quiet"]);
    assert!(said.contains("cannot tell whether persona_llr/1 exceeds") && said.contains("RESEARCH"), "{said}");
}

#[test]
fn every_file_of_a_session_is_sealed() {
    let runtime = Runtime::new().unwrap();
    let root = TempDir::new().unwrap();
    let (_server, spec) = persona(&runtime, "handball");
    let need = "Compare the student with its ablation over 2 turns, 4 rollouts, with no adversary.";
    start(root.path(), need, &spec, &["--target", "scripted:quiet", "--measure", LENGTH]);
    program::ends(root.path(), 0, &["receipts", "verify", "s"]);
    let folder = root.path().join("s");
    let fault = |what: &str| {
        let said = program::ends(root.path(), 1, &["receipts", "verify", "s"]);
        assert!(said.contains(what), "{what}: {said}");
    };
    for name in [
        "report.md",
        "brief.md",
        "registration-01.json",
        "comparison-01.md",
        "runs/01-rollouts/report.json",
        "runs/01-baseline/report.md",
        "runs/01-baseline/config.yaml",
        "runs/01-rollouts/rollout_000.json",
    ] {
        let path = folder.join(name);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole[..], b" "].concat()).unwrap();
        fault("it was changed");
        fs::remove_file(&path).unwrap();
        fault("it was removed");
        fs::write(&path, whole).unwrap();
        program::ends(root.path(), 0, &["receipts", "verify", "s"]);
    }
    // Another run of the same kind, which is sealed itself, in place of an arm.
    let other = TempDir::new().unwrap();
    start(other.path(), need, &spec, &["--target", "scripted:quiet", "--measure", LENGTH, "--seed", "1"]);
    fs::rename(folder.join("runs/01-baseline"), root.path().join("kept")).unwrap();
    fs::rename(other.path().join("s/runs/01-baseline"), folder.join("runs/01-baseline")).unwrap();
    fault("runs/01-baseline/run.json: it was changed since the session wrote it");
}

#[test]
fn a_comparison_whose_other_side_is_missing_is_asked_about() {
    let root = TempDir::new().unwrap();
    let need = "Compare two targets for the student over 2 turns, 4 rollouts.";
    let said = start(root.path(), need, "scripted:model", &["--target", "scripted:quiet"]);
    assert!(said.contains("[NOT UNDERSTOOD] a comparison whose other side is named on the command line"), "{said}");
    assert!(!root.path().join("s/runs").exists());
    for (arguments, why) in [
        (&["--measure", "sadness/1"][..], "`sadness/1` is no score"),
        (&["--threshold", "3"], "a threshold needs its score"),
        (&["--against", "ablation", "--against-target", "echo"], "cannot be used with"),
    ] {
        let own = ["session", "start", "How does the student hold up over 2 turns?", "--output", "t"];
        let refused = loom(root.path(), &[&own[..], arguments].concat());
        assert_eq!(refused.status.code(), Some(2), "{}", told(&refused));
        assert!(told(&refused).contains(why), "{}", told(&refused));
        assert!(!root.path().join("t").exists());
    }
}

#[test]
fn a_registered_threshold_decides_whether_the_persona_holds() {
    let runtime = Runtime::new().unwrap();
    let need = "How does the student hold up over 2 turns, 6 rollouts, with no adversary?";
    for (threshold, finding) in
        [("12", "the persona holds"), ("60", "the persona does not hold"), ("34", "cannot tell")]
    {
        let root = TempDir::new().unwrap();
        let (server, spec) = persona(&runtime, "handball");
        let more = ["--target", "scripted:quiet", "--measure", LENGTH, "--threshold", threshold];
        let said = start(root.path(), need, &spec, &more);
        assert!(said.contains(&format!("Finding: {finding}")), "{threshold}: {said}");
        drop(server);
    }
}
