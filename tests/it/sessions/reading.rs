//! Needs read by a model as well: which model may, and what happens where it and the rules disagree.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use crate::program;

/// A model that answers each question about a need of the corpus as it is labelled, and questions about others by `of_others`.
fn reader(runtime: &Runtime, of_others: fn(&str) -> &'static str) -> (MockServer, String) {
    let corpus: Vec<Value> = include_str!("../../data/needs/development.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let answer = move |asked: &Request| {
        let body: Value = asked.body_json().unwrap();
        let text = body["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
        let Some(need) = text.split("\"\"\"").nth(1) else { return reply("I cannot say.") };
        let question = text.split("\"\"\"").nth(2).unwrap();
        let labelled = corpus.iter().find(|one| one["need"] == need.trim());
        let said = labelled.map_or_else(|| of_others(question).to_owned(), |one| right(one, question));
        let choice = question.lines().find_map(|line| line.split_once(") ").filter(|(_, choice)| *choice == said));
        reply(choice.map_or("I cannot say.", |(letter, _)| letter))
    };
    runtime.block_on(async {
        let server = MockServer::start().await;
        Mock::given(method("POST")).respond_with(answer).mount(&server).await;
        let spec = format!("openai-compatible:{}#reader", server.uri());
        (server, spec)
    })
}

fn right(labelled: &Value, question: &str) -> String {
    let plan = &labelled["run"];
    let number = |value: &Value| value.as_u64().map_or("nothing is said of it".to_owned(), |value| value.to_string());
    match () {
        () if question.contains("What is asked for?") && plan.is_null() => {
            "something else, such as writing a program or answering a question".to_owned()
        }
        () if question.contains("What is asked for?") => "a study of how a simulated person talks".to_owned(),
        () if question.contains("Which person") => plan["persona"].as_str().unwrap().replace('_', " "),
        () if question.contains("Whom does") => match plan["other"].as_str() {
            None => "nothing is said of it",
            Some("none") => "a plain helper, and no adversary",
            Some("contradiction") => "an adversary that looks for contradictions or sets traps",
            Some("helpfulness") => "an adversary that coaxes it into being a helper",
            Some(_) => "both kinds of adversary",
        }
        .to_owned(),
        () if question.contains("How many turns") => number(&plan["turns"]),
        () if question.contains("How many conversations") => number(&plan["rollouts"]),
        () if plan["comparison"] == "ablation" => {
            "whether it differs from the same without the persona (its ablation)".to_owned()
        }
        () => "whether the persona holds by itself".to_owned(),
    }
}

fn reply(text: &str) -> ResponseTemplate {
    let text = serde_json::to_string(text).unwrap();
    let words = format!(
        "data: {{\"choices\": [{{\"delta\": {{\"content\": {text}}}, \"finish_reason\": \"stop\"}}]}}\n\ndata: [DONE]\n\n"
    );
    ResponseTemplate::new(200).set_body_raw(words, "text/event-stream")
}

/// What is right about "How does the student hold up over 2 turns?", but for the turns.
fn misread(question: &str) -> &'static str {
    match () {
        () if question.contains("What is asked for?") => "a study of how a simulated person talks",
        () if question.contains("Which person") => "student",
        () if question.contains("What is to be found out?") => "whether the persona holds by itself",
        () => "nothing is said of it",
    }
}

fn well_read(question: &str) -> &'static str {
    if question.contains("How many turns") { "2" } else { misread(question) }
}

fn start(root: &Path, spec: &str, output: &str) -> String {
    fs::write(root.join("persona"), "I do not get this at all.").unwrap();
    fs::write(root.join("target"), "What have you tried?").unwrap();
    let own = ["session", "start", "How does the student hold up over 2 turns?", "--engagement", "autonomous"];
    let models = ["--model", spec, "--persona-model", "scripted:persona", "--target", "scripted:target"];
    program::ends(root, 0, &[&own[..], &models, &["--rollouts", "1", "--output", output]].concat())
}

#[test]
fn a_model_that_reads_the_corpus_right_is_asked_and_a_disagreement_is_put_to_the_user() {
    let runtime = Runtime::new().unwrap();
    for (of_others, disagrees) in [(misread as fn(&str) -> &'static str, true), (well_read, false)] {
        let root = TempDir::new().unwrap();
        let (_server, spec) = reader(&runtime, of_others);
        // Not tested: the rules alone.
        let said = start(root.path(), &spec, "untested");
        assert!(!said.contains("Read in two ways") && root.path().join("untested/report.md").is_file(), "{said}");
        let log = |output: &str| fs::read_to_string(root.path().join(output).join("receipts.jsonl")).unwrap();
        assert!(!log("untested").contains("need turns"));

        let said = program::ends(root.path(), 0, &["session", "check", "--model", &spec]);
        assert!(
            said.contains("24 needs: ") && said.contains("0 unsure, 0 wrong") && said.contains("is capable"),
            "{said}"
        );
        let said = start(root.path(), &spec, "tested");
        assert!(log("tested").contains("\"question\":\"need turns\""));
        assert_eq!(said.contains("[NOT UNDERSTOOD] turns: the rules read 2, the model nothing"), disagrees, "{said}");
        assert_eq!(root.path().join("tested/report.md").is_file(), !disagrees, "{said}");
        assert_eq!(root.path().join("tested/runs").exists(), !disagrees);
        if disagrees {
            // The user's word decides.
            let host = spec.trim_start_matches("openai-compatible:").split('#').next().unwrap();
            program::ends(root.path(), 0, &["session", "answer", "tested", "yes", "--allow-host", host]);
            assert!(root.path().join("tested/report.md").is_file());
        }
    }
}

#[test]
fn a_model_that_misreads_the_corpus_is_not_asked() {
    let root = TempDir::new().unwrap();
    fs::write(root.path().join("first"), "A").unwrap();
    let said = program::ends(root.path(), 1, &["session", "check", "--model", "scripted:first"]);
    assert!(said.contains("wrong  ") && said.contains("is not capable: sessions read needs by rules alone"), "{said}");
    fs::write(root.path().join("silent"), "I cannot say.").unwrap();
    let said = program::ends(root.path(), 1, &["session", "check", "--model", "scripted:silent"]);
    assert!(said.contains("0 fields right") && said.contains("0 wrong"), "{said}");
    start(root.path(), "scripted:first", "s");
    let log = fs::read_to_string(root.path().join("s/receipts.jsonl")).unwrap();
    assert!(!log.contains("need turns"), "{log}");
}
