//! A model that thinks, through the server: as vLLM's clients expect it.

use std::sync::Arc;

use loom_agent::app::serve::http::HttpService;
use loom_agent::inference::engine::{EngineOptions, LocalModel};
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{Server, service};

/// The bundled model with a template that opens a thought in the prompt.
const TEMPLATE: &str = "\
{%- for m in messages -%}<|{{ m.role }}|>{{ m.content.split('</think>')[-1] }}<|end|>{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>
{%- if enable_thinking is defined and not enable_thinking -%}<think></think>{%- else -%}<think>{%- endif -%}
{%- endif -%}";

async fn thinker() -> Server {
    let chat_template = Some(TEMPLATE.to_owned());
    let options = EngineOptions { threads: Some(1), chat_template, ..EngineOptions::default() };
    let model = Arc::new(LocalModel::bundled(&options).unwrap());
    Server::of(HttpService { model, ..service() }).await
}

fn question() -> Value {
    json!({
        "model": "bundled", "messages": [{ "role": "user", "content": "Do you have a dog?" }], "seed": 3,
        "max_tokens": 40, "thinking_token_budget": 6,
    })
}

fn with(mut body: Value, fields: Value) -> Value {
    let Value::Object(fields) = fields else { panic!("not an object: {fields}") };
    body.as_object_mut().unwrap().extend(fields);
    body
}

#[tokio::test]
async fn the_thought_is_the_reasoning_content() {
    let server = thinker().await;
    let body = with(question(), json!({ "logprobs": true, "loom": { "readings": true } }));
    let answer = server.ask("/v1/chat/completions", &body).await;
    let choice = &answer["choices"][0];
    let (thought, content) = (&choice["message"]["reasoning_content"], &choice["message"]["content"]);
    let (thought, content) = (thought.as_str().unwrap(), content.as_str().unwrap());
    assert!(!thought.is_empty() && !content.is_empty() && !content.contains("think>"), "{answer}");
    assert_eq!(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 6);
    let joined = |list: &Value, name: &str| {
        list.as_array().unwrap().iter().map(|token| token[name].as_str().unwrap().to_owned()).collect::<String>()
    };
    assert_eq!(joined(&choice["logprobs"]["content"], "token"), content);
    assert_eq!(joined(&choice["loom"]["thought"]["tokens"], "text"), thought);
    assert_eq!(choice["loom"]["thought"]["end"], "budget");

    // A stream has the same parts.
    let chunks = server.stream("/v1/chat/completions", &with(question(), json!({ "stream": true }))).await;
    let part =
        |name: &str| chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"][name].as_str()).collect::<String>();
    assert_eq!((part("reasoning_content").as_str(), part("content").as_str()), (thought, content));

    // It can be left out, and is then not shown in another place.
    let hidden = server.ask("/v1/chat/completions", &with(question(), json!({ "include_reasoning": false }))).await;
    assert_eq!(hidden["choices"][0]["message"]["content"], content);
    assert!(hidden["choices"][0]["message"].get("reasoning_content").is_none());
}

#[tokio::test]
async fn a_template_is_told_what_the_request_says() {
    let server = thinker().await;
    let off = with(
        question(),
        json!({ "chat_template_kwargs": { "enable_thinking": false }, "thinking_token_budget": null }),
    );
    let answer = server.ask("/v1/chat/completions", &off).await;
    assert!(answer["choices"][0]["message"].get("reasoning_content").is_none(), "{answer}");
    let tokens = |kwargs: Value| {
        let messages = question()["messages"].clone();
        json!({ "messages": messages, "return_token_strs": true, "chat_template_kwargs": kwargs })
    };
    let closed = server.ask("/tokenize", &tokens(json!({ "enable_thinking": false }))).await;
    let opened = server.ask("/tokenize", &tokens(json!({}))).await;
    assert!(closed["count"].as_u64() > opened["count"].as_u64(), "{closed} {opened}");
    for (fields, param) in [
        (json!({ "chat_template_kwargs": { "effort": "low" } }), "chat_template_kwargs"),
        (json!({ "chat_template_kwargs": { "messages": [] } }), "chat_template_kwargs"),
        (json!({ "reasoning_effort": "low" }), "reasoning_effort"),
        (json!({ "thinking_token_budget": -1 }), "thinking_token_budget"),
    ] {
        let (status, refusal) = server.answer("/v1/chat/completions", &with(question(), fields)).await;
        assert_eq!((status, refusal["error"]["param"].as_str()), (StatusCode::BAD_REQUEST, Some(param)), "{refusal}");
    }
}

#[tokio::test]
async fn thoughts_that_clients_send_back_are_left_to_the_template() {
    let server = thinker().await;
    let talk = |thought: Value| {
        let mut earlier = json!({ "role": "assistant", "content": "Yes, two." });
        earlier.as_object_mut().unwrap().extend(thought.as_object().unwrap().clone());
        let messages = json!([
            { "role": "user", "content": "Any dogs?" }, earlier, { "role": "user", "content": "Which?" }
        ]);
        with(question(), json!({ "messages": messages }))
    };
    let plain = server.ask("/v1/chat/completions", &talk(json!({}))).await;
    for name in ["reasoning_content", "reasoning"] {
        let told = server.ask("/v1/chat/completions", &talk(json!({ (name): "They mean pets." }))).await;
        assert_eq!(told["choices"], plain["choices"]);
        assert_eq!(told["usage"]["prompt_tokens"], plain["usage"]["prompt_tokens"]);
    }
    let by_user = json!([{ "role": "user", "content": "Hi", "reasoning_content": "Hm." }]);
    let (status, _) = server.answer("/v1/chat/completions", &with(question(), json!({ "messages": by_user }))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_model_that_does_not_think_has_no_reasoning() {
    let server = Server::bundled().await;
    let body = with(
        question(),
        json!({ "thinking_token_budget": null, "chat_template_kwargs": { "enable_thinking": false } }),
    );
    let answer = server.ask("/v1/chat/completions", &body).await;
    assert!(answer["choices"][0]["message"].get("reasoning_content").is_none());
    assert!(answer["usage"].get("completion_tokens_details").is_none());
    let (status, refusal) = server.answer("/v1/chat/completions", &question()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{refusal}");
    assert!(refusal["error"]["message"].as_str().unwrap().contains("no thoughts"), "{refusal}");
}
