//! `loom receipts` as a process: a log of moods and permits is verified, damaged, exported and replayed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use jiff::Timestamp;
use loom_agent::foundation::gate::LedgerEntry;
use loom_agent::foundation::store::RealDisk;
use loom_agent::foundation::store::receipts::{PublicKey, ReceiptKey, ReceiptLog};
use loom_agent::governance::mood::{MoodEvent, MoodFacts, MoodState, step, step_entry};
use serde_json::{Value, json};

use crate::program::{self, told};

fn loom(home: &Path, arguments: &[&str]) -> Output {
    let mut command = program::command(&program::root(), arguments);
    command.env("XDG_DATA_HOME", home).args(["--color", "never"]).output().unwrap()
}

fn expect(home: &Path, code: i32, arguments: &[&str]) -> String {
    let output = loom(home, arguments);
    assert_eq!(output.status.code(), Some(code), "{}", told(&output));
    told(&output)
}

/// A log of a few steps in `folder`, signed with the key in `home`.
fn write_log(home: &Path, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let key = Arc::new(ReceiptKey::open(&home.join("loom/key")).unwrap());
    let at = Timestamp::from_second(1_700_000_000).unwrap();
    let (mut log, _) = ReceiptLog::open(Arc::new(RealDisk::new(folder)), key, at).unwrap();
    let entered = MoodState::enter(MoodFacts::NONE);
    let mut entries = vec![step_entry(None, MoodFacts::NONE, &entered)];
    let mut state = entered.state;
    for event in [
        MoodEvent::VerifiersFailed,
        MoodEvent::RiskGrew,
        MoodEvent::Mitigated,
        MoodEvent::VerifiersPassed,
        MoodEvent::Ambiguous,
    ] {
        let after = step(&state, &event);
        entries.push(step_entry(Some(&event), MoodFacts::NONE, &after));
        state = after.state;
    }
    let text = log.contents().put(b"what the user said").unwrap();
    entries[0] = entries[0].clone().with_content("need", text);
    log.commit(at, &entries).unwrap();
    log.erase(text, at).unwrap();
    log.seal().unwrap();
}

#[test]
fn a_log_is_verified_shown_exported_and_replayed_and_damage_is_located() {
    let folder = tempfile::tempdir().unwrap();
    let (home, run) = (folder.path().join("home"), folder.path().join("run"));
    write_log(&home, &run);
    let path = run.to_str().unwrap();
    let verified = expect(&home, 0, &["receipts", "verify", path]);
    assert!(verified.starts_with("8 receipts, 8 signed, 1 texts erased; last "), "{verified}");
    let shown = expect(&home, 0, &["receipts", "show", path, "--kind", "mood."]);
    assert_eq!(shown.lines().count(), 6, "{shown}");
    let spans: Value =
        serde_json::from_str(&expect(&home, 0, &["receipts", "export", path, "--format", "otlp"])).unwrap();
    assert_eq!(spans["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().len(), 8);
    assert_eq!(spans["resourceSpans"][0]["resource"]["attributes"][0]["value"], json!({"stringValue": "loom"}));
    let replayed = expect(&home, 0, &["mood", "replay", path]);
    assert!(replayed.ends_with("6 steps replayed, all as recorded; final mood BOLD\n"), "{replayed}");

    let log = run.join("receipts.jsonl");
    let whole = fs::read_to_string(&log).unwrap();
    let lines: Vec<_> = whole.split_inclusive('\n').collect();
    let damaged = [
        (whole.replacen("verifiers_failed", "verifiers_passed", 1), "line 3: the receipt was altered"),
        ([&lines[..4], &lines[5..]].concat().concat(), "line 5: expected receipt 4, found receipt 5"),
        (
            [&lines[..4], &[lines[5], lines[4]], &lines[6..]].concat().concat(),
            "line 5: expected receipt 4, found receipt 5",
        ),
        (lines[..6].concat(), "line 7: the log was truncated: 8 receipts were signed, 6 are left"),
    ];
    for (text, expected) in damaged {
        fs::write(&log, text).unwrap();
        let told = expect(&home, 1, &["receipts", "verify", path]);
        assert!(told.contains(expected), "{told}");
    }
    fs::write(&log, whole).unwrap();
    // Without a key, or with one that others can read, nothing is verified.
    let told = expect(&folder.path().join("other"), 1, &["receipts", "verify", path]);
    assert!(told.contains("there is no key to verify the receipts with") && told.contains("--key"), "{told}");
    let public = ReceiptKey::open(&home.join("loom/key")).unwrap().public().to_string();
    expect(&folder.path().join("other"), 0, &["receipts", "verify", path, "--key", &public]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let set = |mode| fs::set_permissions(home.join("loom/key"), fs::Permissions::from_mode(mode)).unwrap();
        set(0o644);
        let told = expect(&home, 1, &["receipts", "verify", path]);
        assert!(told.contains("is accessible to other users"), "{told}");
        set(0o600);
    }
    let told = expect(&home, 1, &["receipts", "verify", path, "--key", &"ab".repeat(32)]);
    assert!(told.contains("signed with another key"), "{told}");
    fs::remove_file(run.join("receipts.head")).unwrap();
    assert!(expect(&home, 1, &["receipts", "verify", path]).contains("no signed head"));
}

#[test]
fn erasing_a_text_keeps_the_chain_valid() {
    let folder = tempfile::tempdir().unwrap();
    let (home, run) = (folder.path().join("home"), folder.path().join("run"));
    fs::create_dir_all(&run).unwrap();
    let key = Arc::new(ReceiptKey::open(&home.join("loom/key")).unwrap());
    let at = Timestamp::from_second(1_700_000_000).unwrap();
    let (mut log, _) = ReceiptLog::open(Arc::new(RealDisk::new(&run)), key, at).unwrap();
    let texts =
        ["what the user said", "what the user said later"].map(|text| log.contents().put(text.as_bytes()).unwrap());
    let entries = texts.map(|text| LedgerEntry::new("session.answered", json!({})).with_content("answer", text));
    log.commit(at, &entries).unwrap();
    drop(log);
    let path = run.to_str().unwrap();
    let first = texts[0].to_string();
    assert!(expect(&home, 2, &["receipts", "erase", path, "ffffffff"]).contains("exactly one digest"));
    assert!(expect(&home, 2, &["receipts", "erase", path, &first[..4]]).contains("exactly one digest"));
    expect(&home, 0, &["receipts", "erase", path, &first[..8]]);
    let verified = expect(&home, 0, &["receipts", "verify", path]);
    assert!(verified.contains("1 texts erased"), "{verified}");
    assert!(!run.join("contents").join(&first).exists() && run.join("contents").join(texts[1].to_string()).exists());
}

/// A run of two scripted models in `folder`, with receipts of this user.
struct Finished {
    folder: tempfile::TempDir,
}

impl Finished {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in
            [("anna.yaml", crate::rollout::ANNA), ("persona", "I am tired.\n---\nHm."), ("target", "Why?")]
        {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let finished = Self { folder };
        for (output, seed) in [("run", "1"), ("other", "2")] {
            finished.does(0, &Self::arguments(output, seed));
        }
        finished
    }

    fn arguments<'a>(output: &'a str, seed: &'a str) -> Vec<&'a str> {
        let mut arguments = vec!["run", "anna.yaml", "--persona-model", "scripted:persona", "--target"];
        arguments.extend(["scripted:target", "--turns", "2", "--rollouts", "2", "--no-score"]);
        arguments.extend(["--seed", seed, "--output", output]);
        arguments
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    #[track_caller]
    fn does(&self, code: i32, arguments: &[&str]) -> String {
        let output = program::loom(self.folder.path(), arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", told(&output));
        told(&output)
    }

    #[track_caller]
    fn verify(&self, code: i32) -> String {
        self.does(code, &["receipts", "verify", "run"])
    }

    /// Runs `edit`, expects the fault, and puts all files back.
    #[track_caller]
    fn finds(&self, fault: &str, edit: impl FnOnce(&Path)) {
        let run = self.at("run");
        let kept: Vec<_> = files_in(&run).into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect();
        edit(&run);
        let told = self.verify(1);
        assert!(told.contains(fault), "{fault}: {told}");
        files_in(&run).iter().for_each(|path| fs::remove_file(path).unwrap());
        kept.iter().for_each(|(bytes, path)| fs::write(path, bytes).unwrap());
        self.verify(0);
    }
}

fn files_in(run: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| !path.ends_with("receipts.lock"));
    files.sort();
    files
}

fn replaced(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{}: {from}: {text}", path.display());
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn a_run_is_bound_to_its_receipts() {
    let finished = Finished::new();
    finished.verify(0);
    let other = finished.at("other");
    let from_other = |run: &Path, name: &str| fs::copy(other.join(name), run.join(name)).map(drop).unwrap();
    finished.finds("rollout_001.json: it was changed", |run| {
        replaced(&run.join("rollout_001.json"), "I am tired.", "I am fine.");
    });
    finished.finds("rollout_000.tokens.jsonl: it was removed", |run| {
        fs::remove_file(run.join("rollout_000.tokens.jsonl")).unwrap();
    });
    finished.finds("rollout_002.json: no receipt for it", |run| {
        fs::copy(run.join("rollout_001.json"), run.join("rollout_002.json")).unwrap();
    });
    finished.finds("config.yaml: it was changed", |run| replaced(&run.join("config.yaml"), "Anna", "Hanna"));
    finished.finds("the signature of its seal is invalid", |run| {
        replaced(&run.join("run.json"), "scripted:persona", "scripted:another");
    });
    finished.finds("it is not in the form", |run| replaced(&run.join("run.json"), ",\n", ", \n"));
    finished.finds("it has no seal", |run| {
        let path = run.join("run.json");
        let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        manifest.as_object_mut().unwrap().remove("seal");
        fs::write(&path, serde_json::to_string_pretty(&manifest).unwrap()).unwrap();
    });
    finished.finds("run.json: it was removed", |run| fs::remove_file(run.join("run.json")).unwrap());
    finished.finds("the receipts are those of another run", |run| {
        ["receipts.jsonl", "receipts.head"].iter().for_each(|name| from_other(run, name));
    });
    finished.finds("the receipts of the run were removed", |run| {
        ["receipts.jsonl", "receipts.head"].iter().for_each(|name| fs::remove_file(run.join(name)).unwrap());
    });
    finished.finds("rollout_000.json: it was changed", |run| from_other(run, "rollout_000.json"));
}

#[test]
fn a_log_of_the_same_run_from_another_time_is_found() {
    let finished = Finished::new();
    // The same configuration, seed and models: only the log differs.
    finished.does(0, &Finished::arguments("again", "1"));
    let again = finished.at("again");
    finished.finds("the log is not the one that was sealed with it", |run| {
        for name in ["receipts.jsonl", "receipts.head", "rollout_000.json", "rollout_001.json"] {
            fs::copy(again.join(name), run.join(name)).unwrap();
        }
    });
}

#[test]
fn scoring_and_resuming_keep_the_binding_and_never_seal_what_was_altered() {
    let finished = Finished::new();
    let intact = finished.does(0, &["score", "run", "--judge-model", "scripted:persona", "--likelihood", "off"]);
    let intact = intact + &finished.does(0, &["run", "--resume", "run", "--no-score"]);
    assert!(!intact.contains("will not be sealed"), "{intact}");
    let log = fs::read_to_string(finished.at("run/receipts.jsonl")).unwrap();
    assert!(log.contains("\"kind\":\"score.wrote\"") && log.contains("\"kind\":\"run.wrote\""), "{log}");
    finished.verify(0);
    replaced(&finished.at("run/rollout_000.json"), "I am tired.", "I am fine.");
    finished.verify(1);
    let scored = finished.does(0, &["score", "run", "--judge-model", "scripted:target", "--likelihood", "off"]);
    let resumed = finished.does(0, &["run", "--resume", "run", "--no-score"]);
    for told in [scored, resumed] {
        assert!(told.contains("will not be sealed again (rollout_000.json: "), "{told}");
    }
    assert!(finished.verify(1).contains("the seal has another digest"), "{}", finished.verify(1));
    let export = finished.does(1, &["receipts", "export", "run", "--format", "in-toto"]);
    assert!(export.contains("is not an intact, finished run"), "{export}");
}

#[test]
fn a_sealed_run_is_exported_as_a_signed_statement() {
    let finished = Finished::new();
    let output = program::loom(finished.folder.path(), &["receipts", "export", "run", "--format", "in-toto"]);
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(envelope["payloadType"], "application/vnd.in-toto+json");
    let decoded = |value: &Value| base64_decoded(value.as_str().unwrap());
    let payload = decoded(&envelope["payload"]);
    let statement: Value = serde_json::from_slice(&payload).unwrap();
    assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
    assert_eq!(statement["subject"].as_array().unwrap().len(), 5);
    assert_eq!(statement["predicate"]["run"]["seed"], 1);
    // The signature is over the encoding of the specification, made by hand.
    let signed = [format!("DSSEv1 28 application/vnd.in-toto+json {} ", payload.len()).as_bytes(), &payload].concat();
    let signature = decoded(&envelope["signatures"][0]["sig"]);
    let hex = signature.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let key: PublicKey = envelope["signatures"][0]["keyid"].as_str().unwrap().parse().unwrap();
    assert!(key.has_signed(&signed, &hex) && !key.has_signed(&payload, &hex));
}

fn base64_decoded(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        other => panic!("{other}"),
    };
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'=').map(digit).collect();
    let bits = digits.iter().flat_map(|digit| (0..6).rev().map(move |bit| digit >> bit & 1)).collect::<Vec<_>>();
    bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |sum, bit| sum << 1 | bit)).collect()
}

/// Random edits of the log, the files and the key of a run: each is found. `LOOM_EDITS` is their number.
#[test]
fn every_random_edit_of_a_run_is_found() {
    let edits: u64 = std::env::var("LOOM_EDITS").ok().and_then(|edits| edits.parse().ok()).unwrap_or(120);
    let finished = Finished::new();
    finished.verify(0);
    let (run, other) = (finished.at("run"), finished.at("other"));
    let key = finished.at(".local/share/loom/key");
    let originals: Vec<_> =
        files_in(&run).into_iter().chain([key]).map(|path| (fs::read(&path).unwrap(), path)).collect();
    let stream = loom_agent::foundation::base::RngStream::root(edits).child("edits", 0);
    let mut positions = 0..;
    let mut draw = |bound: usize| stream.index(positions.next().unwrap(), bound.max(1));
    for edit in 0..edits {
        let (bytes, path) = &originals[draw(originals.len())];
        let mut changed = bytes.clone();
        let at = draw(bytes.len());
        let what = match draw(7) {
            0 => {
                changed[at] ^= 1 << draw(8);
                "a bit"
            }
            1 => {
                changed.remove(at);
                "a byte removed"
            }
            2 => {
                changed.insert(at, draw(256) as u8);
                "a byte inserted"
            }
            3 => {
                changed.truncate(at);
                "cut"
            }
            4 => {
                let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
                let line = draw(lines.len());
                lines.remove(line);
                changed = lines.concat();
                "a line removed"
            }
            5 => {
                let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
                let (one, two) = (draw(lines.len()), draw(lines.len()));
                lines.swap(one, two);
                changed = lines.concat();
                "two lines swapped"
            }
            _ => {
                let name = path.file_name().unwrap();
                changed = fs::read(other.join(name)).unwrap_or_default();
                "the file of another run"
            }
        };
        if changed == *bytes {
            continue;
        }
        fs::write(path, &changed).unwrap();
        let output = program::loom(finished.folder.path(), &["receipts", "verify", "run"]);
        assert_ne!(output.status.code(), Some(0), "edit {edit} of {}: {what} at {at}", path.display());
        fs::write(path, bytes).unwrap();
    }
    finished.verify(0);
}
