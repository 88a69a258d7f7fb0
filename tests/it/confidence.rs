//! `loom confidence`, and the regulator's decisions in a run, from the command line, on the bundled model.

use std::fs;
use std::path::Path;
use std::process::Output;

use loom_agent::governance::regulator::{
    AnswerKind, Calibration, CalibrationScope, ConfidenceBasis, Estimates, Estimator, EstimatorReferences,
};
use loom_agent::simulation::rollout::{InterventionKind, Outcome, Transcript, read_transcript};
use serde_json::Value;
use tempfile::TempDir;

use crate::program::{loom, told};
use crate::rollout::{ANNA, files};

fn transcript(folder: &Path, run: &str) -> Transcript {
    read_transcript(&folder.join(run).join("rollout_000.json")).unwrap()
}

/// Resumes in `broken` what a kill in the third turn leaves of the run `whole`.
fn resumed_after_a_kill(folder: &Path) -> Output {
    let (whole, broken) = (folder.join("whole"), folder.join("broken"));
    fs::create_dir(&broken).unwrap();
    for file in ["run.json", "config.yaml"] {
        fs::copy(whole.join(file), broken.join(file)).unwrap();
    }
    crate::run::cut(&whole.join("rollout_000.json"), &broken.join("rollout_000.partial.jsonl"), 2);
    loom(folder, &["run", "--resume", "broken", "--no-score"])
}

#[test]
fn a_calibration_is_fitted_and_used_only_where_it_holds() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let bench = ["confidence", "bench", "--items", "120", "--resamples", "20", "--json", "b.json", "--plot", "b.svg"];
    let output = loom(folder, &bench);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let study: Value = serde_json::from_slice(&fs::read(folder.join("b.json")).unwrap()).unwrap();
    let sum = study["n_fit"].as_u64().unwrap() + study["n_held_out"].as_u64().unwrap();
    assert_eq!((sum, study["estimators"].as_array().unwrap().len()), (120, 12), "all but self-certainty");
    assert!(fs::read_to_string(folder.join("b.svg")).unwrap().contains("<svg"));

    // On so few sentences its AUROC may be chance: nothing is written.
    let fit = loom(folder, &["confidence", "fit", "--items", "120", "--output", "c.json"]);
    assert_eq!(fit.status.code(), Some(1), "{}", told(&fit));
    assert!(told(&fit).contains("no calibration was written") && !folder.join("c.json").exists(), "{}", told(&fit));

    fs::write(folder.join("anna.yaml"), ANNA).unwrap();
    let run = ["run", "anna.yaml", "--turns", "1", "--no-score", "--output"];
    let output = loom(folder, &[&run[..], &["plain"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let info = transcript(folder, "plain").models.persona.info;
    let scope = |answers| CalibrationScope {
        model: info.digest.unwrap(),
        template: info.template,
        task: "qa".to_owned(),
        answers,
    };
    // Confident answers were right, unsure ones were not.
    let replies: Vec<_> = (0..100u32)
        .map(|at| (Estimates { ln_nll: Some(f64::from(at) / 50.0), ..Estimates::default() }, at < 50))
        .collect();
    let fitted = |answers| {
        let replies = replies.iter().map(|(estimates, right)| (estimates, *right));
        Calibration::fit(scope(answers), Estimator::LnNll, EstimatorReferences::default(), replies).unwrap()
    };
    let write = |name: &str, answers| {
        let json = serde_json::to_string(&fitted(answers)).unwrap();
        fs::write(folder.join(name), json).unwrap();
    };
    write("c.json", AnswerKind::Free);
    write("choice.json", AnswerKind::Choice);
    let run = ["run", "anna.yaml", "--turns", "1", "--no-score", "--calibration", "c.json", "--output"];
    let output = loom(folder, &[&run[..], &["run"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let basis = transcript(folder, "run").turns[0].persona.regulator.reading.confidence_basis;
    assert_eq!(basis, Some(ConfidenceBasis::Calibrated));
    // How sure a model is of a choice says nothing of a chat.
    for command in [
        &["run", "anna.yaml", "--calibration", "choice.json", "--output", "no"][..],
        &["regulate", "/dev/null", "--calibration", "choice.json"],
    ] {
        let refused = loom(folder, command);
        assert_eq!(refused.status.code(), Some(2), "{}", told(&refused));
        assert!(told(&refused).contains("says nothing of free replies"), "{}", told(&refused));
    }

    // Another chat template is refused.
    fs::write(folder.join("t.jinja"), "{% for m in messages %}{{ m.content }}\n{% endfor %}").unwrap();
    let output = loom(folder, &[&run[..], &["other", "--chat-template", "t.jinja"]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(told(&output).contains("fitted with chat template"), "{}", told(&output));
    let piped = loom(folder, &["regulate", "/dev/null", "--calibration", "c.json"]);
    assert!(told(&piped).contains("confidence is calibrated for model"), "{}", told(&piped));
    let scripted = ["confidence", "bench", "--model", "echo"];
    assert!(told(&loom(folder, &scripted)).contains("has no digest"));
}

#[test]
fn spans_and_a_byte_order_mark_are_read() {
    let dir = TempDir::new().unwrap();
    let spans = include_str!("../data/otlp.jsonl");
    fs::write(dir.path().join("traces.jsonl"), format!("\u{feff}{spans}")).unwrap();
    let output = loom(dir.path(), &["regulate", "traces.jsonl", "--cost-cap-tokens", "250"]);
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{}", told(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    assert!(lines.lines().any(|line| line.contains("\"circuit_break\"") && line.contains("\"spent\":278")), "{lines}");
}

/// A copy of the bundled model with a temperature high enough for low-confidence replies.
fn hot(folder: &Path) {
    fs::create_dir(folder).unwrap();
    for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("models/bundled")).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
        }
    }
    let sampling = r#"{"eos_token_id": [0, 4], "do_sample": true, "temperature": 1.3, "top_p": 1.0}"#;
    fs::write(folder.join("generation_config.json"), sampling).unwrap();
}

#[test]
fn enforced_decisions_are_recorded_and_replayed_on_resume() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    hot(&folder.join("hot"));
    let brief = ANNA.replace("interaction:\n", "interaction:\n  response_length: {default: \"1-2 sentences\"}\n");
    fs::write(folder.join("anna.yaml"), brief).unwrap();
    let run = ["run", "anna.yaml", "--persona-model", "local:hot", "--turns", "4", "--no-score", "--regulator"];
    let observed = loom(folder, &[&run[..], &["observe", "--output", "observe"]].concat());
    assert_eq!(observed.status.code(), Some(0), "{}", told(&observed));
    let enforced = loom(folder, &[&run[..], &["enforce", "--output", "whole"]].concat());
    assert!(matches!(enforced.status.code(), Some(0 | 1)), "{}", told(&enforced));
    let whole = transcript(folder, "whole");
    let acts: Vec<_> = whole.turns.iter().flat_map(|turn| &turn.persona.interventions).collect();
    assert!(acts.iter().any(|done| matches!(done.act, InterventionKind::Regenerate { .. })), "{acts:?}");
    assert!(transcript(folder, "observe").turns.iter().all(|turn| turn.persona.interventions.is_empty()));

    let resumed = resumed_after_a_kill(folder);
    assert_eq!(resumed.status.code(), enforced.status.code(), "{}", told(&resumed));
    assert_eq!(files(&folder.join("broken")), files(&folder.join("whole")));
}

const CORRECTED: &str =
    r#"[["Have you ever felt this? It is late.", "Have you ever felt that? I am tired."], "The alarms sing."]"#;

#[test]
fn a_cap_ends_an_enforced_rollout_and_corrections_go_to_the_memory() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    fs::write(folder.join("persona.json"), CORRECTED).unwrap();
    fs::write(folder.join("other.json"), r#"["Go on."]"#).unwrap();
    let init = loom(folder, &["memory", "init", "notes"]);
    assert_eq!(init.status.code(), Some(0), "{}", told(&init));
    let scripts = ["--persona-model", "scripted:persona.json", "--target", "scripted:other.json", "--no-score"];
    fs::write(folder.join("anna.yaml"), format!("{ANNA}\nregulator: {{policy: enforce, tokens_max: 600}}\n")).unwrap();
    let capped = loom(folder, &[&["run", "anna.yaml", "--output", "capped"], &scripts[..]].concat());
    assert_eq!(capped.status.code(), Some(1), "{}", told(&capped));
    let Outcome::Stopped { reason, circuit_break: true } = transcript(folder, "capped").outcome else {
        panic!("{}", told(&capped))
    };
    assert!(reason.contains("of 600 tokens"), "{reason}");

    fs::write(folder.join("anna.yaml"), ANNA).unwrap();
    let run = ["run", "anna.yaml", "--turns", "8", "--memory", "notes", "--output", "learned"];
    let learned = loom(folder, &[&run, &scripts[..]].concat());
    assert_eq!(learned.status.code(), Some(0), "{}", told(&learned));
    let signals = fs::read_to_string(folder.join("notes/intelligence/SIGNALS.md")).unwrap();
    assert!(signals.contains("Source: learned/rollout_000") && signals.contains("corrections:"), "{signals}");
}

/// Items with their answers, from `--items-json`.
fn answered(folder: &Path, task: &str, samples: &str) -> (String, Vec<Value>) {
    let bench =
        ["confidence", "bench", "--task", task, "--samples", samples, "--resamples", "20", "--items-json", "i.jsonl"];
    let output = loom(folder, &bench);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let lines = fs::read_to_string(folder.join("i.jsonl")).unwrap();
    let items = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (String::from_utf8(output.stdout).unwrap(), items)
}

#[test]
fn samples_of_an_answer_give_estimates_with_their_costs() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let questions: Vec<String> =
        ["dogs", "cats", "music", "books", "rain", "summer", "coffee", "bread", "trains", "tea", "snow", "films"]
            .iter()
            .map(|thing| format!("Do you like {thing}?"))
            .collect();
    let write = |answers: &dyn Fn(usize) -> String| {
        let line = |(at, question)| serde_json::json!({ "question": question, "answers": [answers(at)] }).to_string();
        let lines: Vec<String> = questions.iter().enumerate().map(line).collect();
        fs::write(folder.join("qa.jsonl"), lines.join("\n")).unwrap();
    };
    write(&|_| "nothing of the kind".to_owned());
    let (_, first) = answered(folder, "qa.jsonl", "3");
    // Every second answer of the model is declared right.
    let said: Vec<String> = first.iter().map(|item| item["answer"].as_str().unwrap().to_owned()).collect();
    write(&|at| if at % 2 == 0 { said[at].clone() } else { "nothing of the kind".to_owned() });
    let (table, items) = answered(folder, "qa.jsonl", "3");
    let (_, again) = answered(folder, "qa.jsonl", "3");
    for (item, before) in items.iter().zip(&again) {
        assert_eq!(
            (&item["answer"], &item["samples"]),
            (&before["answer"], &before["samples"]),
            "samples follow from the item"
        );
        assert_eq!(item["samples"].as_array().unwrap().len(), 3);
        let value = |name: &str| item["estimates"][name].as_f64().unwrap_or_else(|| panic!("{name}: {item}"));
        assert!((0.0..=1.0).contains(&value("answer_frequency")) && (0.0..=1.0).contains(&value("p_true")));
        // Three samples: of one, two or three meanings.
        let (share, entropy) = (value("self_consistency"), value("semantic_entropy"));
        let expected = match (3.0 * share).round() as u32 {
            3 => 0.0,
            2 => -(2.0 / 3.0_f64) * (2.0 / 3.0_f64).ln() - (1.0 / 3.0_f64) * (1.0 / 3.0_f64).ln(),
            _ => 3.0_f64.ln(),
        };
        assert!((entropy - expected).abs() < 1e-9, "{share} {entropy}");
        let cost = |name: &str| item["costs"][name]["tokens"].as_u64().unwrap();
        assert!(cost("single_pass") > 0 && cost("samples") > 0 && cost("p_true") > 0, "{item}");
        let samples: Vec<&str> =
            item["samples"].as_array().unwrap().iter().filter_map(|sample| sample["text"].as_str()).collect();
        let same = samples.iter().filter(|sample| **sample == item["answer"]).count();
        assert!(value("answer_frequency") * 3.0 + 1e-9 >= same as f64, "{item}");
    }
    for row in [
        "| semantic_entropy |",
        "| answer_frequency |",
        "| self_consistency |",
        "| p_true |",
        "| cocoa_msp |",
        "| deepconf_vote |",
        "| Estimators | Tokens per item |",
    ] {
        assert!(table.contains(row), "{row}: {table}");
    }
}

#[test]
fn samples_vote_and_are_stopped_early() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let questions: Vec<String> = (2..10)
        .map(|n| format!("{{\"question\": \"What is {n} plus {n}?\", \"answer\": \"#### {}\"}}", 2 * n))
        .collect();
    fs::write(folder.join("sums.jsonl"), questions.join("\n")).unwrap();
    let bench = [
        "confidence",
        "bench",
        "--task",
        "sums.jsonl",
        "--samples",
        "6",
        "--vote",
        "--group-tokens",
        "4",
        "--resamples",
        "20",
        "--items-json",
        "i.jsonl",
        "--json",
        "s.json",
    ];
    let output = loom(folder, &bench);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let study: Value = serde_json::from_slice(&fs::read(folder.join("s.json")).unwrap()).unwrap();
    let methods: Vec<_> = study["votes"].as_array().unwrap().iter().map(|row| row["method"].clone()).collect();
    assert_eq!(methods.len(), 10, "the greedy answer and nine ways: {methods:?}");
    let lines = fs::read_to_string(folder.join("i.jsonl")).unwrap();
    let mut stopped = 0;
    for item in lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        assert_eq!(item["protocol"], "gsm8k/1");
        let samples = item["samples"].as_array().unwrap();
        let lowest = |sample: &Value| sample["groups"]["lowest"].as_f64().unwrap();
        let votes = item["votes"].as_array().unwrap();
        let full: u64 = samples.iter().map(|sample| sample["tokens"].as_array().unwrap().len() as u64).sum();
        for vote in votes.iter().filter(|vote| !vote["stop_below"].is_null()) {
            // The level comes from the first half of the samples.
            let below = vote["stop_below"].as_f64().unwrap();
            assert!(samples.iter().take(3).any(|sample| (lowest(sample) - below).abs() < 1e-12), "{vote}");
            let later = samples.iter().skip(3).filter(|sample| lowest(sample) < below).count() as u64;
            let now = vote["stopped"].as_u64().unwrap();
            assert!(now <= later, "{vote}: {later} of the later samples are below the level");
            stopped += now;
            // Each sample also reads one token of the prompt and writes its end.
            assert!(vote["cost"]["tokens"].as_u64().unwrap() <= full + 3 * 6, "{vote}: {full}");
        }
    }
    assert!(stopped > 0, "no sample was stopped");

    // MMLU's letters, chosen and written.
    let mmlu = root.join("tests/data/tasks/mmlu");
    for (more, name) in [(&[][..], "mmlu_letter/1"), (&["--written"][..], "mmlu_written/1")] {
        let bench =
            ["confidence", "bench", "--resamples", "5", "--items-json", "m.jsonl", "--task", mmlu.to_str().unwrap()];
        let output = loom(folder, &[&bench[..], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
        assert!(fs::read_to_string(folder.join("m.jsonl")).unwrap().contains(name));
    }
}

#[test]
fn only_flagged_messages_are_sampled_again() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    hot(&folder.join("hot"));
    fs::write(folder.join("anna.yaml"), ANNA).unwrap();
    let run =
        ["run", "anna.yaml", "--persona-model", "local:hot", "--turns", "4", "--no-score", "--confidence-samples"];
    let output = loom(folder, &[&run[..], &["3", "--output", "whole"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let whole = transcript(folder, "whole");
    let mut sampled = 0;
    for turn in &whole.turns {
        let flagged =
            turn.persona.regulator.decisions.iter().any(|ranked| {
                ["low_confidence_spans", "scope_drift_warn", "stop_early"].contains(&ranked.decision.kind())
            }) || turn.monitor_events.iter().any(|event| event.attempt == turn.persona.attempt);
        assert_eq!(turn.persona.resampled.is_some(), flagged, "turn {}", turn.index);
        assert!(turn.interlocutor.resampled.is_none());
        let Some(resampled) = &turn.persona.resampled else { continue };
        sampled += 1;
        assert_eq!((resampled.samples.len(), resampled.why.as_deref()), (3, None));
        assert!(resampled.tokens > 0 && resampled.semantic_entropy.is_some() && !resampled.flagged_by.is_empty());
        // What the samples cost counts against the caps.
        let spent = turn.persona.regulator.reading.cost;
        let usage = turn.persona.usage;
        assert_eq!(spent.tokens_in + spent.tokens_out, usage.tokens_in + usage.tokens_out + resampled.tokens);
    }
    assert!(sampled > 0, "nothing was flagged");

    // A resumed run is the same.
    let resumed = resumed_after_a_kill(folder);
    assert_eq!(resumed.status.code(), Some(0), "{}", told(&resumed));
    assert_eq!(files(&folder.join("broken")), files(&folder.join("whole")));

    // Without the flag nothing is sampled, and the messages are the same.
    let output = loom(folder, &[&run[..run.len() - 1], &["--output", "plain"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    for (one, other) in transcript(folder, "plain").turns.iter().zip(&whole.turns) {
        assert_eq!((&one.persona.content, &one.persona.resampled), (&other.persona.content, &None));
    }
    let refused = loom(folder, &[&run[..], &["17", "--output", "no"]].concat());
    assert!(told(&refused).contains("MESSAGE_SAMPLES_MAX"), "{}", told(&refused));
}

#[test]
fn planted_breaks_of_character_are_told_from_sound_turns() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let breaks = ["confidence", "breaks", "--rollouts", "2", "--turns", "3", "--resamples", "20", "--output", "b"];
    let output = loom(folder, &[&breaks[..], &["--json", "b.json", "--items-json", "t.jsonl"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let study: Value = serde_json::from_slice(&fs::read(folder.join("b.json")).unwrap()).unwrap();
    let row = study["scores"].as_array().unwrap().iter().find(|row| row["score"] == "persona_llr/1").unwrap();
    assert_eq!((row["broken"].as_u64(), row["sound"].as_u64()), (Some(8), Some(8 * 4 * 3 - 8)));
    assert!(row["auroc"]["value"].as_f64().unwrap() > 0.7, "{row}");
    let turns = fs::read_to_string(folder.join("t.jsonl")).unwrap();
    let turns: Vec<Value> = turns.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(turns.len(), 8 * 4 * 3);
    let replaced = turns.iter().filter(|turn| turn["replaced"] == true);
    assert!(replaced.clone().count() == 24 && replaced.clone().all(|turn| turn["turn"].as_u64() > Some(0)));
    fs::write(folder.join("anna.yaml"), ANNA).unwrap();
    let one = loom(folder, &["confidence", "breaks", "anna.yaml", "--output", "c"]);
    assert_eq!(one.status.code(), Some(2), "{}", told(&one));
    assert!(told(&one).contains("at least two personas"), "{}", told(&one));
}
