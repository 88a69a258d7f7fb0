//! What a session finds when a judge that passed its test rates: what the judge says, both ways; and how a finding is
//! asserted, or not.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom_agent::app::session::{Session, SessionError};
use loom_agent::foundation::store::receipts::ReceiptKey;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use super::{NEED, go, place, scripts};
use crate::program::{loom, told};

#[derive(Deserialize)]
struct Calibration {
    pairs: Vec<Pair>,
    equals: Vec<Value>,
}

#[derive(Deserialize)]
struct Pair {
    higher: Vec<String>,
    lower: Vec<String>,
}

/// A judge behind a server that knows the order of the calibration's windows, and rates everything else by `likes`. As
/// `target` the server says something else each time, so that no two rollouts are the same.
fn judge(runtime: &Runtime, likes: bool) -> (MockServer, String) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/judging/calibration.yaml");
    let Calibration { pairs, equals } = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert!(pairs.len() > 20 && !equals.is_empty());
    let windows: Vec<(String, bool)> =
        pairs.iter().flat_map(|pair| [(pair.higher.join("\n"), true), (pair.lower.join("\n"), false)]).collect();
    let windows = Arc::new(windows);
    let spoken = AtomicUsize::new(0);
    let answer = move |asked: &Request| {
        let body: Value = asked.body_json().unwrap();
        if body["model"] == "target" {
            let said = format!("And the step number {}?", spoken.fetch_add(1, Ordering::Relaxed));
            return reply(&[(said.as_str(), &[(said.as_str(), 0.9)])]);
        }
        let last = body["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap();
        let first = windows.iter().filter_map(|(window, higher)| Some((last.find(window)?, *higher))).min();
        let good = first.map_or(likes, |(_, higher)| higher);
        if last.ends_with("Answer with one letter.") {
            let (said, other) = if good { ("A", "B") } else { ("B", "A") };
            return reply(&[(said, &[(said, 0.9), (other, 0.1)])]);
        }
        let (said, other) = if good { (" 5", " 4") } else { (" 1", " 2") };
        reply(&[("Rating", &[("Rating", 0.9)]), (":", &[(":", 1.0)]), (said, &[(said, 0.9), (other, 0.1)])])
    };
    runtime.block_on(async {
        let server = MockServer::start().await;
        Mock::given(method("POST")).and(path("/chat/completions")).respond_with(answer).mount(&server).await;
        let spec = format!("openai-compatible:{}#judge", server.uri());
        (server, spec)
    })
}

/// One streamed reply: each token with its alternatives.
fn reply(tokens: &[(&str, &[(&str, f64)])]) -> ResponseTemplate {
    let token = |text: &str, p: f64| json!({"token": text, "logprob": p.ln(), "bytes": text.as_bytes()});
    let chunk = |(text, top): &(&str, &[(&str, f64)])| {
        let others: Vec<Value> = top.iter().map(|(text, p)| token(text, *p)).collect();
        let mut own = token(text, top[0].1);
        own["top_logprobs"] = json!(others);
        json!({"choices": [{"index": 0, "delta": {"content": text}, "logprobs": {"content": [own]}}]})
    };
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let lines: Vec<_> = tokens.iter().map(chunk).chain([end]).map(|chunk| format!("data: {chunk}\n\n")).collect();
    ResponseTemplate::new(200).set_body_raw(lines.concat() + "data: [DONE]\n\n", "text/event-stream")
}

fn start(root: &Path, judge: &str, output: &str, engagement: &str) -> Vec<String> {
    let script = |name: &str| format!("scripted:{}", root.join(name).display());
    let models = [("--model", "model"), ("--persona-model", "persona")];
    let target = judge.replace("#judge", "#target");
    let own = ["session", "start", NEED, "--engagement", engagement, "--turns", "3", "--judge-model", judge];
    let own = own.into_iter().chain(["--target", &target, "--output", output]).map(str::to_owned);
    own.chain(models.into_iter().flat_map(|(flag, name)| [flag.to_owned(), script(name)])).collect()
}

#[track_caller]
fn does<A: AsRef<str>>(folder: &Path, arguments: &[A]) -> String {
    let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
    let output = loom(folder, &arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", told(&output));
    told(&output)
}

#[test]
fn the_finding_follows_a_tested_judge() {
    let runtime = Runtime::new().unwrap();
    for (likes, expected, fact) in [
        (true, "Finding: the persona holds, according to the scores.", "above 0.5: 95 % interval"),
        (false, "Finding: the persona does not hold, according to the scores.", "below 0.5: 95 % interval"),
    ] {
        let root = TempDir::new().unwrap();
        scripts(root.path());
        let (server, spec) = judge(&runtime, likes);
        // Before its test the judge's ratings stand in the report, and decide nothing.
        does(root.path(), &start(root.path(), &spec, "untested", "autonomous"));
        let report = fs::read_to_string(root.path().join("untested/report.md")).unwrap();
        assert!(report.contains("Finding: cannot tell") && report.contains("persona_adherence/1"), "{report}");

        does(root.path(), &["judge", "check", "--judge-model", &spec]);
        does(root.path(), &start(root.path(), &spec, "tested", "autonomous"));
        let report = fs::read_to_string(root.path().join("tested/report.md")).unwrap();
        assert!(report.contains(expected) && report.contains(fact), "{report}");
        assert!(report.contains("🟡 MONITOR") && report.contains("6 rollouts"), "{report}");
        let log = does(root.path(), &["session", "log", "tested"]);
        assert!(log.contains(&format!("score    persona_adherence/1: {fact}")), "{log}");
        does(root.path(), &["receipts", "verify", "tested"]);
        drop(server);
    }
}

#[test]
fn asserting_a_finding_needs_a_persons_approval_and_a_permit() {
    let runtime = Runtime::new().unwrap();
    for (likes, asserted) in [(true, "Asserted with the user's approval: the persona holds"), (false, "does not hold")]
    {
        let root = TempDir::new().unwrap();
        scripts(root.path());
        let (_server, spec) = judge(&runtime, likes);
        does(root.path(), &start(root.path(), &spec, "s", "collaborative"));
        // The session's own file names the judge's server.
        let server = spec.trim_start_matches("openai-compatible:").split('#').next().unwrap();
        let answer = |text: &str| loom(root.path(), &["session", "answer", "s", text, "--allow-host", server]);
        for text in ["default", "yes", "yes"] {
            assert_eq!(answer(text).status.code(), Some(0), "{text}");
        }
        // Nobody tested the judge: nothing can be told, and nothing be asserted.
        let refused = answer("PROMOTE");
        assert!(told(&refused).contains("the finding is undecided, so nothing can be asserted"), "{}", told(&refused));
        does(root.path(), &["judge", "check", "--judge-model", &spec]);
        for text in ["NEW: once more", "yes"] {
            assert_eq!(answer(text).status.code(), Some(0), "{text}");
        }
        if likes {
            stopped_anywhere(root.path(), server);
        }
        assert_eq!(answer("PROMOTE").status.code(), Some(0));
        let report = fs::read_to_string(root.path().join("s/report.md")).unwrap();
        assert!(report.contains(asserted) && report.contains("Asserted"), "{report}");
        let log = fs::read_to_string(root.path().join("s/receipts.jsonl")).unwrap();
        let place = |all: &[&str]| {
            let line = log.lines().position(|line| all.iter().all(|what| line.contains(what)));
            line.unwrap_or_else(|| panic!("{all:?}: {log}"))
        };
        // Asked for, approved, hardened, verified once more, permitted, and only then done.
        let way = [
            place(&["{\"crossing\":\"promote\"}"]),
            place(&["{\"approved\":\"promote\"}", "privilege.harden"]),
            place(&["privilege.clear"]),
            place(&["verifier.attested"]),
            place(&["gate.approved", "\"promote\"", "the answer PROMOTE"]),
            place(&["gate.granted", "\"promote\""]),
            place(&["{\"changed\":{\"atom\":[", "\"promote\"]"]),
            place(&["{\"crossed\":\"promote\"}"]),
        ];
        assert!(way.is_sorted(), "{way:?}");
        assert!(log.contains(if likes { "{\"assert\":{" } else { "{\"refute\":\"holds\"}" }), "{log}");
        does(root.path(), &["mood", "replay", "s"]);
        does(root.path(), &["receipts", "verify", "s"]);
    }
}

/// Wherever the promotion is stopped, it comes to the same, and the report is promoted once.
fn stopped_anywhere(root: &Path, server: &str) {
    let copied = |number: usize| {
        let copy = root.join(format!("copy-{number}"));
        copy_all(&root.join("s"), &copy);
        copy
    };
    let resumed = |folder: &Path, most: usize| {
        let (mut at, disk) = place(folder, most);
        at.options.hosts.allow(server).unwrap();
        at.key = Arc::new(ReceiptKey::open(&root.join(".local/share/loom/key")).unwrap());
        (Session::resume(at), disk)
    };
    let finished = |folder: &Path, most: usize| -> Result<(String, usize), SessionError> {
        let (session, disk) = resumed(folder, most);
        let mut session = session?;
        if session.session_status().waiting {
            session.answer("PROMOTE")?;
        }
        go(&mut session).map(|session_status| (session_status.report, disk.appends.load(Ordering::Relaxed)))
    };
    let (whole, appends) = finished(&copied(0), usize::MAX).unwrap();
    assert!(whole.contains("Asserted with the user's approval") && appends > 10, "{appends}: {whole}");
    for most in 1..appends {
        let folder = copied(most);
        assert!(finished(&folder, most).is_err(), "{most}");
        assert_eq!(finished(&folder, usize::MAX).unwrap().0, whole, "stopped after {most} of {appends}");
        let log = fs::read_to_string(folder.join("receipts.jsonl")).unwrap();
        let promoted = |line: &&str| line.contains("{\"changed\":{\"atom\":[") && line.contains("\"promote\"]");
        assert_eq!(log.lines().filter(promoted).count(), 1, "stopped after {most} of {appends}");
        fs::remove_dir_all(&folder).unwrap();
    }
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_all(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
