//! What touches the world stands in few files, and what has no receipts plays no turn.

use std::fs;

use tempfile::TempDir;

use crate::floors::{rust_files, src};
use crate::program::{loom, told};

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
    // Models are opened by who stands before them: a command's watch, a session's ward, a run's steward. Scoring opens
    // them by options that a watch gave, which the next test sees to.
    (
        &["providers::open(", "providers::open_embedder(", "LocalModel::", "LocalEmbedder::", "remote::open("],
        &[
            "app/watch.rs",
            "app/session/drive.rs",
            "simulation/rollout/run.rs",
            "simulation/judge/scoring.rs",
            "inference/",
        ],
    ),
    // A person's word is passed on where a person's command is heard, or the memory's own server that a person began.
    (&[".ask_by("], &["app/cli/memory.rs", "app/serve/mcp.rs"]),
    (
        &[".approve("],
        &[
            "app/watch.rs",
            // The answer PROMOTE, to the question that the session put.
            "app/session/claims.rs",
            "app/session/ward.rs",
            "foundation/gate/",
            // Files of tests.
            "governance/mood/attempts.rs",
            "governance/memory/workspace/permitted.rs",
        ],
    ),
    // What is true in the memory is written with permits, by the memory itself.
    (&["Pen::<Apply>"], &["governance/memory/"]),
];

#[test]
fn nobody_opens_a_model_by_another_name() {
    let mut faults = Vec::new();
    for file in rust_files(&src()) {
        let name = file.strip_prefix(src()).unwrap().to_string_lossy().into_owned();
        if name.starts_with("inference/") || name.ends_with("tests.rs") || name.contains("/tests/") {
            continue;
        }
        let code = program(&fs::read_to_string(&file).unwrap());
        if renames_opening(&code) {
            faults.push(format!("src/{name} imports `open` by itself: call `Watch::model`"));
        }
        // Whoever scores gives options that ask.
        let made = code.matches("Scoring {").count() - code.matches("struct Scoring {").count();
        if name != "simulation/judge/scoring.rs" && made != code.matches("options: watch.over(").count() {
            faults.push(format!("src/{name} scores with models that ask nobody: write `options: watch.over(…)`"));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Whether code imports what opens models under a name that the table above does not see.
fn renames_opening(code: &str) -> bool {
    code.split("providers::").skip(1).any(|after| {
        let named = match after.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap_or_default(),
            None => after.split(['(', ';', ')', '.', '<']).next().unwrap_or_default(),
        };
        let calls = !after.starts_with('{') && after[named.len()..].starts_with('(');
        !calls
            && named.split(',').map(str::trim).any(|one| {
                one == "*"
                    || one.split(" as ").next().is_some_and(|one| ["open", "open_embedder"].contains(&one.trim()))
            })
    }) || code.contains("providers as ")
}

#[test]
fn the_check_of_names_sees_them() {
    let check = |code: &str, expected: bool| assert_eq!(renames_opening(code), expected, "{code}");
    check("use crate::inference::providers::{self, OpenOptions};", false);
    check("use crate::inference::providers::{OpenOptions, open};", true);
    check("use crate::inference::providers::open;", true);
    check("use crate::inference::providers::{open as begin};", true);
    check("use crate::inference::providers::*;", true);
    check("use crate::inference::providers as p;", true);
    check("providers::open(chain, options)", false);
    check("let f = providers::open;", true);
}

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
        // What is proposed is proposed by the memory, which takes the permit on.
        let used = code.matches("permit.spend(").count() + code.matches(".propose(permit, ").count();
        assert_eq!(used, performs, "{file}");
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
    let loom = |arguments: &[&str]| loom(dir.path(), arguments);
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

/// A folder with a persona and scripts, and `loom` in it.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        for (name, text) in [("anna.yaml", crate::rollout::ANNA), ("persona", "Hello."), ("target", "Go on.")] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        Self(dir)
    }

    fn loom(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = loom(self.0.path(), arguments);
        (output.status.code(), told(&output))
    }

    fn does(&self, arguments: &[&str]) -> String {
        let (code, told) = self.loom(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {told}");
        told
    }

    fn run(&self, name: &str) {
        let models = ["--persona-model", "scripted:persona", "--target", "scripted:target"];
        self.does(&[&["run", "anna.yaml", "--no-score", "--output", name], models.as_slice()].concat());
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.0.path().join(path)).unwrap()
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.0.path().join(path), text).unwrap();
    }
}

#[test]
fn scores_have_receipts_beside_the_runs_own_and_none_is_taken_where_these_are_damaged() {
    let place = Place::new();
    place.run("run");
    let played = place.text("run/receipts.jsonl");
    let before = place.text("run/rollout_000.json");
    let score = ["score", "run", "--judge-model", "bundled", "--judge-window", "2", "--likelihood", "off"];
    let dropped: Vec<_> = played.lines().enumerate().filter(|(at, _)| *at != 3).map(|(_, line)| line).collect();
    place.write("run/receipts.jsonl", &(dropped.join("\n") + "\n"));
    let (code, told) = place.loom(&score);
    assert!(code == Some(1) && told.contains("damaged"), "{told}");
    assert_eq!(place.text("run/rollout_000.json"), before);

    place.write("run/receipts.jsonl", &played);
    place.does(&score);
    assert_ne!(place.text("run/rollout_000.json"), before);
    let log = place.text("run/receipts.jsonl");
    let own = log.strip_prefix(&played).unwrap();
    assert!(own.contains("\"mood\":\"skeptical\"") && own.contains("gate.granted"), "{own}");
    let called = own.lines().last().unwrap();
    assert!(called.contains("command.handed_off") && called.contains("tokens_in"), "{called}");
    place.does(&["receipts", "verify", "run"]);
    // The run itself was handed over before: it is not taken for one that crashed.
    place.does(&["run", "--resume", "run", "--no-score"]);
    assert!(!place.text("run/receipts.jsonl").contains("contrite"));
}

#[test]
fn a_transcript_reaches_no_host_that_nobody_named() {
    let place = Place::new();
    place.run("run");
    let transcript = place.text("run/rollout_000.json");
    let spec = "\"spec\": \"scripted:persona\"";
    assert!(transcript.contains(spec), "{transcript}");
    place.write("run/rollout_000.json", &transcript.replace(spec, "\"spec\": \"hf:some/body\""));
    let told = place.does(&["score", "run", "--judge-model", "none"]);
    assert!(told.contains("the host `huggingface.co` is not among the rights"), "{told}");
    assert!(place.text("run/receipts.jsonl").contains("gate.refused"));
}

#[test]
fn the_memory_is_changed_under_permits_with_the_commands_own_word() {
    let place = Place::new();
    place.does(&["memory", "init", "notes"]);
    place.does(&["memory", "capture", "notes", "--text", "We decided to use SQLite.", "--source", "chat:1"]);
    let log = || place.text("notes/.loom/receipts/receipts.jsonl");
    assert!(log().contains("\"memory_propose\"") && log().contains("\"calm\""), "{}", log());
    // The mode is against it; the gate's answers are on record all the same.
    let (code, told) = place.loom(&["memory", "mode", "propose", "notes"]);
    assert_eq!(code, Some(4), "{told}");
    let approved = log();
    let approved = approved.lines().find(|line| line.contains("gate.approved")).unwrap();
    assert!(approved.contains("the user, by the command line") && approved.contains("memory_apply"), "{approved}");
    place.does(&["receipts", "verify", "notes/.loom/receipts"]);

    // Without whole receipts nothing is noted.
    let signals = place.text("notes/intelligence/SIGNALS.md");
    place.write("notes/.loom/receipts/receipts.jsonl", &log().replacen("calm", "bold", 1));
    let (code, told) =
        place.loom(&["memory", "capture", "notes", "--text", "We decided to use Redis.", "--source", "chat:2"]);
    assert!(code == Some(1) && told.contains("damaged"), "{told}");
    assert_eq!(place.text("notes/intelligence/SIGNALS.md"), signals);
}

#[test]
fn sweeps_are_bold() {
    let place = Place::new();
    place.write("text.txt", "The sea was calm that day, and nobody spoke of the storm that had passed over it.");
    place.does(&[
        "delta",
        "sweep",
        "--text",
        "text.txt",
        "--gain",
        "g_delta=0.9",
        "--output",
        "delta",
        "--length",
        "16",
    ]);
    place.does(&["receipts", "verify", "delta"]);
    let log = place.text("delta/receipts.jsonl");
    assert!(log.contains("\"mood\":\"bold\"") && log.contains("\"bundled\":{\"calls\""), "{log}");
}

/// A file's code: no comments, and nothing from its unit tests on.
fn program(text: &str) -> String {
    let tests =
        ["#[cfg(test)]", "#[cfg(all(test"].iter().filter_map(|mark| text.find(mark)).min().unwrap_or(text.len());
    text[..tests].lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}
