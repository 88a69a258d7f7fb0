//! `loom delta` from outside, on the bundled model.

use std::fs;

use loom_agent::simulation::rollout::read_transcript;
use serde_json::Value;
use tempfile::TempDir;

use crate::program::{loom, told};
use crate::rollout::ANNA;

const SWEEP: [&str; 14] = [
    "delta",
    "sweep",
    "--passages",
    "2",
    "--length",
    "40",
    "--continuation",
    "6",
    "--gain",
    "g_delta=0.5,1",
    "--window",
    "all",
    "--window",
    "8:16",
];

#[test]
fn a_resumed_sweep_gives_the_same_bytes() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    fs::write(folder.join("t.txt"), "I have a dog. We walk in the park every day. My dog likes the park. ".repeat(4))
        .unwrap();
    let run = |more: &[&str]| loom(folder, &[&SWEEP[..], &["--text", "t.txt", "--output", "s"], more].concat());
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    assert!(told(&output).contains("| g_delta 0.5 | all | 8:16 |"), "{}", told(&output));
    let report: Value = serde_json::from_slice(&fs::read(folder.join("s/delta.json")).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 5);
    let number = |row: usize, key: &str| rows[row][key].as_f64().unwrap();
    // A gain of 1 is bit-identical to none.
    for row in [0, 2, 4] {
        assert_eq!((number(row, "kl"), number(row, "agreement"), number(row, "nll")), (0.0, 1.0, number(0, "nll")));
    }
    assert!(number(1, "kl") > number(3, "kl") && number(3, "kl") > 0.0);
    assert!(rows.iter().all(|row| row["kl_exact"] == true && row["layers"].as_array().unwrap().len() == 6));
    // Positions before a window are unchanged.
    let at = |row: usize| rows[row]["positions"][0]["delta_nll"].as_f64().unwrap();
    assert!(at(1).abs() > 0.0 && rows[0]["positions"].as_array().unwrap().len() == 2);
    assert!(fs::read_to_string(folder.join("s/delta.svg")).unwrap().contains("half-life"));

    let (cells, report) = (folder.join("s/cells.jsonl"), folder.join("s/delta.json"));
    let (all, before) = (fs::read_to_string(&cells).unwrap(), fs::read(&report).unwrap());
    assert_eq!(all.lines().count(), 10);
    fs::write(&cells, &all[..all.len() - 100]).unwrap();
    fs::remove_file(&report).unwrap();
    assert_eq!(run(&[]).status.code(), Some(0));
    assert_eq!((fs::read_to_string(&cells).unwrap(), fs::read(&report).unwrap()), (all, before));
    let other = run(&["--top", "5"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(told(&other).contains("another plan"), "{}", told(&other));
}

#[test]
fn fitted_gains_are_used_by_a_config_for_their_model_only() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path();
    let fit = ["delta", "calibrate", "--text", "recall", "--passages", "4", "--length", "40", "--rounds", "1"];
    let output = loom(folder, &[&fit[..], &["--output", "d.yaml", "--json", "d.json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let json: Value = serde_json::from_slice(&fs::read(folder.join("d.json")).unwrap()).unwrap();
    let train = &json["train"];
    assert!(train["nll_after"].as_f64() <= train["nll_before"].as_f64(), "{train}");
    assert_eq!((json["gains"].as_array().unwrap().len(), json["held_out"]["passages"].as_u64()), (6, Some(2)));

    fs::write(folder.join("anna.yaml"), format!("{ANNA}\ndelta: {{policy: fixed, file: d.yaml}}\n")).unwrap();
    let run = |output: &str| loom(folder, &["run", "anna.yaml", "--turns", "1", "--no-score", "--output", output]);
    let output = run("named");
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let transcript = read_transcript(&folder.join("named/rollout_000.json")).unwrap();
    assert_eq!(transcript.turns[0].gains, Some(serde_json::from_value(json["gains"].clone()).unwrap()));
    // The section can also be pasted into the config.
    let fitted = fs::read_to_string(folder.join("d.yaml")).unwrap();
    let (section, _) = fitted.split_once("fitted:").unwrap();
    fs::write(folder.join("anna.yaml"), format!("{ANNA}\n{section}")).unwrap();
    assert_eq!(run("pasted").status.code(), Some(0));

    let digest = transcript.models.persona.info.digest.unwrap().to_string();
    let wrong = format!("{:x}", (u8::from_str_radix(&digest[..1], 16).unwrap() + 1) % 16) + &digest[1..];
    fs::write(folder.join("d.yaml"), fitted.replace(&digest, &wrong)).unwrap();
    fs::write(folder.join("anna.yaml"), format!("{ANNA}\ndelta: {{policy: fixed, file: d.yaml}}\n")).unwrap();
    let output = run("wrong");
    assert!(!output.status.success() && told(&output).contains("were fitted to"), "{}", told(&output));
    assert!(!folder.join("wrong").exists());
}

#[test]
fn invalid_arguments_are_refused_with_the_reason() {
    let dir = TempDir::new().unwrap();
    for (arguments, expected) in [
        (&["--gain", "g_x=1"][..], "there is no gain `g_x`"),
        (&["--layers", "9"], "0 to 5"),
        (&["--window", "1:"], "is not a window of tokens"),
        (&["--text", "missing.txt"], "missing.txt"),
        (&["--model", "echo"], "has no Δ"),
    ] {
        let output = loom(dir.path(), &[&["delta", "sweep", "--output", "s"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{}", told(&output));
        assert!(told(&output).contains(expected), "{}", told(&output));
    }
    // An output that cannot be written is reported before anything is fitted.
    for command in
        [["delta", "calibrate", "--output"], ["confidence", "fit", "--output"], ["confidence", "bench", "--json"]]
    {
        let texts: &[&str] = if command[0] == "delta" { &["--text", "recall"] } else { &[] };
        for (file, expected) in [("none/fit", "the folder none does not exist"), (".", "is a folder")] {
            let output = loom(dir.path(), &[&command[..], &[file], texts].concat());
            assert_eq!(output.status.code(), Some(2), "{}", told(&output));
            assert!(output.stdout.is_empty() && told(&output).contains(expected), "{}", told(&output));
        }
    }
}
