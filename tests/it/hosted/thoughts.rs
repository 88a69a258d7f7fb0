//! Hosted models that think: what the server sends apart is kept apart.

use loom_agent::foundation::chat::{Flow, LanguageModel, Thinking, ThoughtEnd, TokenLogprob, TokenSink};
use serde_json::{Map, Value, json};
use wiremock::matchers::{body_partial_json, method};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::{compatible, impatient, named, request};

#[derive(Default)]
struct Parts {
    thought: String,
    answer: String,
}

struct Hears<'a>(&'a mut Parts);

impl TokenSink for Hears<'_> {
    fn token(&mut self, token: &TokenLogprob) -> Flow {
        self.0.answer.push_str(&token.text);
        Flow::Continue
    }

    fn thought(&mut self, token: &TokenLogprob) -> Flow {
        self.0.thought.push_str(&token.text);
        Flow::Continue
    }
}

async fn serving(chunks: &[Value]) -> MockServer {
    let server = MockServer::start().await;
    let events = chunks.iter().fold(String::new(), |events, chunk| events + &format!("data: {chunk}\n\n"));
    let reply = ResponseTemplate::new(200).set_body_raw(events + "data: [DONE]\n\n", "text/event-stream");
    Mock::given(method("POST")).respond_with(reply).mount(&server).await;
    server
}

fn delta(delta: Value) -> Value {
    let choice = Map::from_iter([("index".to_owned(), json!(0)), ("delta".to_owned(), delta)]);
    json!({ "choices": [Value::Object(choice)] })
}

fn with_tokens(part: Value, tokens: &[(&str, f64)]) -> Value {
    let content: Vec<_> = tokens.iter().map(|(text, logprob)| json!({ "token": text, "logprob": logprob })).collect();
    let mut chunk = delta(part);
    chunk["choices"][0]["logprobs"] = json!({ "content": content });
    chunk
}

fn finish() -> Value {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] })
}

#[tokio::test]
async fn reasoning_content_is_a_thought() {
    for name in ["reasoning_content", "reasoning"] {
        let chunks = [
            with_tokens(json!({ (name): "Hm" }), &[("Hm", -0.5)]),
            with_tokens(json!({ (name): ", who?" }), &[(", ", -0.1), ("who?", -0.2)]),
            // The marker is in no part.
            with_tokens(json!({}), &[("</think>", -0.01)]),
            with_tokens(json!({ "content": "Anna." }), &[("Anna", -1.0), (".", -0.3)]),
            finish(),
        ];
        let server = serving(&chunks).await;
        let mut heard = Parts::default();
        let model = compatible(&format!("{}/v1", server.uri()), impatient());
        let reply = model.complete(request(0), Some(Box::new(Hears(&mut heard)))).await.unwrap();
        assert_eq!((reply.message.content.as_str(), heard.answer.as_str()), ("Anna.", "Anna."));
        assert_eq!((reply.message.thought.unwrap().text.as_str(), heard.thought.as_str()), ("Hm, who?", "Hm, who?"));
        let logprobs = |tokens: &[TokenLogprob]| tokens.iter().map(|token| token.logprob).collect::<Vec<_>>();
        assert_eq!(logprobs(&reply.tokens), [Some(-1.0), Some(-0.3)]);
        let thought = reply.thought.unwrap();
        assert_eq!(
            (logprobs(&thought.tokens), thought.end),
            (vec![Some(-0.5), Some(-0.1), Some(-0.2)], ThoughtEnd::Closed)
        );
    }
}

#[tokio::test]
async fn a_chunk_may_end_the_thought_and_begin_the_answer() {
    let both = json!({ "reasoning_content": "Hm", "content": "Anna" });
    let chunks = [with_tokens(both, &[("Hm", -0.5), ("</think>", -0.1), ("Anna", -1.0)]), finish()];
    let server = serving(&chunks).await;
    let reply = compatible(&server.uri(), impatient()).complete(request(0), None).await.unwrap();
    assert_eq!((reply.message.content.as_str(), reply.tokens.len(), reply.tokens[0].logprob), ("Anna", 1, Some(-1.0)));
    assert_eq!(reply.thought.unwrap().tokens[0].logprob, Some(-0.5));
}

#[tokio::test]
async fn markers_in_the_text_count_only_where_the_user_says_so() {
    let chunks = ["<thi", "nk>Hm", ".</think>", "\n\nAnna", ".", " 1 <"].map(|text| delta(json!({ "content": text })));
    let server = serving(&[&chunks[..], &[finish()]].concat()).await;
    let model = compatible(&server.uri(), impatient());
    let plain = model.complete(request(0), None).await.unwrap();
    assert_eq!((plain.message.content.as_str(), plain.thought), ("<think>Hm.</think>\n\nAnna. 1 <", None));
    let markers = Some(vec!["<think>".to_owned(), "</think>".to_owned()]);
    let model = model.with_thinking(&Thinking { markers, ..Thinking::default() }).unwrap();
    let mut heard = Parts::default();
    let reply = model.complete(request(0), Some(Box::new(Hears(&mut heard)))).await.unwrap();
    assert_eq!((reply.message.content.as_str(), heard.answer.as_str()), ("Anna. 1 <", "Anna. 1 <"));
    assert_eq!((reply.message.thought.unwrap().text.as_str(), heard.thought.as_str()), ("Hm.", "Hm."));
}

#[tokio::test]
async fn a_thought_without_an_answer_is_told_as_such() {
    let cut = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "length" }] });
    let server = serving(&[delta(json!({ "reasoning_content": "Hm, " })), cut]).await;
    let reply = compatible(&server.uri(), impatient()).complete(request(0), None).await.unwrap();
    assert_eq!((reply.message.content.as_str(), reply.thought.unwrap().end), ("", ThoughtEnd::Unfinished));
}

#[tokio::test]
async fn a_servers_template_is_told_what_the_config_says() {
    let server = MockServer::start().await;
    let kwargs = json!({ "chat_template_kwargs": { "enable_thinking": false, "thinking": false, "style": "short" } });
    let events = format!("data: {}\n\ndata: {}\n\ndata: [DONE]\n\n", delta(json!({ "content": "Anna." })), finish());
    let reply = ResponseTemplate::new(200).set_body_raw(events, "text/event-stream");
    Mock::given(body_partial_json(kwargs)).respond_with(reply).expect(1).mount(&server).await;
    let template_arguments = serde_json::from_str(r#"{"style": "short"}"#).unwrap();
    let thinking = Thinking { enabled: Some(false), template_arguments, ..Thinking::default() };
    let model = compatible(&server.uri(), impatient()).with_thinking(&thinking).unwrap();
    assert_eq!(model.complete(request(0), None).await.unwrap().message.content, "Anna.");
    assert!(!model.info().thinking.as_ref().is_some_and(|thinking| thinking.on));
    let budget = Thinking { tokens_max: Some(9), ..Thinking::default() };
    let refused =
        |model: &dyn LanguageModel, thinking: &Thinking| model.with_thinking(thinking).err().unwrap().to_string();
    assert!(refused(&*model, &budget).contains("cannot be enforced"));
    drop(named("echo", impatient()).with_thinking(&budget).unwrap());
}
