//! `loom run` from outside: killed at any moment and resumed, at any parallelism, with the bundled model.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use loom_agent::foundation::chat::{DeltaGains, LayerGains};
use loom_agent::simulation::rollout::{Outcome, TokenLine, Totals, Transcript, read_tokens, read_transcript};
use serde_json::Value;
use tempfile::TempDir;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::program::{self, told};
use crate::rollout::{ANNA, FLAKY, files};

/// A folder with a config and two scripts.
fn folder(persona: &str, interlocutor: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    for (name, text) in [("anna.yaml", ANNA), ("persona.json", persona), ("interlocutor.json", interlocutor)] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn command(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = program::command(dir, &[&["run"], arguments].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn loom(dir: &Path, arguments: &[&str]) -> Output {
    command(dir, arguments).output().unwrap()
}

const SCRIPTED: [&str; 6] =
    ["anna.yaml", "--persona-model", "scripted:persona.json", "--target", "scripted:interlocutor.json", "--no-score"];

/// Turns on the disk in all partial files of a run.
fn turns_on_disk(run: &Path) -> usize {
    let files = fs::read_dir(run).into_iter().flatten().map(|entry| entry.unwrap().path());
    let partial = files.filter(|path| path.to_string_lossy().ends_with("partial.jsonl"));
    partial.filter_map(|path| fs::read_to_string(path).ok()).map(|text| text.matches('\n').count()).sum()
}

#[test]
fn each_role_may_have_a_device_and_a_missing_one_is_named() {
    let dir = folder(FLAKY, FLAKY);
    let at = |output: &'static str, more: &[&'static str]| {
        let common = ["anna.yaml", "--target", "scripted:interlocutor.json", "--no-score", "--turns", "2"];
        loom(dir.path(), &[&common[..], &["--output", output], more].concat())
    };
    // A role of its own device; what is scripted runs nowhere.
    let refused = at("refused", &["--persona-model", "bundled", "--persona-device", "cuda:97"]);
    let told_of = told(&refused);
    assert_eq!(refused.status.code(), Some(5), "{told_of}");
    assert!(told_of.contains("cuda:97") && told_of.contains("use the device `cpu`"), "{told_of}");
    let spared = at("spared", &["--persona-model", "bundled", "--device", "cuda:97", "--persona-device", "cpu"]);
    assert_eq!(spared.status.code(), Some(0), "{}", told(&spared));
    let unknown = at("unknown", &["--persona-model", "bundled", "--judge-device", "gpu"]);
    assert_eq!(unknown.status.code(), Some(2), "{}", told(&unknown));
}

/// A target that answers `replies` times and then keeps everybody waiting.
pub(crate) async fn answers(server: &MockServer, replies: u64) {
    let words = "data: {\"choices\": [{\"delta\": {\"content\": \"Go on.\"}, \"finish_reason\": \"stop\"}]}\n\ndata: [DONE]\n\n";
    let reply = ResponseTemplate::new(200).set_body_raw(words, "text/event-stream");
    server.reset().await;
    if replies > 0 {
        Mock::given(any()).respond_with(reply.clone()).up_to_n_times(replies).mount(server).await;
    }
    Mock::given(any()).respond_with(reply.set_delay(Duration::from_mins(10))).mount(server).await;
}

/// Begins a command that talks with that target, and kills it when it has asked `requests` times: it is still there, for
/// the last reply does not come.
pub(crate) async fn killed_at_request(server: &MockServer, command: &mut Command, requests: u64) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while (server.received_requests().await.unwrap().len() as u64) < requests {
        assert!(child.try_wait().unwrap().is_none(), "it cannot end without the target's replies");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_run_resumes_and_equals_an_uninterrupted_one() {
    let server = MockServer::start().await;
    let target = format!("openai-compatible:{}#m", server.uri());
    let dir = folder(FLAKY, "[]");
    let begin = |output: &str| {
        let models = ["anna.yaml", "--persona-model", "scripted:persona.json", "--target", &target, "--no-score"];
        command(dir.path(), &[&models[..], &["--rollouts", "3", "--turns", "9", "--output", output]].concat())
    };
    answers(&server, u64::MAX).await;
    let unbroken = begin("unbroken").output().unwrap();
    assert_eq!(unbroken.status.code(), Some(0), "{}", told(&unbroken));

    // Wherever its other rollouts are then.
    let mut next = begin("broken");
    for _ in 0..4 {
        answers(&server, 5).await;
        killed_at_request(&server, &mut next, 6).await;
        next = command(
            dir.path(),
            &["--resume", "broken", "--no-score", "--parallel", "2", "--allow-host", &server.uri()],
        );
    }
    answers(&server, u64::MAX).await;
    let last = next.output().unwrap();
    assert_eq!(last.status.code(), Some(0), "{}", told(&last));
    assert_eq!(files(&dir.path().join("broken")), files(&dir.path().join("unbroken")));
}

#[cfg(unix)]
#[test]
fn an_interrupt_finishes_the_turn_and_says_how_to_resume() {
    let slow = r#"[{"content": "Hello.", "delay_ms": 100}]"#;
    let dir = folder(slow, slow);
    let mut child =
        command(dir.path(), &[&SCRIPTED[..], &["--turns", "500", "--output", "my run"]].concat()).spawn().unwrap();
    while turns_on_disk(&dir.path().join("my run")) < 2 {
        assert!(child.try_wait().unwrap().is_none(), "500 turns take more than a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", told(&output));
    assert!(told(&output).contains("loom run --resume 'my run'"), "{}", told(&output));
    let partial = fs::read_to_string(dir.path().join("my run/rollout_000.partial.jsonl")).unwrap();
    assert!(partial.ends_with('\n') && partial.lines().count() < 500);
}

#[test]
fn errors_say_what_to_do() {
    let dir = folder(r#"["Hello."]"#, r#"["Go on."]"#);
    let check = |arguments: &[&str], code, what: &str| {
        let output = loom(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(code), "{}", told(&output));
        assert!(told(&output).contains(what), "{}", told(&output));
    };
    check(&["anna.yaml", "--target", "openai-compatible:nowhere#m"], 5, "its base URL is not a URL");
    check(&["anna.yaml", "--target", "gpt-4.1"], 2, "is not a model spec");
    check(&["anna.yaml", "--turns", "0"], 2, "TURNS_MAX");
    check(&["--resume", "nowhere"], 2, "contains no run");
    check(&["anna.yaml", "--resume", "nowhere"], 2, "cannot be used with");
    let open = ANNA.replace("mode: fixed_length\n  expected_turns: 6", "mode: open_ended");
    fs::write(dir.path().join("open.yaml"), &open).unwrap();
    check(&[&["open.yaml"], &SCRIPTED[1..]].concat(), 2, "--turns N");
    fs::write(dir.path().join("delta.yaml"), format!("{ANNA}\ndelta:\n  policy: fixed\n  gains: {{delta: 1.2}}\n"))
        .unwrap();
    check(&[&["delta.yaml"], &SCRIPTED[1..]].concat(), 3, "does not support");
    check(&SCRIPTED, 0, "Transcripts: results/");
    let dated: Vec<_> = fs::read_dir(dir.path().join("results")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(dated[0].to_string_lossy().ends_with("_anna") && dated[0].join("rollout_000.json").is_file());
    let again = dated[0].to_string_lossy().into_owned();
    check(&[&SCRIPTED[..], &["--output", &again]].concat(), 2, "--resume");
}

#[test]
fn the_bundled_model_is_deterministic_under_parallelism_and_resume() {
    run_is_deterministic(ANNA);
}

#[test]
fn trajectory_gains_survive_a_resume() {
    let gains = "delta: {policy: trajectory, dimension: conviction, low: {write: 0.7}, high: {decay: 1.3}}";
    run_is_deterministic(&format!("{ANNA}\n{gains}\n"));
}

#[test]
fn regulator_gains_survive_a_resume() {
    let transcript = run_is_deterministic(&format!("{ANNA}\ndelta: {{policy: regulator}}\n"));
    let layers = |turn: usize| match transcript.turns[turn].gains.clone().unwrap() {
        DeltaGains::PerLayer(layers) => layers,
        DeltaGains::Uniform(_) => panic!("per layer"),
    };
    // Nothing has been heard before the first turn; afterwards the model was not sure of every word.
    assert_eq!(layers(0), [LayerGains::ONE; 6]);
    assert!((1..5).all(|turn| layers(turn)[0] == LayerGains::ONE && layers(turn)[5].decay.to_bits() != 1f32.to_bits()));
    assert_ne!(layers(1), layers(2), "they follow the turns");
}

/// Writes the partial file of a rollout that was killed in its turn number `turns`: its last line is torn.
pub(crate) fn cut(finished: &Path, partial: &Path, turns: usize) -> (Transcript, Vec<TokenLine>) {
    let transcript = read_transcript(finished).unwrap();
    let tokens = read_tokens(finished).unwrap();
    let mut head = transcript.clone();
    (head.turns, head.outcome, head.totals) = (Vec::new(), Outcome::Unfinished, Totals::default());
    let mut text = serde_json::to_string(&head).unwrap() + "\n";
    for turn in &transcript.turns[..turns] {
        let tokens: Vec<_> = tokens.iter().filter(|line| line.turn == turn.index).collect();
        text += &(serde_json::json!({"turn": turn, "tokens": tokens}).to_string() + "\n");
    }
    text.truncate(text.len() - 40);
    fs::write(partial, text).unwrap();
    (transcript, tokens)
}

/// Three rollouts of `config` between bundled models, one by one, side by side and resumed.
fn run_is_deterministic(config: &str) -> Transcript {
    let dir = folder("[]", "[]");
    fs::write(dir.path().join("anna.yaml"), config).unwrap();
    let at = |output: &'static str, parallel: &'static str| {
        ["anna.yaml", "--rollouts", "3", "--turns", "5", "--no-score", "--parallel", parallel, "--output", output]
    };
    for (output, parallel) in [("one", "1"), ("three", "3")] {
        let output = loom(dir.path(), &at(output, parallel));
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    }
    assert_eq!(files(&dir.path().join("one")), files(&dir.path().join("three")));
    // A run as it stands after a kill: some rollouts not begun, one cut in its fourth turn.
    let broken = dir.path().join("broken");
    fs::create_dir(&broken).unwrap();
    for file in ["run.json", "config.yaml"] {
        fs::copy(dir.path().join("one").join(file), broken.join(file)).unwrap();
    }
    let path = dir.path().join("one/rollout_000.json");
    let (transcript, tokens) = cut(&path, &broken.join("rollout_000.partial.jsonl"), 4);
    let output = loom(dir.path(), &["--resume", "broken", "--no-score"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    assert!(told(&output).contains("incomplete last line"), "{}", told(&output));
    assert_eq!(files(&broken), files(&dir.path().join("one")));
    // The model gives what only a local model gives.
    assert!(tokens.iter().all(|line| line.logprob.iter().all(Option::is_some) && !line.ids.is_empty()));
    assert!(transcript.turns.iter().all(|turn| turn.persona.regulator.reading.confidence.is_some()));
    transcript
}

#[test]
fn an_adversarys_moves_are_recorded() {
    let dir = folder(r#"["I count them. They come in sevens."]"#, r#"["Go on."]"#);
    let arguments = ["--adversary", "both", "--adversary-model", "scripted:interlocutor.json", "--output", "told"];
    let output = loom(dir.path(), &[&SCRIPTED[..], &arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let transcript = read_transcript(&dir.path().join("told/rollout_000.json")).unwrap();
    let kinds: Vec<_> = transcript.turns.iter().map(|turn| turn.interlocutor.adversary.clone().unwrap().kind).collect();
    assert_ne!(kinds[0], kinds[1], "both take turns");
    assert_eq!(kinds[0], kinds[2]);
    assert!(transcript.opening.interlocutor_prompt.contains("Anna Berg"));
    // The bundled model follows no instructions: its adversary says the script's own words.
    let arguments = ["--adversary", "contradiction", "--adversary-model", "bundled", "--output", "said"];
    let output = loom(dir.path(), &[&SCRIPTED[..], &arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let transcript = read_transcript(&dir.path().join("said/rollout_000.json")).unwrap();
    for turn in &transcript.turns {
        assert_eq!(turn.interlocutor.model.as_deref(), Some("adversary-script"));
        assert!(!turn.interlocutor.content.contains('{'), "{}", turn.interlocutor.content);
    }
    let quoted = transcript.turns.iter().any(|turn| turn.interlocutor.content.contains("I count them."));
    assert!(quoted || transcript.turns.iter().all(|turn| !turn.interlocutor.content.contains('"')), "{transcript:#?}");
}

#[test]
fn the_manifest_names_everything_that_determines_the_run() {
    let dir = folder(r#"["Hello."]"#, r#"["Go on."]"#);
    let output = loom(dir.path(), &[&SCRIPTED[..], &["--seed", "9", "--output", "run"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let manifest: Value = serde_json::from_slice(&fs::read(dir.path().join("run/run.json")).unwrap()).unwrap();
    assert_eq!(
        (&manifest["format"], &manifest["version"], &manifest["seed"]),
        (&"loom-run".into(), &1.into(), &9.into())
    );
    assert_eq!(manifest["models"]["persona"]["spec"], "scripted:persona.json");
    assert_eq!(fs::read_to_string(dir.path().join("run/config.yaml")).unwrap(), ANNA);
}
