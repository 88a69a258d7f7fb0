//! Tests of hosted judges: which method is chosen, and how inconsistent servers are handled.

use serde_json::{Value, json};
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, Request as Asked, ResponseTemplate};

use super::super::judge::Rating;
use super::super::*;
use crate::inference::providers::{OpenOptions, open};

/// One streamed answer: each token with its alternatives.
fn answer(tokens: &[(&str, &[(&str, f64)])]) -> ResponseTemplate {
    let chunk = |(text, top): &(&str, &[(&str, f64)])| {
        let token = |text: &str, p: f64| json!({"token": text, "logprob": p.ln(), "bytes": text.as_bytes()});
        let others: Vec<Value> = top.iter().map(|(text, p)| token(text, *p)).collect();
        let mut own = token(text, top.first().map_or(0.5, |(_, p)| *p));
        own["top_logprobs"] = json!(others);
        let logprobs = if top.is_empty() { Value::Null } else { json!({"content": [own]}) };
        json!({"choices": [{"index": 0, "delta": {"content": text}, "logprobs": logprobs}]})
    };
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let chunks = tokens.iter().map(chunk).chain([end]);
    let lines: Vec<String> =
        chunks.map(|chunk| format!("data: {chunk}\n\n")).chain(["data: [DONE]\n\n".to_owned()]).collect();
    ResponseTemplate::new(200).set_body_raw(lines.concat(), "text/event-stream")
}

/// A judge behind a server that answers request n, from 0, with `answers(n, last message)`. Request 0 determines the
/// judge's method.
async fn judge(answers: impl Fn(usize, &str) -> ResponseTemplate + Send + Sync + 'static) -> (Judge, MockServer) {
    let server = MockServer::start().await;
    let count = std::sync::atomic::AtomicUsize::new(0);
    let respond = move |asked: &Asked| {
        let body: Value = asked.body_json().unwrap();
        let last = body["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap();
        answers(count.fetch_add(1, std::sync::atomic::Ordering::SeqCst), last)
    };
    Mock::given(method("POST")).and(path("/chat/completions")).respond_with(respond).mount(&server).await;
    let chain = format!("openai-compatible:{}#m", server.uri()).parse().unwrap();
    let model = open(&chain, &OpenOptions::default().naming(&chain));
    (Judge::new(model.unwrap()).await.unwrap(), server)
}

async fn rated(judge: &Judge) -> Rating {
    judge.rate("How good?", RngStream::root(0)).await
}

const SURE: &[(&str, f64)] = &[(" 4", 0.5), (" 5", 0.2), ("4", 0.1), (" 3", 0.1), (" four", 0.05)];

#[tokio::test]
async fn the_rating_is_the_mean_over_the_alternatives_at_the_score_token() {
    let (judge, server) =
        judge(|_, _| answer(&[("Rating", &[("Rating", 0.9)]), (":", &[(":", 1.0)]), (" 4", SURE)])).await;
    assert_eq!(judge.method(), ScoreMethod::TopLogprobRating);
    let rated = rated(&judge).await;
    assert!((rated.value.unwrap() - (0.1 * 2.0 + 0.6 * 3.0 + 0.2 * 4.0) / 0.9 / 4.0).abs() < 1e-6);
    assert!((rated.mass.unwrap() - 0.9).abs() < 1e-6);
    assert_eq!(rated.top, Some(5), "a lower bound, over so many");
    let asked = server.received_requests().await.unwrap();
    let body: Value = asked.last().unwrap().body_json().unwrap();
    assert_eq!(
        (&body["top_logprobs"], &body["temperature"]),
        (&json!(20), &Value::Null),
        "the model's own distribution"
    );
}

#[tokio::test]
async fn a_preference_is_read_from_the_alternatives_too() {
    let (judge, _server) = judge(|_, _| answer(&[("B", &[("B", 0.6), ("A", 0.2), ("C", 0.1)])])).await;
    let first = judge.prefers_first("Which?", RngStream::root(0)).await.unwrap();
    assert!((first - 0.25).abs() < 1e-6, "{first}");
}

#[tokio::test]
async fn a_server_without_alternatives_writes_its_rating() {
    let (judge, _server) =
        judge(|_, asked| answer(&[(if asked.contains("JSON") { "{\"rating\": 4}" } else { "Rating: 4" }, &[])])).await;
    assert_eq!(judge.method(), ScoreMethod::WrittenRating);
    assert_eq!(rated(&judge).await, Rating { value: Ok(0.75), mass: None, top: None });
}

#[tokio::test]
async fn a_server_that_stops_returning_alternatives_leaves_no_value_and_does_not_change_the_method() {
    let (judge, _server) = judge(|number, _| {
        let top = if number == 0 { SURE } else { &[] };
        answer(&[("Rating:", top), (" 4", top)])
    })
    .await;
    let rated = rated(&judge).await;
    assert_eq!(judge.method(), ScoreMethod::TopLogprobRating);
    assert!(rated.value.unwrap_err().contains("no alternatives at the score token"));
    assert_eq!(rated.mass, None);
}

#[tokio::test]
async fn an_answer_in_another_format_is_requested_again() {
    let (judge, _server) = judge(|number, asked| match number {
        0 => answer(&[("Well", &[("Well", 0.5)])]),
        1 => answer(&[("I saw 2 of 5, so 4", &[("I", 0.5)])]),
        _ => {
            assert!(asked.contains("is not Rating: 1 or 2"), "{asked}");
            answer(&[("Rating: ", &[("Rating: ", 1.0)]), ("2.", &[("2.", 0.75), ("5.", 0.25), ("2", 0.1)])])
        }
    })
    .await;
    let rated = rated(&judge).await;
    assert!((rated.value.unwrap() - (0.75 + 0.25 * 4.0) / 4.0).abs() < 1e-6);
}
