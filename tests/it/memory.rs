//! `loom memory` from outside: a day of use, killed processes, concurrent writers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use loom_agent::foundation::gate::Effect;
use loom_agent::foundation::store::receipts::ReceiptKey;
use loom_agent::governance::memory::approval::{ApprovalKey, TOKEN_MINUTES};
use loom_agent::governance::memory::workspace::Workspace;
use serde_json::Value;

use crate::program;

const NOW: &str = "2026-02-20T09:00:00Z";

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = program::command(folder, &[&["--color", "never", "memory"], arguments, &["--now", NOW]].concat());
    // The folder is compared file by file: it is nobody's home.
    command.env("HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

/// Runs a command that must end with `code` and gives what it printed.
fn expect(folder: &Path, code: i32, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}{}", text(output.stdout), text(output.stderr));
    text(output.stdout) + &text(output.stderr)
}

fn json(folder: &Path, code: i32, arguments: &[&str]) -> Value {
    let arguments: Vec<_> = arguments.iter().copied().chain(["--format", "json"]).collect();
    serde_json::from_str(&expect(folder, code, &arguments)).unwrap()
}

/// The token that a person whose home is `home` gets for an effect.
pub(crate) fn token(home: &Path, folder: &Path, at: &str, effect: impl Fn(&Workspace) -> Effect) -> String {
    let now = at.parse().unwrap();
    let key = ReceiptKey::open(&home.join(".local/share/loom/key")).unwrap();
    let key = ApprovalKey::derive(key.sign(b"loom memory approvals").as_bytes());
    let folder = folder.canonicalize().unwrap();
    let effect = effect(&Workspace::at(&folder, now).unwrap());
    key.token(folder.to_str().unwrap(), &effect, now, TOKEN_MINUTES)
}

fn apply_token(folder: &Path, id: &str) -> String {
    token(Path::new(env!("CARGO_TARGET_TMPDIR")), folder, NOW, |workspace| workspace.apply_effect(id).unwrap())
}

/// A workspace in `propose`.
fn workspace() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    expect(folder.path(), 0, &["init"]);
    set_mode(folder.path(), "propose");
    folder
}

fn set_mode(folder: &Path, mode: &str) {
    let path = folder.join("memory/intel-state.json");
    let state = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, state.replace("detect_only", mode)).unwrap();
}

fn task(number: usize) -> String {
    format!(
        "[T-20260220-{number:03}]\nDate: 2026-02-20\nStatus: todo\nTitle: number {number}\nPriority: P2\nProject: none\nDue: none\nOwner: bot\nContext: none\nNext: none\nDependencies: none\nJustification: a test\nSources:\n- chat:1\nHistory:\n- 2026-02-20: created\n\n"
    )
}

fn write_tasks(folder: &Path, count: usize) {
    let tasks: String = (1..=count).map(task).collect();
    std::fs::create_dir_all(folder.join("tasks")).unwrap();
    std::fs::write(folder.join("tasks/TASKS.md"), format!("# Tasks\n\n{tasks}")).unwrap();
}

/// All files but those of the lock, of transactions and of caches.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(root: &Path, folder: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with(".loom") {
                    walk(root, &path, found);
                }
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(folder, folder, &mut found);
    found
}

fn restore(folder: &Path, files: &BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        std::fs::remove_dir_all(entry.unwrap().path()).ok();
    }
    for (path, bytes) in files {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

#[test]
fn a_day_with_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut day = String::new();
    let mut step = |code: i32, arguments: &[&str]| {
        let is_token = |at: usize| at > 0 && arguments[at - 1] == "--token";
        let quote = |(at, a): (usize, &&str)| match *a {
            _ if is_token(at) => "TOKEN".to_owned(),
            a if a.contains(' ') => format!("'{a}'"),
            a => a.to_owned(),
        };
        let quoted: Vec<_> = arguments.iter().enumerate().map(quote).collect();
        let printed = expect(folder, code, arguments);
        write!(day, "$ loom memory {}\n{printed}", quoted.join(" ")).unwrap();
        if code != 0 {
            writeln!(day, "(exit {code})").unwrap();
        }
    };
    step(0, &["init"]);
    step(0, &["capture", "--text", "We decided to keep the cache in SQLite.", "--source", "chat:12"]);
    step(4, &["signal", "accept", "SIG-20260220-001"]);
    step(4, &["mode", "propose"]);
    set_mode(folder, "propose");
    step(0, &["signal", "accept", "SIG-20260220-001"]);
    step(0, &["review"]);
    step(4, &["apply", "P-20260220-001"]);
    let approved = apply_token(folder, "P-20260220-001");
    step(0, &["apply", "P-20260220-001", "--token", &approved]);
    step(0, &["search", "sqlite", "--kind", "decision"]);
    // A manual edit.
    let decisions = folder.join("decisions/DECISIONS.md");
    let text = std::fs::read_to_string(&decisions).unwrap();
    std::fs::write(decisions, text + &signature("CS-cache", "SQLite")).unwrap();
    std::fs::write(folder.join("redis.md"), redis()).unwrap();
    let why = ["--evidence", "Ann asked for it", "--source", "chat:31"];
    step(0, &[&["propose", "append_block", "--patch", "redis.md"], why.as_slice()].concat());
    let approved = apply_token(folder, "P-20260220-002");
    step(1, &["apply", "P-20260220-002", "--token", &approved]);
    step(0, &["validate"]);
    step(0, &["scan"]);
    let home = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let approved = token(home, folder, NOW, |workspace| workspace.rollback_effect("P-20260220-001").unwrap());
    step(1, &["rollback", "P-20260220-001", "--token", &approved]);
    step(0, &["log", "the cache is still open"]);
    step(0, &["status"]);
    let page = std::fs::read_to_string(program::root().join("docs/MEMORY.md")).unwrap();
    assert!(page.contains(day.trim_end()), "docs/MEMORY.md should contain this day:\n{day}");
}

fn signature(id: &str, object: &str) -> String {
    format!(
        "ConstraintSignatures:\n- id: {id}\n  domain: workflow\n  subject: cache\n  predicate: use\n  object: {object}\n  \
         modality: must\n  priority: 7\n  scope: {{projects: [], channels: [], time: {{}}}}\n  evidence: chat:12\n"
    )
}

fn redis() -> String {
    "[D-20260220-002]\nDate: 2026-02-20\nStatus: active\nScope: global\nStatement: Keep the cache in Redis.\n\
     Rationale: It is fast.\nSupersedes: none\nTags: cache\nSources:\n- chat:31\n"
        .to_owned()
        + &signature("CS-redis", "Redis")
}

#[test]
fn init_overwrites_nothing_and_validate_is_idempotent() {
    let folder = workspace();
    let folder = folder.path();
    std::fs::write(folder.join("decisions/DECISIONS.md"), "# Mine\n\n[D-001]\nDate: today\n").unwrap();
    let before = files(folder);
    assert_eq!(json(folder, 0, &["init"])["files"], serde_json::json!([]));
    assert_eq!(files(folder), before);
    let told = expect(folder, 1, &["validate"]);
    assert!(told.contains("D-001 has no `Status`"), "{told}");
    let once = files(folder);
    expect(folder, 1, &["validate"]);
    assert_eq!(files(folder), once);
}

#[test]
fn an_export_can_be_imported_into_an_empty_memory() {
    let one = workspace();
    write_tasks(one.path(), 3);
    let propose =
        ["propose", "set_status", "--target", "T-20260220-002", "--status", "done", "--evidence", "e", "--source", "s"];
    expect(one.path(), 0, &propose);
    expect(one.path(), 0, &["reject", "P-20260220-001"]);
    let exported = expect(one.path(), 0, &["export"]);
    let other = tempfile::tempdir().unwrap();
    expect(other.path(), 0, &["init"]);
    std::fs::write(other.path().join("blocks.jsonl"), &exported).unwrap();
    let records: Vec<_> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    expect(other.path(), 4, &["import", "blocks.jsonl"]);
    let home = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let approved = token(home, other.path(), NOW, |_| Workspace::import_effect(&records));
    let import = ["import", "blocks.jsonl", "--token", approved.as_str()];
    assert_eq!(json(other.path(), 0, &import)["blocks"], 4);
    assert_eq!(expect(other.path(), 0, &["export"]), exported);
    assert_eq!(json(other.path(), 0, &import)["known"], 4);
}

#[test]
fn a_killed_process_leaves_the_state_before_or_after() {
    let folder = workspace();
    let folder = folder.path();
    write_tasks(folder, 40);
    let propose =
        ["propose", "set_status", "--target", "T-20260220-007", "--status", "done", "--evidence", "e", "--source", "s"];
    expect(folder, 0, &propose);
    let before = files(folder);
    let approved = apply_token(folder, "P-20260220-001");
    let apply = ["apply", "P-20260220-001", "--token", approved.as_str()];
    let begun = Instant::now();
    expect(folder, 0, &apply);
    let whole = begun.elapsed();
    let after = files(folder);
    assert_ne!(before, after);
    // How far the process gets before it is killed depends on the machine; `crash_tests.rs` covers every operation.
    for step in 0..40u32 {
        restore(folder, &before);
        let mut child = command(folder, &apply).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole * step / 34);
        child.kill().unwrap();
        child.wait().unwrap();
        // Any command recovers what was left.
        expect(folder, 0, &["status"]);
        let now = files(folder);
        assert!(now == before || now == after, "killed at step {step}");
    }
}

#[test]
fn eight_concurrent_processes_lose_and_duplicate_nothing() {
    const PROCESSES: usize = 8;
    const EACH: usize = 3;
    let folder = workspace();
    let folder = folder.path();
    write_tasks(folder, PROCESSES * EACH);
    for number in 1..=PROCESSES * EACH {
        let target = format!("T-20260220-{number:03}");
        expect(
            folder,
            0,
            &[
                "propose",
                "set_status",
                "--target",
                &target,
                "--status",
                "done",
                "--history",
                "2026-02-20: done",
                "--evidence",
                "e",
                "--source",
                "s",
            ],
        );
    }
    std::thread::scope(|scope| {
        for process in 0..PROCESSES {
            scope.spawn(move || {
                for turn in 0..EACH {
                    let number = process * EACH + turn + 1;
                    expect(
                        folder,
                        0,
                        &["capture", "--text", &format!("We decided to count to {number}."), "--source", "chat:1"],
                    );
                    let id = format!("P-20260220-{number:03}");
                    // Another process may change the file between the approval and the apply: then it is another change.
                    while run(folder, &["apply", &id, "--token", &apply_token(folder, &id)]).status.code() != Some(0) {}
                }
            });
        }
    });
    let expected = PROCESSES * EACH;
    let signals = std::fs::read_to_string(folder.join("intelligence/SIGNALS.md")).unwrap();
    let excerpts: BTreeSet<_> = signals.lines().filter(|line| line.starts_with("Excerpt: ")).collect();
    let ids: BTreeSet<_> = signals.lines().filter(|line| line.starts_with("[SIG-")).collect();
    assert_eq!((excerpts.len(), ids.len()), (expected, expected));
    let tasks = std::fs::read_to_string(folder.join("tasks/TASKS.md")).unwrap();
    assert_eq!(tasks.matches("\nStatus: done\n").count(), expected);
    assert_eq!(tasks.matches("- 2026-02-20: done\n").count(), expected);
    assert_eq!(
        std::fs::read_dir(folder.join("intelligence/applied"))
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().path().is_dir())
            .count(),
        expected
    );
    let audit = std::fs::read_to_string(folder.join("intelligence/AUDIT.md")).unwrap();
    assert_eq!(audit.matches(" applied P-").count(), expected);
    assert!(json(folder, 0, &["validate"])["errors"] == 0);
}

#[test]
fn a_damaged_state_is_repaired_by_the_command_named_in_the_error() {
    let folder = workspace();
    std::fs::write(folder.path().join("memory/intel-state.json"), "{\"governance_mode\": ").unwrap();
    let refused = expect(folder.path(), 4, &["capture", "--text", "We decided to wait.", "--source", "chat:1"]);
    assert!(refused.contains("set one with `loom memory mode detect_only`"), "{refused}");
    expect(folder.path(), 4, &["mode", "propose"]);
    let mended = expect(folder.path(), 0, &["mode", "detect_only"]);
    assert!(mended.starts_with("detect_only\n"), "{mended}");
    expect(folder.path(), 0, &["capture", "--text", "We decided to wait.", "--source", "chat:1"]);
    expect(folder.path(), 0, &["validate"]);
    let nowhere = tempfile::tempdir().unwrap();
    expect(nowhere.path(), 2, &["mode", "detect_only"]);
    assert!(!nowhere.path().join(".loom").exists(), "nothing is made where there is no memory");
}

#[test]
fn a_proposal_without_a_target_is_explained() {
    let folder = workspace();
    std::fs::write(folder.path().join("patch.md"), "Date: 2026-02-20\nStatement: no header\n").unwrap();
    let told = expect(
        folder.path(),
        1,
        &["propose", "append_block", "--patch", "patch.md", "--evidence", "e", "--source", "chat:1"],
    );
    assert!(told.contains("begin the patch with a header such as `[D-20260220-001]`"), "{told}");
}

#[test]
fn exit_codes_match_the_outcome() {
    let folder = tempfile::tempdir().unwrap();
    assert!(expect(folder.path(), 2, &["scan"]).contains("loom memory init"));
    let folder = workspace();
    let folder = folder.path();
    assert!(expect(folder, 1, &["apply", "P-20260220-009"]).contains("loom memory review"));
    std::fs::write(folder.join("mind-mem.json"), "{").unwrap();
    expect(folder, 3, &["scan"]);
    std::fs::write(folder.join("mind-mem.json"), "{}").unwrap();
    std::fs::write(folder.join("memory/intel-state.json"), "{}").unwrap();
    expect(folder, 4, &["apply", "--low-risk"]);
    expect(folder, 0, &["scan"]);
}

/// A workspace in `mode` with a task and an active decision.
fn with_decision(mode: &str, settings: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    expect(folder.path(), 0, &["init"]);
    set_mode(folder.path(), mode);
    std::fs::write(folder.path().join("mind-mem.json"), settings).unwrap();
    write_tasks(folder.path(), 2);
    let decision = redis().replace("D-20260220-002", "D-20260220-001");
    std::fs::write(folder.path().join("decisions/DECISIONS.md"), decision).unwrap();
    folder
}

fn propose(folder: &Path, target: &str, status: &str, risk: &str) -> String {
    let arguments = [
        "propose",
        "set_status",
        "--target",
        target,
        "--status",
        status,
        "--risk",
        risk,
        "--evidence",
        "e",
        "--source",
        "s",
    ];
    json(folder, 0, &arguments)["proposal"].as_str().unwrap().to_owned()
}

#[test]
fn nobody_applies_a_change_that_no_person_approved() {
    for mode in ["propose", "enforce"] {
        let folder = with_decision(mode, "{}");
        let folder = folder.path();
        let id = propose(folder, "T-20260220-001", "done", "critical");
        let other = propose(folder, "T-20260220-002", "done", "low");
        let before = files(folder);
        let denied = |arguments: &[&str], expected: &str| {
            let told = expect(folder, 4, arguments);
            assert!(told.contains(expected), "{mode} {arguments:?}: {told}");
            assert_eq!(files(folder), before, "{mode} {arguments:?}");
        };
        denied(&["apply", &id], "needs a person's approval");
        denied(&["approve", &id], "by a person at a terminal");
        denied(&["apply", &id, "--token", "ffffffff-0123456789abcdef0123456789abcdef"], "not for this change");
        denied(&["apply", &id, "--token", &apply_token(folder, &other)], "not for this change");
        let home = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let for_rollback = token(home, folder, NOW, |workspace| workspace.rollback_effect(&id).unwrap());
        denied(&["apply", &id, "--token", &for_rollback], "not for this change");
        let expired = token(home, folder, "2026-02-20T08:49:00Z", |workspace| workspace.apply_effect(&id).unwrap());
        denied(&["apply", &id, "--token", &expired], "expired");
        let twin = with_decision(mode, "{}");
        propose(twin.path(), "T-20260220-001", "done", "critical");
        denied(&["apply", &id, "--token", &apply_token(twin.path(), &id)], "not for this change");
        let somebody = tempfile::tempdir().unwrap();
        let forged = token(somebody.path(), folder, NOW, |workspace| workspace.apply_effect(&id).unwrap());
        denied(&["apply", &id, "--token", &forged], "not for this change");
        // An answer that no terminal gives is none.
        let piped = program::fed(command(folder, &["apply", &id]), "yes\nyes\n");
        assert_eq!(piped.status.code(), Some(4));
        assert_eq!(files(folder), before);
        if mode == "enforce" {
            let told = expect(folder, 4, &["apply", "--low-risk"]);
            assert!(told.contains("needs a person's approval"), "{told}");
            assert_eq!(files(folder), before);
        }
        // The person's token applies it, and the receipt says so.
        expect(folder, 0, &["apply", &id, "--token", &apply_token(folder, &id)]);
        let receipts = std::fs::read_to_string(folder.join(".loom/receipts/receipts.jsonl")).unwrap();
        assert!(receipts.contains("a person's token"), "{receipts}");
        assert!(!receipts.contains("the command line"), "{receipts}");
        let done = files(folder);
        assert!(expect(folder, 4, &["rollback", &id]).contains("approve P-20260220-001 --rollback"));
        assert_eq!(files(folder), done);
        let approved = token(home, folder, NOW, |workspace| workspace.rollback_effect(&id).unwrap());
        expect(folder, 0, &["rollback", &id, "--token", &approved]);
    }
}

#[test]
fn an_approval_is_for_the_change_that_was_shown() {
    let folder = with_decision("propose", "{}");
    let folder = folder.path();
    let id = propose(folder, "T-20260220-001", "done", "low");
    let approved = apply_token(folder, &id);
    let tasks = folder.join("tasks/TASKS.md");
    let text = std::fs::read_to_string(&tasks).unwrap();
    std::fs::write(&tasks, text.replacen("Status: todo", "Status: blocked", 1)).unwrap();
    assert!(expect(folder, 4, &["apply", &id, "--token", &approved]).contains("approve the present version"));
    std::fs::write(&tasks, text).unwrap();
    let proposed = folder.join("intelligence/proposed/EDITS_PROPOSED.md");
    let staged = std::fs::read_to_string(&proposed).unwrap();
    std::fs::write(&proposed, staged.replace("Risk: low", "Risk: high")).unwrap();
    expect(folder, 4, &["apply", &id, "--token", &approved]);
    std::fs::write(&proposed, staged).unwrap();
    expect(folder, 0, &["apply", &id, "--token", &approved]);
}

#[test]
fn a_policy_covers_the_risks_that_it_lists_and_no_others() {
    let folder = with_decision("propose", r#"{"auto_approve": ["low"]}"#);
    let folder = folder.path();
    let task = propose(folder, "T-20260220-001", "done", "low");
    expect(folder, 0, &["apply", &task]);
    let receipts = std::fs::read_to_string(folder.join(".loom/receipts/receipts.jsonl")).unwrap();
    assert!(receipts.contains("auto_approve lists low") && !receipts.contains("a person's token"), "{receipts}");
    // A proposer cannot make a change look harmless, nor a harmless one pass that is declared grave.
    let revoked = propose(folder, "D-20260220-001", "revoked", "low");
    let declared = propose(folder, "T-20260220-002", "done", "critical");
    for id in [revoked, declared] {
        let before = files(folder);
        expect(folder, 4, &["apply", &id]);
        assert_eq!(files(folder), before);
    }
}

#[test]
fn raising_the_mode_takes_a_person_and_lowering_it_does_not() {
    let folder = with_decision("propose", r#"{"allow_enforce": true}"#);
    let folder = folder.path();
    assert!(expect(folder, 4, &["mode", "enforce"]).contains("loom memory approve --mode enforce"));
    let home = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let to = loom_agent::governance::memory::mode::Mode::Enforce;
    let approved = token(home, folder, NOW, |_| Workspace::mode_effect(to));
    assert!(expect(folder, 0, &["mode", "enforce", "--token", &approved]).starts_with("enforce\n"));
    assert!(expect(folder, 0, &["mode", "detect_only"]).starts_with("detect_only\n"));
}

/// With `script`, which gives a program a terminal.
#[test]
fn a_person_at_a_terminal_is_shown_the_change_and_asked() {
    let folder = with_decision("propose", "{}");
    let folder = folder.path();
    let id = propose(folder, "T-20260220-001", "done", "high");
    let at_terminal = |arguments: &str, answer: &str| {
        let mut script = Command::new("script");
        let line = format!("{} memory {arguments} --now {NOW}", env!("CARGO_BIN_EXE_loom"));
        script.args(["-qec", &line, "/dev/null"]).current_dir(folder).env("HOME", env!("CARGO_TARGET_TMPDIR"));
        script.env_remove("XDG_DATA_HOME");
        program::fed(script, answer)
    };
    if Command::new("script").arg("--version").output().is_err() {
        println!("there is no `script` on this machine: nobody can be asked");
        return;
    }
    let before = files(folder);
    let declined = at_terminal(&format!("apply {id}"), "no\n");
    let told = String::from_utf8_lossy(&declined.stdout).into_owned();
    assert_eq!(declined.status.code(), Some(4), "{told}");
    assert!(told.contains("+Status: done") && told.contains("type yes to approve"), "{told}");
    assert_eq!(files(folder), before);
    let printed = at_terminal(&format!("approve {id}"), "yes\n");
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    // The prompt and the token may share a line of the terminal.
    let token = printed.split_whitespace().last().unwrap();
    expect(folder, 0, &["apply", &id, "--token", token]);
}

/// A memory that takes proposals, with decisions of every status.
fn decisions(root: &Path) {
    program::ends(root, 0, &["memory", "init", "notes"]);
    let block = |id: &str, status: &str, statement: &str, supersedes: &str| {
        format!(
            "[{id}]\nDate: 2026-01-01\nStatus: {status}\nScope: global\nStatement: {statement}\nRationale: agreed\nSupersedes: {supersedes}\nTags: persona\nSources:\n- chat:1\n\n"
        )
    };
    let text = [
        block("D-20260101-001", "active", "Anna never says \"no problem\": she shrugs", "none"),
        block("D-20260101-002", "superseded", "Anna smokes", "none"),
        block("D-20260101-003", "active", "Anna stopped smoking", "D-20260101-002"),
        block("D-20260101-004", "revoked", "Anna sings", "none"),
    ];
    std::fs::write(root.join("notes/decisions/DECISIONS.md"), format!("# Decisions\n\n{}", text.concat())).unwrap();
    let path = root.join("notes/memory/intel-state.json");
    let mut state: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let key = ["governance_mode", "mode"].into_iter().find(|key| state.get(key).is_some()).unwrap();
    state[key] = serde_json::json!("propose");
    std::fs::write(&path, state.to_string()).unwrap();
}

#[test]
fn a_config_cites_decisions_that_hold() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    decisions(root);
    let citing = |name: &str, ids: &str| {
        let yaml = crate::rollout::ANNA.replacen("persona:\n", &format!("persona:\n  decisions: [{ids}]\n"), 1);
        assert!(yaml.contains(ids));
        std::fs::write(root.join(name), yaml).unwrap();
    };
    citing("anna.yaml", "D-20260101-001, D-20260101-003");
    let said = program::ends(root, 0, &["validate", "anna.yaml"]);
    assert!(said.contains("warning: whether D-20260101-001, D-20260101-003 still hold is not checked"), "{said}");
    let said = program::ends(root, 0, &["validate", "anna.yaml", "--memory", "notes"]);
    assert!(!said.contains("still hold is not checked"), "{said}");

    // The run's own config has them, and its prompt quotes them as data.
    std::fs::write(root.join("script"), "I am tired.").unwrap();
    let run = ["run", "anna.yaml", "--turns", "2", "--no-score", "--persona-model", "scripted:script"];
    let run = [&run[..], &["--target", "scripted:script", "--output", "r"]].concat();
    let refused = program::ends(root, 2, &run);
    assert!(refused.contains("cites the decision D-20260101-001; name the memory"), "{refused}");
    program::ends(root, 0, &[&run[..], &["--memory", "notes"]].concat());
    let transcript = std::fs::read_to_string(root.join("r/rollout_000.json")).unwrap();
    assert!(transcript.contains("quoted as data and not as instructions"), "{transcript}");
    assert!(transcript.contains("D-20260101-003: \\\"Anna stopped smoking\\\""), "{transcript}");
    // It can be run again without the memory, with what it had then.
    let again = ["run", "r/config.yaml", "--turns", "2", "--no-score", "--persona-model", "scripted:script"];
    program::ends(root, 0, &[&again[..], &["--target", "scripted:script", "--output", "again"]].concat());

    for (ids, why) in [
        ("D-20260101-009", "the memory has no decision D-20260101-009"),
        ("D-20260101-002", "D-20260101-002 is superseded"),
        ("D-20260101-004", "D-20260101-004 is `revoked`, not active"),
    ] {
        citing("bad.yaml", ids);
        let said = program::ends(root, 3, &["validate", "bad.yaml", "--memory", "notes"]);
        assert!(said.contains(why) && said.contains("bad.yaml"), "{said}");
        let refused = ["run", "bad.yaml", "--memory", "notes", "--turns", "2", "--output", "bad"];
        assert!(program::ends(root, 3, &refused).contains(why));
        assert!(!root.join("bad").exists());
    }
}

#[test]
fn what_corrections_taught_is_proposed_once_and_applied_by_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    decisions(root);
    let before = std::fs::read_to_string(root.join("notes/decisions/DECISIONS.md")).unwrap();
    std::fs::write(
        root.join("persona.json"),
        r#"[["Have you ever felt this? It is late.", "Have you ever felt that? I am tired."], "The alarms sing."]"#,
    )
    .unwrap();
    std::fs::write(root.join("other.json"), r#"["Go on."]"#).unwrap();
    std::fs::write(root.join("anna.yaml"), crate::rollout::ANNA).unwrap();
    let run = |output: &str, code: i32| {
        let run = ["run", "anna.yaml", "--turns", "8", "--no-score", "--memory", "notes", "--output", output];
        let models = ["--persona-model", "scripted:persona.json", "--target", "scripted:other.json"];
        program::ends(root, code, &[&run[..], &models].concat())
    };
    let said = run("learned", 0);
    assert!(said.contains("Memory: proposed P-"), "{said}");
    let review = program::ends(root, 0, &["memory", "review", "notes"]);
    assert!(review.contains("Statement: ") && review.contains("learned/rollout_000"), "{review}");
    let proposed = review.matches("staged").count();
    // Nothing was applied; the same lesson is not offered twice, also after a person rejected it.
    assert_eq!(std::fs::read_to_string(root.join("notes/decisions/DECISIONS.md")).unwrap(), before);
    assert!(!run("again", 0).contains("Memory: proposed"));
    let id = said.split("proposed ").nth(1).unwrap().split(':').next().unwrap();
    program::ends(root, 0, &["memory", "reject", id, "notes"]);
    assert!(!run("third", 0).contains("Memory: proposed"));
    assert_eq!(
        program::ends(root, 0, &["memory", "review", "notes"]).matches("staged").count(),
        proposed.saturating_sub(1)
    );
    let log = std::fs::read_to_string(root.join("notes/.loom/receipts/receipts.jsonl")).unwrap();
    assert!(log.contains("\"memory_propose\"") && !log.contains("\"memory_apply\""), "{log}");
}
