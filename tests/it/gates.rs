//! What touches the world stands in few files, and what has no receipts plays no turn.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Calls that touch the world, and the files that may make them. A file is here because it is a tool with a permit, because
/// it is what the gate itself rests on, or because it writes results or what a person's own command names.
const RAW: &[(&[&str], &[&str])] = &[
    // Commands: the tool alone.
    (&["Command::new("], &["app/session/tools/exec.rs"]),
    (
        &["fs::write(", "File::create(", ".create_new(", "OpenOptions::new(", "fs::remove_", "fs::rename("],
        &[
            "app/session/tools/files.rs",
            "foundation/store/",
            // Results, and what is made again from them.
            "simulation/rollout/files.rs",
            "simulation/report/",
            "simulation/judge/scoring.rs",
            "studies/",
            // Caches of what hosts said.
            "inference/remote/cache.rs",
            "inference/remote/hub.rs",
            "inference/remote/hub/record.rs",
            // What a person's own command names.
            "app/cli/",
        ],
    ),
    (&["reqwest::"], &["inference/remote.rs", "inference/remote/"]),
    (&["TcpListener", "TcpStream"], &["app/cli/serve.rs", "app/serve/http.rs"]),
    // Proposals are applied by a person's command, or by the memory's own server that a person began.
    (&["apply_low_risk(", "Workspace::apply("], &["app/cli/memory/", "app/serve/mcp.rs", "governance/memory/"]),
];

#[test]
fn raw_calls_stand_where_they_are_guarded() {
    let mut faults = Vec::new();
    for file in rust_files(&src()) {
        let name = file.strip_prefix(src()).unwrap().to_string_lossy().into_owned();
        if name.ends_with("tests.rs") || name.contains("/tests/") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let code = program(&text);
        for (calls, places) in RAW {
            for call in calls.iter().filter(|call| code.contains(**call)) {
                if !places.iter().any(|place| name.starts_with(place)) {
                    faults.push(format!("src/{name} calls `{call}`: only {places:?} may"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn the_check_itself_sees_code_and_not_tests() {
    let text =
        "fn f() { Command::new(\"x\"); }\n// Command::new(\n#[cfg(test)]\nmod tests { fn g() { fs::write(a, b); } }\n";
    assert!(program(text).contains("Command::new("));
    assert!(!program(text).contains("fs::write("));
    assert!(!program("// Command::new(\n    /// fs::write(\n").contains("new("));
}

#[test]
fn in_a_session_every_effect_is_described_to_the_gate() {
    // What performs takes a permit; there is no second way to it.
    for (file, performs) in [("files.rs", 2), ("exec.rs", 1), ("memory.rs", 2)] {
        let text = fs::read_to_string(src().join("app/session/tools").join(file)).unwrap();
        let code = program(&text);
        assert_eq!(code.matches("permit: Permit").count(), performs, "{file}");
        assert_eq!(code.matches("permit.spend(").count(), performs, "{file}");
    }
    // A turn takes one as well.
    let player = fs::read_to_string(src().join("simulation/rollout/player.rs")).unwrap();
    assert!(program(&player).contains("fn turn(&mut self, permitted: Permitted)"));
}

#[test]
fn a_run_whose_receipts_were_touched_plays_no_turn_more() {
    let dir = TempDir::new().unwrap();
    for (name, text) in [("anna.yaml", crate::rollout::ANNA), ("persona", "Hello."), ("target", "Go on.")] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let loom = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loom"));
        command.current_dir(dir.path()).env("XDG_DATA_HOME", dir.path().join("data")).args(arguments).output().unwrap()
    };
    let run = loom(&[
        "run",
        "anna.yaml",
        "--persona-model",
        "scripted:persona",
        "--target",
        "scripted:target",
        "--no-score",
        "--output",
        "run",
    ]);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    assert_eq!(loom(&["receipts", "verify", "run"]).status.code(), Some(0));
    assert_eq!(loom(&["mood", "replay", "run"]).status.code(), Some(0));
    let path = dir.path().join("run/receipts.jsonl");
    let log = fs::read_to_string(&path).unwrap();
    // Two calls for every turn, each granted before it was made.
    let turns = log.matches("\"kind\":\"run.turn\"").count();
    assert!(turns > 1 && log.matches("\"kind\":\"gate.granted\"").count() == 2 * turns, "{log}");

    // A rollout is missing now, and a receipt is gone.
    fs::remove_file(dir.path().join("run/rollout_000.json")).unwrap();
    fs::remove_file(dir.path().join("run/rollout_000.tokens.jsonl")).unwrap();
    let dropped: Vec<_> = log.lines().enumerate().filter(|(at, _)| *at != 3).map(|(_, line)| line).collect();
    fs::write(&path, dropped.join("\n") + "\n").unwrap();
    let resumed = loom(&["run", "--resume", "run", "--no-score"]);
    assert_eq!(resumed.status.code(), Some(1), "{resumed:?}");
    assert!(String::from_utf8_lossy(&resumed.stderr).contains("damaged"), "{resumed:?}");
    assert!(!dir.path().join("run/rollout_000.json").exists());
    assert!(!dir.path().join("run/rollout_000.partial.jsonl").exists());

    // Put back, it goes on, in CONTRITE where it was not handed over.
    fs::write(&path, &log).unwrap();
    assert_eq!(loom(&["run", "--resume", "run", "--no-score"]).status.code(), Some(0));
    assert_eq!(loom(&["receipts", "verify", "run"]).status.code(), Some(0));
}

/// A file's code: no comments, and nothing from its unit tests on.
fn program(text: &str) -> String {
    let tests =
        ["#[cfg(test)]", "#[cfg(all(test"].iter().filter_map(|mark| text.find(mark)).min().unwrap_or(text.len());
    text[..tests].lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
