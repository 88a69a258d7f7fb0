//! `loom regulate` from the command line: events in, decisions out, and the state file.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::program;

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = program::command(folder, &[&["regulate"], arguments].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn regulate(folder: &Path, arguments: &[&str], events: &str) -> Output {
    program::fed(command(folder, arguments), events)
}

/// `at decision` of every line of output.
fn decisions(output: &Output) -> Vec<String> {
    String::from_utf8(output.stdout.clone())
        .unwrap()
        .lines()
        .map(|line| {
            let value: Value = serde_json::from_str(line).unwrap();
            format!("{} {}", value["at"].as_str().unwrap(), value["decision"].as_str().unwrap())
        })
        .collect()
}

const CORRECTED: &str = r#"
{"type":"turn_start","user_message":"Refactor the loader function."}
{"type":"turn_complete","full_response":"Here it is."}
{"type":"user_correction","correction_message":"Don't add docstrings to refactored output.","corrects_last":true}
"#;

#[test]
fn decisions_are_written_at_turn_ends_at_stops_and_at_the_end_of_input() {
    let folder = tempfile::tempdir().unwrap();
    let events = r#"{"type":"turn_start","user_message":"Capital of Tanzania?"}
{"type":"token","token":"Zanzi","logprob":-6.0,"index":0,"top":[["Do",-0.4],["Zanzi",-6.0]]}
{"type":"token","token":"bar.","logprob":-5.5,"index":1}
{"type":"turn_complete","full_response":"Zanzibar."}
{"type":"cost","tokens_in":90,"tokens_out":10,"wallclock_ms":5}
"#;
    let output = regulate(folder.path(), &["--cost-cap-tokens", "100"], events);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        decisions(&output),
        [
            "turn_complete low_confidence_spans",
            "cost circuit_break",
            "cost low_confidence_spans",
            "end_of_input circuit_break",
            "end_of_input low_confidence_spans"
        ]
    );
    insta::assert_snapshot!("decisions", String::from_utf8(output.stdout).unwrap());
}

#[test]
fn decisions_are_flushed_before_the_input_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = command(folder.path(), &["--cost-cap-tokens-out", "2"]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    for index in 0..2 {
        writeln!(stdin, r#"{{"type":"token","token":"x","logprob":-0.1,"index":{index}}}"#).unwrap();
    }
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let value: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&value["decision"], &value["stop"]), (&"circuit_break".into(), &true.into()));
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_bad_line_is_reported_and_skipped_unless_strict() {
    let folder = tempfile::tempdir().unwrap();
    let events = "{\"type\":\"turn_start\",\"user_message\":\"x\"}\n\nnonsense\n\u{FFFD}\n{\"type\":\"token\",\"token\":\"x\",\"lgprob\":-1}\n\
        {\"type\":\"turn_complete\",\"full_response\":\"x\"}\n";
    let output = regulate(folder.path(), &[], events);
    assert_eq!(
        (output.status.code(), decisions(&output)),
        (Some(1), vec!["turn_complete continue".into(), "end_of_input continue".into()])
    );
    insta::assert_snapshot!("bad_lines", String::from_utf8(output.stderr).unwrap());
    let strict = regulate(folder.path(), &["--strict"], events);
    assert_eq!((strict.status.code(), decisions(&strict)), (Some(1), vec!["end_of_input continue".into()]));
}

#[test]
fn learned_rules_are_stored_per_user() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--state", "ann.json", "--user", "ann"];
    for _ in 0..3 {
        assert_eq!(regulate(folder.path(), &flags, CORRECTED).status.code(), Some(0));
    }
    let task = r#"{"type":"turn_start","user_message":"Refactor the parser module."}"#;
    let output = regulate(folder.path(), &[flags.as_slice(), &["--signals", "2026-02-13"]].concat(), task);
    assert_eq!(decisions(&output), ["turn_start procedural_warning", "end_of_input procedural_warning"]);
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("[SIG-20260213-001]\nDate: 2026-02-13\n"));

    let other = regulate(folder.path(), &["--state", "ann.json", "--user", "bob"], task);
    assert_eq!(other.status.code(), Some(2));
    assert!(String::from_utf8(other.stderr).unwrap().contains("belongs to user `ann`, not `bob`"));
    std::fs::write(folder.path().join("new.json"), r#"{"version":9,"user":"ann"}"#).unwrap();
    let newer = regulate(folder.path(), &["--state", "new.json"], task);
    assert_eq!(newer.status.code(), Some(2));
    assert!(String::from_utf8(newer.stderr).unwrap().contains("has version 9"));
}

#[test]
fn the_state_survives_a_kill_and_is_locked_by_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = command(folder.path(), &["--state", "ann.json"]).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    stdin.write_all(CORRECTED.as_bytes()).unwrap();
    writeln!(stdin, r#"{{"type":"turn_complete","full_response":"Here it is again."}}"#).unwrap();
    // The decision on the first turn: the state is on disk by then, and locked while the program runs.
    stdout.read_line(&mut String::new()).unwrap();
    assert!(std::fs::read_to_string(folder.path().join("ann.json")).unwrap().contains("\"turns\":1"));
    let second = regulate(folder.path(), &["--state", "ann.json"], "");
    assert_eq!(second.status.code(), Some(2));
    assert!(
        program::told(&second).contains("ann.json is in use: another `loom regulate`"),
        "{}",
        program::told(&second)
    );
    child.kill().unwrap();
    child.wait().unwrap();
    let again = regulate(folder.path(), &["--state", "ann.json"], "");
    assert_eq!(again.status.code(), Some(0), "{}", program::told(&again));
    let nowhere = regulate(folder.path(), &["--state", "none/ann.json"], CORRECTED);
    assert_eq!(
        (nowhere.status.code(), nowhere.stdout.as_slice()),
        (Some(2), &b""[..]),
        "reported before any event is read"
    );
}

#[test]
fn settings_out_of_range_are_refused_wherever_they_come_from() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("s.json"), r#"{"scope":{"drift":7}}"#).unwrap();
    for flags in [["--settings", "s.json"], ["--drift", "7"], ["--replay", "scope.drift=7"]] {
        let output = regulate(folder.path(), &flags, "");
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        let told = program::told(&output);
        assert!(told.contains("setting `scope.drift` cannot be 7: from 0 to 1 is needed"), "{told}");
    }
}

#[test]
fn a_closed_pipe_ends_quietly_and_the_state_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = command(folder.path(), &["--state", "s.json"]).spawn().unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    for _ in 0..3 {
        if stdin.write_all(CORRECTED.as_bytes()).is_err() {
            break;
        }
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    assert!(folder.path().join("s.json").exists());
}

#[test]
fn a_replay_lists_decisions_under_other_settings() {
    let folder = tempfile::tempdir().unwrap();
    let turn =
        "{\"type\":\"turn_start\",\"user_message\":\"x\"}\n{\"type\":\"cost\",\"tokens_in\":60,\"tokens_out\":0}\n";
    let flags = ["--cost-cap-tokens", "100", "--replay", "cost.hard.tokens=100,170,null"];
    let output = regulate(folder.path(), &flags, &turn.repeat(3));
    assert_eq!(output.status.code(), Some(0));
    insta::assert_snapshot!("replay", String::from_utf8(output.stdout).unwrap());
    let unused = regulate(folder.path(), &["--replay", "cost.hard.tokens=1", "--calibration", "no.json"], "");
    assert_eq!(unused.status.code(), Some(2), "flags that a replay does not use are refused");
    let typo = regulate(folder.path(), &["--replay", "cost.cap=1"], "");
    assert_eq!(typo.status.code(), Some(2));
    assert!(String::from_utf8(typo.stderr).unwrap().contains("there is no such setting"));
}

/// The answers to events that ask for permission: `ack allow stop`.
fn answers(output: &Output) -> Vec<String> {
    let lines = String::from_utf8(output.stdout.clone()).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .filter(|line| line.get("ack").is_some())
        .map(|line| format!("{} {} {}", line["ack"].as_str().unwrap(), line["allow"], line["stop"]))
        .collect()
}

#[test]
fn every_event_that_asks_for_permission_gets_one_answer() {
    let folder = tempfile::tempdir().unwrap();
    let events = r#"{"model":"m","messages":[{"role":"user","content":"Why is the sky blue?"}]}
{"type":"reserve","call_id":"c1","tokens_in":60,"tokens_out":30}
data: {"object":"chat.completion.chunk","id":"c1","choices":[{"delta":{"content":"Air"},"logprobs":{"content":[{"token":"Air","logprob":-Infinity,"top_logprobs":[]}]}}]}
{"type":"elapsed","wallclock_ms":7}
data: {"object":"chat.completion.chunk","id":"c1","choices":[{"delta":{},"finish_reason":"stop"}]}
data: {"object":"chat.completion.chunk","id":"c1","model":"m","choices":[],"usage":{"prompt_tokens":60,"completion_tokens":45}}
data: [DONE]
{"type":"tool_call","call_id":"t1","tool_name":"look","args_json":{}}
{"type":"turn_start","user_message":"And at night?"}
"#;
    let output = regulate(folder.path(), &["--ack", "--cost-cap-tokens", "100"], events);
    assert_eq!(output.status.code(), Some(0), "{}", program::told(&output));
    let expected = [
        "turn_start true false",
        "reserve true false",
        "elapsed true false",
        "tool_call false true",
        "turn_start false true",
    ];
    assert_eq!(answers(&output), expected);
    let prices = r#"{"m": {"input": 1.0, "output": 4.0}}"#;
    std::fs::write(folder.path().join("prices.json"), prices).unwrap();
    let flags = ["--ack", "--prices", "prices.json", "--cost-cap-money-micros", "241"];
    assert_eq!(answers(&regulate(folder.path(), &flags, events))[4], "turn_start true false", "60 and four times 45");
    let flags = ["--ack", "--prices", "prices.json", "--cost-cap-money-micros", "240"];
    assert_eq!(answers(&regulate(folder.path(), &flags, events))[4], "turn_start false true");
}

#[test]
fn sessions_in_one_process_have_caps_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let events = r#"{"type":"turn_start","user_message":"x","session":"a"}
{"type":"cost","tokens_in":90,"tokens_out":20,"session":"a"}
{"type":"turn_start","user_message":"x","session":"b"}
{"type":"cost","tokens_in":10,"tokens_out":2,"session":"b"}
"#;
    let output = regulate(folder.path(), &["--cost-cap-tokens", "100"], events);
    let lines = String::from_utf8(output.stdout).unwrap();
    let last: Vec<Value> = lines.lines().rev().take(2).map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&last[0]["session"], &last[0]["decision"]), (&"b".into(), &"continue".into()));
    assert_eq!((&last[1]["session"], &last[1]["decision"]), (&"a".into(), &"circuit_break".into()));
    let refused = regulate(folder.path(), &["--state", "s.json"], events);
    assert_eq!(refused.status.code(), Some(2));
    assert!(program::told(&refused).contains("session `a`"), "{}", program::told(&refused));
}

#[test]
fn input_of_which_nothing_is_understood_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let spans = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"GET /","attributes":[{"key":"http.method","value":{"stringValue":"GET"}}]}]}]}]}"#;
    let output = regulate(folder.path(), &[], &format!("{spans}\n{spans}\n"));
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]));
    assert!(
        program::told(&output).contains("nothing was understood: none of the 2 lines"),
        "{}",
        program::told(&output)
    );
    let others = include_str!("../data/otlp_others.jsonl");
    let output = regulate(folder.path(), &[], &format!("{spans}\n{others}"));
    assert_eq!(output.status.code(), Some(0), "{}", program::told(&output));
}

#[test]
fn a_kill_costs_at_most_the_last_event() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = command(folder.path(), &["--state", "ann.json", "--ack"]).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    for _ in 0..10 {
        stdin.write_all(CORRECTED.trim_start().as_bytes()).unwrap();
    }
    writeln!(stdin, r#"{{"type":"elapsed","wallclock_ms":1}}"#).unwrap();
    // Once the last event is answered, every one before it is stored, although the process is idle and never ends.
    let mut line = String::new();
    while !line.contains("\"ack\":\"elapsed\"") {
        line.clear();
        assert!(stdout.read_line(&mut line).unwrap() > 0);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let state: Value = serde_json::from_str(&std::fs::read_to_string(folder.path().join("ann.json")).unwrap()).unwrap();
    assert_eq!((&state["turns"], &state["corrections"]["clusters"][0]["count"]), (&10.into(), &10.into()));
}

/// The claims of docs/REGULATOR.md.
#[test]
fn sessions_in_which_nothing_is_wrong_are_left_alone_and_faults_are_found() {
    let output = program::loom(&program::root(), &["regulate", "--bench", "tests/data/sessions", "--mistakes"]);
    assert_eq!(output.status.code(), Some(0), "{}", program::told(&output));
    let tables = String::from_utf8(output.stdout).unwrap();
    for (set, sessions, healthy_min) in
        [("development", 24, 3_000), ("held_back", 24, 3_000), ("by_hand", 40, 500), ("by_hand_later", 3, 5)]
    {
        let (_, table) = tables.split_once(&format!("{set}\n\n| Sessions |")).unwrap();
        let row = table.lines().nth(2).unwrap();
        let cells: Vec<f64> = row.split('|').filter_map(|cell| cell.split_whitespace().next()?.parse().ok()).collect();
        let [count, healthy, stops, warnings, planted, found] = cells[..] else { panic!("{row}") };
        assert!((count - f64::from(sessions)).abs() < 0.5 && healthy >= f64::from(healthy_min), "{set}: {row}");
        let page = include_str!("../../docs/REGULATOR.md");
        assert!(page.contains(&format!("| {set} {row}\n")), "docs/REGULATOR.md has another row than {row}");
        assert!(stops < 0.5 && warnings / healthy <= 0.02 && found / planted >= 0.9, "{set}: {row}\n{tables}");
    }
}

#[test]
fn a_bill_that_comes_a_turn_late_replaces_what_was_counted() {
    let folder = tempfile::tempdir().unwrap();
    let events = |bill: u64| {
        format!(
            r#"{{"type":"turn_start","user_message":"Count."}}
{{"type":"text","text":"{}"}}
{{"type":"turn_complete","full_response":""}}
{{"type":"turn_start","user_message":"And again."}}
{{"type":"cost","tokens_in":10,"tokens_out":{bill},"call_id":"c1"}}
{{"type":"reserve","tokens_out":1}}
"#,
            "one two three ".repeat(20)
        )
    };
    // 280 bytes are counted as 70 tokens.
    let allowed =
        |bill: u64, cap: &str| answers(&regulate(folder.path(), &["--ack", "--cost-cap-tokens", cap], &events(bill)));
    assert_eq!(allowed(30, "65"), ["turn_start true false", "turn_start false true", "reserve true false"]);
    assert_eq!(allowed(90, "75"), ["turn_start true false", "turn_start true false", "reserve false true"]);
}

#[cfg(unix)]
#[test]
fn a_terminated_process_leaves_the_state_of_the_last_event() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = command(folder.path(), &["--state", "ann.json", "--ack"]).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    stdin.write_all(CORRECTED.trim_start().as_bytes()).unwrap();
    writeln!(stdin, r#"{{"type":"turn_start","user_message":"Refactor the parser."}}"#).unwrap();
    let mut acknowledged = 0;
    while acknowledged < 2 {
        let mut line = String::new();
        assert!(stdout.read_line(&mut line).unwrap() > 0);
        acknowledged += usize::from(line.contains("\"ack\""));
    }
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    child.wait().unwrap();
    let state: Value = serde_json::from_str(&std::fs::read_to_string(folder.path().join("ann.json")).unwrap()).unwrap();
    assert_eq!((&state["turns"], &state["corrections"]["clusters"][0]["count"]), (&2.into(), &1.into()));
    let again = regulate(folder.path(), &["--state", "ann.json"], "");
    assert_eq!(again.status.code(), Some(0), "the lock went with the process: {}", program::told(&again));
}
