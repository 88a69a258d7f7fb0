//! The program with hosted models, from outside: where keys come from, and that they go nowhere.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use wiremock::matchers::{header, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::program;
use crate::rollout::ANNA;

const SECRET: &str = "sk-do-not-tell-4711";

/// Every file below `folder`, as text.
fn texts(folder: &Path) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        all +=
            &if path.is_dir() { texts(&path) } else { String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned() };
    }
    all
}

fn loom(folder: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> (Option<i32>, String) {
    let output = program::command(folder, arguments).envs(variables.iter().copied()).output().unwrap();
    (output.status.code(), program::told(&output))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hosted_run_records_replies_and_costs_but_no_key() {
    let server = MockServer::start().await;
    let stream = concat!(
        "data: {\"model\": \"gpt-4o-2024-08-06\", \"choices\": [{\"delta\": {\"content\": \"Hosted words.\"}}]}\n\n",
        "data: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"stop\"}]}\n\n",
        "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 1000, \"completion_tokens\": 100}}\n\ndata: [DONE]\n\n",
    );
    Mock::given(method("POST"))
        .and(path("/chat/completions"))
        .and(header("authorization", format!("Bearer {SECRET}")))
        .respond_with(ResponseTemplate::new(200).set_body_raw(stream, "text/event-stream"))
        .mount(&server)
        .await;
    // Anthropic answers with the key inside its error, which must not come through.
    let error =
        json!({"type": "error", "error": {"type": "invalid_request_error", "message": format!("what is {SECRET}?")}});
    Mock::given(method("POST"))
        .and(path("/v1/messages"))
        .and(header("x-api-key", SECRET))
        .respond_with(ResponseTemplate::new(400).set_body_json(error))
        .mount(&server)
        .await;

    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("anna.yaml"), ANNA).unwrap();
    let uri = server.uri();
    let variables = [
        ("OPENAI_API_KEY", SECRET),
        ("OPENAI_BASE_URL", uri.as_str()),
        ("ANTHROPIC_API_KEY", SECRET),
        ("ANTHROPIC_BASE_URL", uri.as_str()),
    ];
    let run = |output: &str| {
        let arguments = [
            "run",
            "anna.yaml",
            "--persona-model",
            "openai/gpt-4o",
            "--target",
            "anthropic/claude-x,echo",
            "--turns",
            "2",
            "--cache",
            "cache",
            "--output",
            output,
        ];
        loom(folder.path(), &variables, &arguments)
    };
    let (code, told) = run("out");
    assert_eq!(code, Some(0), "{told}");
    assert!(!told.contains(SECRET), "{told}");

    let read = |output: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(folder.path().join(output).join("rollout_000.json")).unwrap()).unwrap()
    };
    let transcript = read("out");
    let persona = &transcript["turns"][0]["persona"];
    assert_eq!((&persona["content"], &persona["model"]), (&json!("Hosted words."), &json!("openai/gpt-4o")));
    assert_eq!(persona["hosted"], json!({"served": "gpt-4o-2024-08-06", "cost_usd": 0.0035}));
    assert_eq!(transcript["turns"][0]["interlocutor"]["model"], json!("echo"));
    let why = transcript["turns"][0]["interlocutor"]["fallbacks"][0]["why"].as_str().unwrap();
    assert!(why.contains("what is …?"), "{why}");
    assert_eq!(transcript["totals"]["cost_usd"], json!(0.007));

    // The rerun replays: the same words, and it says so.
    let asked = server.received_requests().await.unwrap().len();
    let (code, told) = run("again");
    assert_eq!(code, Some(0), "{told}");
    let again = read("again");
    assert_eq!(again["turns"][1]["persona"]["content"], transcript["turns"][1]["persona"]["content"]);
    assert_eq!(again["turns"][1]["persona"]["timing"]["replayed"], json!(1));
    let chat = |request: &wiremock::Request| request.url.path() == "/chat/completions";
    let requests = server.received_requests().await.unwrap();
    assert_eq!(requests.iter().skip(asked).filter(|request| chat(request)).count(), 0);

    let written = texts(folder.path());
    assert!(written.contains("Hosted words.") && !written.contains(SECRET));
}

#[test]
fn a_missing_key_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("anna.yaml"), ANNA).unwrap();
    for (model, variable) in [("openai/gpt-4o", "OPENAI_API_KEY"), ("anthropic/claude-x", "ANTHROPIC_API_KEY")] {
        let (code, told) = loom(folder.path(), &[], &["run", "anna.yaml", "--persona-model", model, "--output", "x"]);
        assert_eq!(code, Some(5), "{told}");
        assert!(told.contains(&format!("set the environment variable {variable}")), "{told}");
    }
}

/// A server that a stranger's files name. It records what it is sent.
async fn strangers_server() -> MockServer {
    let server = MockServer::start().await;
    let stream =
        "data: {\"choices\": [{\"delta\": {\"content\": \"Hm.\"}, \"finish_reason\": \"stop\"}]}\n\ndata: [DONE]\n\n";
    let reply = ResponseTemplate::new(200).set_body_raw(stream, "text/event-stream");
    Mock::given(method("POST")).respond_with(reply).mount(&server).await;
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_cannot_choose_where_the_key_goes() {
    let server = strangers_server().await;
    let folder = tempfile::tempdir().unwrap();
    let spec = format!("openai-compatible:{}/v1#m", server.uri());
    let adversary = format!("{ANNA}\nevaluation:\n  adversary: {{type: contradiction, model: \"echo,{spec}\"}}\n");
    fs::write(folder.path().join("stranger.yaml"), adversary).unwrap();
    fs::write(folder.path().join("anna.yaml"), ANNA).unwrap();
    fs::write(
        folder.path().join("sweep.yaml"),
        format!("sweep_version: 0.1.0\nconfigs: [anna.yaml]\ntargets: [\"{spec}\"]\nseeds: [1]\nturns: 1\n"),
    )
    .unwrap();
    let variables = [("OPENAI_COMPATIBLE_API_KEY", SECRET)];
    let run = |arguments: &[&str]| loom(folder.path(), &variables, arguments);
    let refused = |arguments: &[&str]| {
        let (code, told) = run(arguments);
        assert_eq!(code, Some(4), "{arguments:?}: {told}");
        assert!(told.contains(&format!("--allow-host {}", server.uri())), "{told}");
        assert!(!told.contains(SECRET), "{told}");
    };
    let of_run = ["--persona-model", "echo", "--turns", "1", "--no-score"];
    refused(&[&["run", "stranger.yaml", "--output", "a"], &of_run[..]].concat());

    // A healthy run, whose manifest a stranger then changes: judge, persona's model, target.
    let (code, told) = run(&[&["run", "anna.yaml", "--target", "echo", "--output", "b"], &of_run[..]].concat());
    assert_eq!(code, Some(0), "{told}");
    let manifest = fs::read_to_string(folder.path().join("b/run.json")).unwrap();
    let judge = manifest.replace("\"judge\": \"bundled\"", &format!("\"judge\": \"{spec}\""));
    assert_ne!(judge, manifest);
    fs::write(folder.path().join("b/run.json"), judge).unwrap();
    refused(&["score", "b"]);
    fs::write(
        folder.path().join("b/run.json"),
        manifest.replace("\"spec\": \"echo\"", &format!("\"spec\": \"{spec}\"")),
    )
    .unwrap();
    let (code, told) = run(&["run", "--resume", "b"]);
    assert!(code != Some(0), "{told}");
    refused(&["sweep", "sweep.yaml", "--output", "c"]);
    assert!(server.received_requests().await.unwrap().is_empty());

    // The user's own choice is carried out, by any of the three ways.
    fs::write(
        folder.path().join("stranger.yaml"),
        fs::read_to_string(folder.path().join("stranger.yaml")).unwrap().replace("echo,", ""),
    )
    .unwrap();
    let allow = ["--allow-host", &server.uri()];
    let (code, told) = run(&[&["run", "stranger.yaml", "--output", "d"], &of_run[..], &allow[..]].concat());
    assert_eq!(code, Some(0), "{told}");
    let (code, told) = run(&[&["run", "anna.yaml", "--target", &spec, "--output", "e"], &of_run[..]].concat());
    assert_eq!(code, Some(0), "{told}");
    let listed = [("OPENAI_COMPATIBLE_API_KEY", SECRET), ("LOOM_ALLOW_HOSTS", &server.uri())];
    let arguments = [&["run", "stranger.yaml", "--output", "f"], &of_run[..]].concat();
    assert_eq!(loom(folder.path(), &listed, &arguments).0, Some(0));
    let requests = server.received_requests().await.unwrap();
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().all(|request| request.headers["authorization"].to_str().unwrap().ends_with(SECRET)));
}

#[test]
fn a_key_is_not_sent_over_http_to_another_machine() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("anna.yaml"), ANNA).unwrap();
    let variables = [("OPENAI_COMPATIBLE_API_KEY", SECRET), ("OPENAI_API_KEY", SECRET)];
    let target = ["run", "anna.yaml", "--output", "x", "--target"];
    let (code, told) =
        loom(folder.path(), &variables, &[&target[..], &["openai-compatible:http://192.0.2.1/v1#m"]].concat());
    assert!(code == Some(5) && told.contains("over which a key is sent only to this machine"), "{told}");
    let proxy = [("OPENAI_API_KEY", SECRET), ("OPENAI_BASE_URL", "http://192.0.2.1/v1")];
    let (code, told) = loom(folder.path(), &proxy, &[&target[..], &["openai/gpt-4o"]].concat());
    assert!(code == Some(5) && told.contains("unset OPENAI_API_KEY"), "{told}");
}
