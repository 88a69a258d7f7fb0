//! `loom sweep` and `loom merge` as processes: shards run separately and are merged.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use tempfile::TempDir;

use crate::program::{self, told};

fn loom(arguments: &[&str]) -> Output {
    // The sweep's model paths are relative to the repository's root.
    program::loom(&program::root(), arguments)
}

#[track_caller]
fn runs(arguments: &[&str]) -> String {
    program::ends(&program::root(), 0, arguments)
}

const SWEEP: &str = "tests/data/sweep/sweep.yaml";

fn bytes(folder: &Path, name: &str) -> Vec<u8> {
    fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{}/{name}: {error}", folder.display()))
}

#[test]
fn three_shards_merge_to_the_bytes_of_one_process() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    runs(&["sweep", SWEEP, "--output", &at("whole")]);
    let children: Vec<_> = (1..=3)
        .map(|k| {
            let (shard, output) = (format!("{k}/3"), at(&format!("part{k}")));
            let mut command =
                program::command(&program::root(), &["sweep", SWEEP, "--shard", &shard, "--output", &output]);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let parts = [at("part1"), at("part2"), at("part3")];
    // A sweep runs in the mood BOLD: the gate is asked before each cell.
    let receipts = fs::read_to_string(dir.path().join("whole/receipts/1-of-1/receipts.jsonl")).unwrap();
    let granted = receipts.lines().filter(|line| line.contains("gate.granted") && line.contains("\"rollout\"")).count();
    assert!(receipts.contains("\"mood\":\"bold\"") && granted == 8, "{receipts}");
    let output = loom(&["merge", &parts[0], &parts[2], "--output", &at("two")]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(told(&output).contains("3 of 8 cells are not complete: 1, 4, 7"), "{}", told(&output));
    assert!(!dir.path().join("two").exists(), "nothing is written before everything is checked");

    runs(&["merge", &parts[0], &parts[1], &parts[2], "--output", &at("merged")]);
    for name in ["sweep.json", "sweep.yaml", "sweep_report.json", "sweep_report.md"] {
        assert_eq!(bytes(&dir.path().join("merged"), name), bytes(&dir.path().join("whole"), name), "{name}");
    }
    for cell in 0..8 {
        let cell = format!("cell_{cell:04}");
        // The cells' own reports contain times; the transcripts compared here do not.
        let of = |whole: &str| {
            let mut files = crate::rollout::files(&dir.path().join(whole).join(&cell));
            files.retain(|(name, _)| name.starts_with("rollout_"));
            assert_eq!(files.len(), 6);
            files
        };
        assert_eq!(of("merged"), of("whole"), "{cell}");
    }
    let markdown = String::from_utf8(bytes(&dir.path().join("whole"), "sweep_report.md")).unwrap();
    insta::assert_snapshot!("sweep_report", markdown);
}

#[test]
fn shards_may_share_a_folder_and_a_sweep_resumes() {
    let dir = TempDir::new().unwrap();
    let output = dir.path().join("sweep").to_string_lossy().into_owned();
    runs(&["sweep", SWEEP, "--shard", "1/2", "--output", &output]);
    assert!(!dir.path().join("sweep/sweep_report.md").exists(), "half a sweep has no report");
    let before = bytes(&dir.path().join("sweep/cell_0000"), "rollout_000.json");
    fs::remove_file(dir.path().join("sweep/cell_0002/rollout_001.json")).unwrap();
    runs(&["sweep", SWEEP, "--output", &output]);
    assert_eq!(
        bytes(&dir.path().join("sweep/cell_0000"), "rollout_000.json"),
        before,
        "finished rollouts are unchanged"
    );
    assert!(dir.path().join("sweep/sweep_report.md").exists());
    runs(&["merge", &output, "--output", &output]);
}

#[test]
fn a_stop_by_the_regulator_is_not_a_model_failure() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let anna = fs::read_to_string("tests/data/rollout/anna.yaml").unwrap();
    fs::write(at("anna.yaml"), format!("{anna}\nregulator: {{policy: enforce, tokens_max: 1}}\n")).unwrap();
    fs::write(
        at("sweep.yaml"),
        "sweep_version: \"0.1.0\"\nconfigs: [anna.yaml]\npersona_models: [bundled]\ntargets: [echo]\n",
    )
    .unwrap();
    let output = loom(&["sweep", &at("sweep.yaml"), "--output", &at("out"), "--no-score"]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
}

#[test]
fn equal_cells_are_pooled_once() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    fs::copy("tests/data/rollout/anna.yaml", at("anna.yaml")).unwrap();
    fs::write(at("reply.json"), r#"["Go on."]"#).unwrap();
    let models =
        format!("persona_models: [echo]\ntargets: [echo, \"scripted:{}\"]\nadversary_model: echo\n", at("reply.json"));
    let rest = "adversaries: [contradiction]\nseeds: [0, 1]\nrollouts: 2\nturns: 1\n";
    fs::write(at("sweep.yaml"), format!("sweep_version: \"0.1.0\"\nconfigs: [anna.yaml]\n{models}{rest}")).unwrap();
    runs(&["sweep", &at("sweep.yaml"), "--output", &at("out")]);
    let report: serde_json::Value =
        serde_json::from_slice(&bytes(&dir.path().join("out"), "sweep_report.json")).unwrap();
    assert_eq!(report["cells"].as_array().unwrap().len(), 4);
    let pooled: Vec<_> = report["factors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (&row["factor"], &row["scores"][0]["rollouts"]))
        .collect();
    assert_eq!(pooled, [(&"seed".into(), &2.into()), (&"seed".into(), &2.into())]);
}

#[test]
fn eight_shards_started_together_fill_one_folder() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let children: Vec<_> = (1..=8)
        .map(|k| {
            let (shard, output) = (format!("{k}/8"), at("shared"));
            let mut command =
                program::command(&program::root(), &["sweep", SWEEP, "--shard", &shard, "--output", &output]);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    runs(&["merge", &at("shared"), "--output", &at("shared")]);
    runs(&["sweep", SWEEP, "--output", &at("whole")]);
    for name in ["sweep.json", "sweep_report.json", "sweep_report.md"] {
        assert_eq!(bytes(&dir.path().join("shared"), name), bytes(&dir.path().join("whole"), name), "{name}");
    }
    let verified = runs(&["receipts", "verify", &at("shared")]);
    // Those of the shards, and those of the runs.
    let cells = fs::read_dir(dir.path().join("shared"))
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("cell_"));
    let logs = 8 + cells.count();
    assert!(logs > 8);
    assert_eq!(verified.lines().filter(|line| line.contains("receipts,")).count(), logs, "{verified}");
}

#[test]
fn invalid_sweeps_are_errors_with_help() {
    let dir = TempDir::new().unwrap();
    let output = dir.path().join("out").to_string_lossy().into_owned();
    let check = |yaml: &str, arguments: &[&str], code, what: &str| {
        let path = dir.path().join("sweep.yaml");
        fs::write(&path, yaml).unwrap();
        let found = loom(&[&["sweep", &path.to_string_lossy()], arguments].concat());
        assert_eq!(found.status.code(), Some(code), "{}", told(&found));
        assert!(told(&found).contains(what), "{}", told(&found));
    };
    let anna = fs::canonicalize("tests/data/rollout/anna.yaml").unwrap();
    let base =
        format!("sweep_version: \"0.1.0\"\nconfigs: [{}]\npersona_models: [echo]\ntargets: [echo]\n", anna.display());
    check(&base, &["--list"], 0, "echo | echo");
    check(&base, &[], 2, "--output");
    check(&base, &["--list", "--shard", "3/2"], 2, "K from 1 to N");
    check(&base, &["--output", &output, "--parallel", "0"], 2, "at least 1");
    check("configs: [a.yaml]", &["--list"], 3, "sweep_version");
    check(&base.replace("[echo]", "[gpt-4]"), &["--list"], 3, "is not a model spec");
    check(&format!("{base}seeds: []\n"), &["--list"], 3, "`seeds` is empty");
    check(&format!("{base}deltas: {{strong: {{policy: fixd}}}}\n"), &["--list"], 3, "fixd");
    check(
        &format!("{base}deltas: {{off: {{policy: off}}, strong: {{policy: fixed, gains: {{delta: 1.2}}}}}}\n"),
        &["--list"],
        0,
        "delta strong",
    );
    check(&base, &["--output", &output], 0, "complete");
    check(&format!("{base}seeds: [4]\n"), &["--output", &output], 2, "another sweep");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_sweep_recovers_in_contrite() {
    use crate::run::{answers, killed_at_request};
    let dir = TempDir::new().unwrap();
    let server = wiremock::MockServer::start().await;
    fs::write(dir.path().join("anna.yaml"), crate::rollout::ANNA).unwrap();
    fs::write(dir.path().join("persona"), "I am tired.").unwrap();
    let sweep = format!(
        "sweep_version: \"0.1.0\"\nconfigs: [anna.yaml]\npersona_models: [\"scripted:persona\"]\ntargets: [\"openai-compatible:{}#m\"]\nadversaries: [none]\nseeds: [1, 2]\nrollouts: 1\nturns: 3\n",
        server.uri()
    );
    fs::write(dir.path().join("sweep.yaml"), sweep).unwrap();
    let host = server.uri();
    let arguments = ["sweep", "sweep.yaml", "--output", "out", "--allow-host", &host];
    answers(&server, 2).await;
    killed_at_request(&server, &mut program::command(dir.path(), &arguments), 3).await;
    answers(&server, u64::MAX).await;
    program::ends(dir.path(), 0, &arguments);
    let log = "out/receipts/1-of-1";
    let receipts = fs::read_to_string(dir.path().join(log).join("receipts.jsonl")).unwrap();
    let place = |what: &str| receipts.lines().position(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}"));
    let way = [place("\"within\":\"bold\""), place("\"mood\":\"contrite\""), place("recovery.consistent")];
    assert!(way.is_sorted(), "{receipts}");
    let replayed = program::ends(dir.path(), 0, &["mood", "replay", log]);
    assert!(replayed.contains("CONTRITE") && replayed.contains("all as recorded; final mood BOLD"), "{replayed}");
    program::ends(dir.path(), 0, &["receipts", "verify", "out"]);
    // One that ended cleanly is no recovery.
    program::ends(dir.path(), 0, &arguments);
    let again = fs::read_to_string(dir.path().join(log).join("receipts.jsonl")).unwrap();
    assert_eq!(again.matches("\"mood\":\"contrite\"").count(), 1, "{again}");
}
