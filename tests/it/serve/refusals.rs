//! What the server does not do, it says by name.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use loom_agent::app::serve::http::{HttpService, ServerLimits};
use reqwest::{Body, StatusCode};
use serde_json::{Value, json};

use super::{Server, service};
use crate::engine::bundled;

async fn check(server: &Server, path: &str, fields: Value, param: Option<&str>, why: &str) {
    let mut body = if path.contains("chat") {
        json!({ "model": "bundled", "messages": [{ "role": "user", "content": "Hi" }] })
    } else {
        json!({ "model": "bundled", "prompt": "Hi" })
    };
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let (status, answer) = server.answer(path, &body).await;
    let error = &answer["error"];
    assert!(status.is_client_error(), "{body}: {status} {answer}");
    assert!(error["message"].as_str().unwrap().contains(why), "{body}: expected {why:?}: {answer}");
    assert_eq!(error["param"].as_str(), param, "{body}: {answer}");
    assert_eq!(error["type"], "invalid_request_error");
}

#[tokio::test]
async fn unsupported_fields_are_rejected_by_name() {
    let server = Server::bundled().await;
    let chat = "/v1/chat/completions";
    let tool = json!({ "tools": [{ "type": "function", "function": { "name": "f" } }] });
    check(&server, chat, tool, Some("tools"), "`tools` is not supported").await;
    let image = json!({ "messages": [{ "role": "user", "content": [{ "type": "image_url", "image_url": {} }] }] });
    check(&server, chat, image, Some("messages[0].content"), "content of type `image_url` is not supported").await;
    let tool = json!({ "messages": [{ "role": "user", "content": "x" }, { "role": "tool", "content": "y" }] });
    check(&server, chat, tool, Some("messages[1].role"), "message 1: messages of role `tool` are not supported").await;
    let named = json!({ "messages": [{ "role": "user", "content": "x", "name": "ann" }] });
    check(&server, chat, named, Some("messages[0].name"), "`name` in a message is not supported").await;
    for (field, value) in [
        ("response_format", json!({ "type": "json_object" })),
        ("frequency_penalty", json!(0.5)),
        ("logit_bias", json!({ "5": 1 })),
        ("reasoning_effort", json!("low")),
        ("audio", json!({ "voice": "x" })),
        ("temprature", json!(1)),
    ] {
        check(&server, chat, json!({ field: value }), Some(field), &format!("`{field}`")).await;
    }
    let bare = "/v1/completions";
    check(&server, bare, json!({ "suffix": "x" }), Some("suffix"), "`suffix` is not supported").await;
    check(&server, bare, json!({ "best_of": 3 }), Some("best_of"), "`best_of` is not supported").await;
    check(&server, bare, json!({ "prompt": [] }), Some("prompt"), "a prompt is empty").await;
    check(&server, bare, json!({ "prompt": 3 }), Some("prompt"), "`prompt` must be a string, a list of strings").await;
    check(&server, bare, json!({ "prompt": [[1], []] }), Some("prompt"), "a prompt is empty").await;
    check(&server, bare, json!({ "prompt": [[1, 4096]] }), None, "token 4096 is outside its vocabulary").await;
    check(&server, bare, json!({ "max_tokens": 0 }), Some("max_tokens"), "needs `echo: true`").await;
    check(&server, bare, json!({ "temperature": -1 }), None, "`temperature` must be 0 (greedy)").await;
    check(&server, bare, json!({ "n": 257 }), Some("n"), "from 1 to 256").await;
    check(&server, bare, json!({ "n": "x" }), Some("n"), "`n` is invalid").await;
    check(&server, bare, json!({ "stop": "x".repeat(1025) }), Some("stop"), "16 strings of 1024 bytes each").await;
    check(&server, bare, json!({ "logprobs": 101 }), Some("logprobs"), "at most 100").await;
    check(&server, bare, json!({ "model": "gpt-4" }), Some("model"), "there is no model `gpt-4` here").await;
    check(&server, bare, json!({ "loom": { "delta": { "g": 1 } } }), Some("delta"), "unknown field `g`").await;
    check(&server, bare, json!({ "loom": { "mood": 1 } }), Some("mood"), "`mood` in `loom` is not supported").await;
    let layers = json!({ "loom": { "delta": { "layers": [6] } } });
    check(&server, bare, layers, Some("loom.delta"), "there is no layer 6").await;
    check(&server, bare, json!({ "max_tokens": 100_000_000 }), None, "the budget for all requests is 2048.0 MiB").await;
}

#[tokio::test]
async fn invalid_requests_are_explained() {
    let limits = ServerLimits { body_bytes: 100, ..ServerLimits::default() };
    let server = Server::of(HttpService { limits, ..service() }).await;
    let check = async |request: reqwest::RequestBuilder, status: StatusCode, why: &str| {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), status);
        let answer: Value = response.json().await.unwrap();
        assert!(answer["error"]["message"].as_str().unwrap().contains(why), "{answer}");
    };
    let json = |text: &'static str| server.post("/v1/completions", &Value::Null).body(text);
    check(json("{\"model\""), StatusCode::BAD_REQUEST, "the body is not a JSON object").await;
    check(json("[1]"), StatusCode::BAD_REQUEST, "the body is not a JSON object").await;
    let long = server.post("/v1/completions", &json!({ "prompt": "x".repeat(200) }));
    check(long, StatusCode::PAYLOAD_TOO_LARGE, "too large for this server").await;
    let plain = server.get("/v1/completions");
    check(plain, StatusCode::METHOD_NOT_ALLOWED, "needs another HTTP method").await;
    check(server.get("/v1/images"), StatusCode::NOT_FOUND, "no such endpoint").await;
    check(server.get("/v1/models/gpt-4"), StatusCode::NOT_FOUND, "no model `gpt-4` here").await;
    check(server.get("/v1/models/%ff"), StatusCode::NOT_FOUND, "Invalid UTF-8").await;
    check(server.post("/tokenize", &json!({})), StatusCode::BAD_REQUEST, "give a `prompt` or `messages`").await;
    let form = server.client.post(format!("http://{}/v1/completions", server.at)).body("{}");
    check(form, StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type: application/json").await;
    let rebound = server.get("/v1/models").header("host", "evil.example");
    check(rebound, StatusCode::FORBIDDEN, "not `evil.example`").await;
}

#[tokio::test]
async fn an_unfinished_request_does_not_block_shutdown() {
    let limits = ServerLimits { silence: Duration::from_millis(20), ..ServerLimits::default() };
    let server = Server::of(HttpService { limits, ..service() }).await;
    let half = server
        .post("/v1/completions", &Value::Null)
        .body(Body::wrap_stream(stream::iter([Ok::<_, std::io::Error>("{\"model\": ")]).chain(stream::pending())));
    let response = half.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
    let answer: Value = response.json().await.unwrap();
    assert!(answer["error"]["message"].as_str().unwrap().contains("was not sent completely in time"), "{answer}");
    server.stop.unwrap().send(()).unwrap();
    server.ends.await.unwrap().unwrap();
}

#[tokio::test]
async fn missing_log_probabilities_and_vocabulary_are_errors() {
    use loom_agent::inference::providers::{OpenOptions, open};

    let model = open(&"echo".parse().unwrap(), &OpenOptions::default()).unwrap();
    let server = Server::of(HttpService { model, name: "bundled".to_owned(), ..service() }).await;
    let answer = server.ask("/v1/completions", &json!({ "model": "bundled", "prompt": "Say it again." })).await;
    assert_eq!(answer["choices"][0]["text"], "Say it again.");
    check(&server, "/v1/completions", json!({ "logprobs": 1 }), Some("logprobs"), "gives no log-probabilities").await;
    let delta = json!({ "loom": { "delta": {} } });
    check(&server, "/v1/completions", delta, Some("loom.delta"), "has no Δ: gains need a Mamba").await;
    for (path, body) in [
        ("/tokenize", json!({ "prompt": "x" })),
        ("/detokenize", json!({ "tokens": [1] })),
        ("/v1/completions", json!({ "model": "bundled", "prompt": "x", "echo": true })),
    ] {
        let (status, error) = server.answer(path, &body).await;
        assert_eq!(status, StatusCode::NOT_IMPLEMENTED, "{path}");
        assert!(error["error"]["message"].as_str().unwrap().contains("with a known vocabulary"), "{error}");
    }
    drop(bundled(1));
}
