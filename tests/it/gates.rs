//! Effects happen only in listed files, and a run with damaged receipts does not continue.

use std::fs;

use tempfile::TempDir;

use crate::layers::{rust_files, src};
use crate::program::{loom, told};

/// Calls with effects, and the files that may contain them. A file is listed because it is a tool that takes a permit,
/// because the gate itself depends on it, or because it writes results or files named on the command line.
const RAW: &[(&[&str], &[&str])] = &[
    // No command is run.
    (&["Command::new("], &[]),
    (
        &["fs::write(", "File::create(", ".create_new(", "OpenOptions::new(", "fs::remove_", "fs::rename("],
        &[
            "app/session/tools.rs",
            "foundation/store/",
            // Results and files derived from them.
            "simulation/rollout/files.rs",
            "simulation/report/",
            "simulation/judge/scoring.rs",
            "studies/",
            // Caches of hosts' responses.
            "inference/remote/cache.rs",
            "inference/remote/hub.rs",
            "inference/remote/hub/",
            // Files named on the command line.
            "app/cli/",
        ],
    ),
    (&["reqwest::"], &["inference/remote.rs", "inference/remote/"]),
    (
        &["TcpListener", "TcpStream"],
        &["app/cli/proxy.rs", "app/cli/serve.rs", "app/proxy.rs", "app/serve/http.rs", "app/serve/http/connections.rs"],
    ),
    // Models are opened by an authorizer: that of a command, a session or a run. Scoring opens them with options from a
    // command's gate, which the next test checks.
    (
        &["providers::open(", "providers::open_embedder(", "LocalModel::", "LocalEmbedder::", "remote::open("],
        &[
            "simulation/authorizer.rs",
            // Under the permits of the run.
            "simulation/rollout/run.rs",
            "simulation/judge/scoring.rs",
            "inference/",
        ],
    ),
    // A person's approval comes from a command, from the memory server that a person started, or is the answer PROMOTE to a
    // question of the session.
    (&[".permit_approved("], &["simulation/authorizer.rs", "app/session/claims.rs"]),
    (&[".permit_memory_change("], &["app/cli/memory.rs", "app/serve/mcp.rs"]),
    (
        &[".approve("],
        &[
            "simulation/authorizer.rs",
            "foundation/gate/",
            // Test files.
            "governance/mood/denial_tests.rs",
            "governance/memory/workspace/test_permits.rs",
        ],
    ),
    // Only the memory writes decided records, with permits.
    (&["Pen::<Apply>"], &["governance/memory/"]),
];

#[test]
fn models_are_opened_under_their_full_path() {
    let mut faults = Vec::new();
    for file in rust_files(&src()) {
        let name = file.strip_prefix(src()).unwrap().to_string_lossy().into_owned();
        if name.starts_with("inference/") || name.ends_with("tests.rs") || name.contains("/tests/") {
            continue;
        }
        let code = program(&fs::read_to_string(&file).unwrap());
        // The front page gives it to embedders, who answer for their own calls.
        if name != "lib.rs" && renames_opening(&code) {
            faults.push(format!("src/{name} imports `open` by itself: call `Authorizer::open_model`"));
        }
        // Scorers get options with an authorizer.
        let made = code.matches("TranscriptScorer {").count() + code.matches("TranscriptScorer::new(").count();
        let guarded = |line: &&str| line.contains("options: ") && line.contains(".guarded_options(");
        if name != "simulation/judge/scoring.rs" && made != code.lines().filter(guarded).count() {
            faults
                .push(format!("src/{name} scores with unguarded models: use `options: authorizer.guarded_options(…)`"));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Whether code imports a function that opens models, so that the table above does not find its calls.
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
fn the_check_finds_imported_open_functions() {
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
fn calls_with_effects_occur_only_in_listed_files() {
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
fn the_check_ignores_comments_and_tests() {
    let text =
        "fn f() { Command::new(\"x\"); }\n// Command::new(\n#[cfg(test)]\nmod tests { fn g() { fs::write(a, b); } }\n";
    assert!(program(text).contains("Command::new("));
    assert!(!program(text).contains("fs::write("));
    assert!(!program("// Command::new(\n    /// fs::write(\n").contains("new("));
}

#[test]
fn in_a_session_every_effect_is_described_to_the_gate() {
    // Every function that performs an effect takes a permit.
    let code = program(&fs::read_to_string(src().join("app/session/tools.rs")).unwrap());
    assert_eq!(code.matches("permit: Permit").count(), 2);
    assert_eq!(code.matches("permit.spend(").count(), 2);
    // Calls of models carry one, and so do those of a turn.
    let judgement = fs::read_to_string(src().join("app/session/judgement.rs")).unwrap();
    let requests = program(&judgement).matches("Request::new(").count();
    assert_eq!(program(&judgement).matches("request.permit = Some(permit)").count(), requests);
    let runner = fs::read_to_string(src().join("simulation/rollout/runner.rs")).unwrap();
    assert!(program(&runner).contains("fn turn(&mut self, permits: TurnPermits)"));
}

#[test]
fn a_run_with_damaged_receipts_does_not_continue() {
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

    // With the log restored it continues, in CONTRITE if it was not handed over.
    fs::write(&path, &log).unwrap();
    assert_eq!(loom(&["run", "--resume", "run", "--no-score"]).status.code(), Some(0));
    assert_eq!(loom(&["receipts", "verify", "run"]).status.code(), Some(0));
}

/// A folder with a persona and scripts, in which `loom` runs.
struct TestFolder(TempDir);

impl TestFolder {
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
fn scoring_appends_receipts_and_fails_if_the_runs_receipts_are_damaged() {
    let folder = TestFolder::new();
    folder.run("run");
    let played = folder.text("run/receipts.jsonl");
    let before = folder.text("run/rollout_000.json");
    let score = ["score", "run", "--judge-model", "bundled", "--judge-window", "2", "--likelihood", "off"];
    let dropped: Vec<_> = played.lines().enumerate().filter(|(at, _)| *at != 3).map(|(_, line)| line).collect();
    folder.write("run/receipts.jsonl", &(dropped.join("\n") + "\n"));
    let (code, told) = folder.loom(&score);
    assert!(code == Some(1) && told.contains("damaged"), "{told}");
    assert_eq!(folder.text("run/rollout_000.json"), before);

    folder.write("run/receipts.jsonl", &played);
    folder.does(&score);
    assert_ne!(folder.text("run/rollout_000.json"), before);
    let log = folder.text("run/receipts.jsonl");
    let own = log.strip_prefix(&played).unwrap();
    assert!(own.contains("\"mood\":\"skeptical\"") && own.contains("gate.granted"), "{own}");
    let called = own.lines().last().unwrap();
    assert!(called.contains("command.handed_off") && called.contains("tokens_in"), "{called}");
    folder.does(&["receipts", "verify", "run"]);
    // The run was handed over before, so it does not count as crashed.
    folder.does(&["run", "--resume", "run", "--no-score"]);
    assert!(!folder.text("run/receipts.jsonl").contains("contrite"));
}

#[test]
fn a_transcript_cannot_add_a_host() {
    let folder = TestFolder::new();
    folder.run("run");
    let transcript = folder.text("run/rollout_000.json");
    let spec = "\"spec\": \"scripted:persona\"";
    assert!(transcript.contains(spec), "{transcript}");
    folder.write("run/rollout_000.json", &transcript.replace(spec, "\"spec\": \"hf:some/body\""));
    let told = folder.does(&["score", "run", "--judge-model", "none"]);
    assert!(told.contains("the host `huggingface.co` is not among the rights"), "{told}");
    assert!(folder.text("run/receipts.jsonl").contains("gate.refused"));
}

#[test]
fn memory_changes_need_permits_and_the_commands_approval() {
    let folder = TestFolder::new();
    folder.does(&["memory", "init", "notes"]);
    folder.does(&["memory", "capture", "notes", "--text", "We decided to use SQLite.", "--source", "chat:1"]);
    let log = || folder.text("notes/.loom/receipts/receipts.jsonl");
    assert!(log().contains("\"memory_propose\"") && log().contains("\"calm\""), "{}", log());
    // What is not possible is not approved, and so is what nobody approved.
    let (code, told) = folder.loom(&["memory", "mode", "propose", "notes"]);
    assert_eq!(code, Some(4), "{told}");
    folder.write("notes/memory/intel-state.json", r#"{"governance_mode": "propose"}"#);
    folder.write("notes/mind-mem.json", r#"{"allow_enforce": true}"#);
    let (code, told) = folder.loom(&["memory", "mode", "enforce", "notes"]);
    assert!(code == Some(4) && told.contains("loom memory approve --mode enforce"), "{told}");
    assert!(!log().contains("gate.approved"), "{}", log());
    // Lowering the mode takes no approval, but a permit.
    folder.does(&["memory", "mode", "detect_only", "notes"]);
    let approved = log();
    let approved = approved.lines().find(|line| line.contains("gate.approved")).unwrap();
    assert!(approved.contains("the mode is not raised") && approved.contains("memory_apply"), "{approved}");
    folder.does(&["receipts", "verify", "notes/.loom/receipts"]);

    // With damaged receipts nothing is captured.
    let signals = folder.text("notes/intelligence/SIGNALS.md");
    folder.write("notes/.loom/receipts/receipts.jsonl", &log().replacen("calm", "bold", 1));
    let (code, told) =
        folder.loom(&["memory", "capture", "notes", "--text", "We decided to use Redis.", "--source", "chat:2"]);
    assert!(code == Some(1) && told.contains("damaged"), "{told}");
    assert_eq!(folder.text("notes/intelligence/SIGNALS.md"), signals);
}

#[test]
fn delta_sweeps_run_in_the_mood_bold() {
    let folder = TestFolder::new();
    folder.write("text.txt", "The sea was calm that day, and nobody spoke of the storm that had passed over it.");
    folder.does(&[
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
    folder.does(&["receipts", "verify", "delta"]);
    let log = folder.text("delta/receipts.jsonl");
    assert!(log.contains("\"mood\":\"bold\"") && log.contains("\"bundled\":{\"calls\""), "{log}");
}

/// The code of a file without comments, up to its unit tests.
fn program(text: &str) -> String {
    let tests =
        ["#[cfg(test)]", "#[cfg(all(test"].iter().filter_map(|mark| text.find(mark)).min().unwrap_or(text.len());
    text[..tests].lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

#[test]
fn leases_end_and_permits_are_refused_at_the_ends_of_time_without_a_panic() {
    use jiff::{SignedDuration, Timestamp};
    use loom_agent::foundation::gate::{
        Budget, Category, Effect, EffectRequest, EphemeralLedger, Gate, LeaseTerms, Principal, Rights, Scope,
    };
    let read = Effect::new(Category::Read, "README.md").reading(Scope::Workspace);
    let rights = Rights {
        uses: Category::Read.into(),
        reads: Scope::Workspace.into(),
        budget: Budget { calls: 9, ..Budget::NOTHING },
        ..Rights::NONE
    };
    let times = [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX];
    let mut permitted = 0;
    for now in times {
        for expires in times {
            for idle in [SignedDuration::MIN, SignedDuration::ZERO, SignedDuration::from_hours(1), SignedDuration::MAX]
            {
                let terms = LeaseTerms { rights: rights.clone(), expires, idle };
                let Ok((mut gate, lease)) =
                    Gate::open(EphemeralLedger::default(), Principal::new("run", "ann", "calm"), terms, now)
                else {
                    continue;
                };
                for later in times {
                    if let Ok(permit) = gate.ask(&EffectRequest { lease, effect: read.clone() }, later) {
                        assert!(later < expires, "{later} is not before {expires}");
                        permitted += usize::from(permit.spend(&read, later).is_ok());
                    }
                }
            }
        }
    }
    assert!(permitted > 0, "some are in time");
}
