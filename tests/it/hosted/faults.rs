//! What a provider does wrong, and what comes of it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use loom_agent::foundation::base::RngStream;
use loom_agent::foundation::chat::{Basis, Continuation, Finish, ModelError, Prompt, Request, Sampling};
use loom_agent::inference::remote::RemoteOptions;
use serde_json::json;
use wiremock::matchers::{body_partial_json, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::server::{Act, FINISH, LAST_CHUNK, STREAM, Server, USAGE, chunk, event, good};
use super::{compatible, hears, impatient, named, request, say};

#[tokio::test]
async fn a_reply_is_streamed_counted_and_named() {
    let server = Server::start(vec![good(&["Hel", "lo", "!"])]).await;
    let model = compatible(&server.url, impatient());
    let mut heard = Vec::new();
    let completion = model.complete(request(0), Some(hears(100, &mut heard))).await.unwrap();
    assert_eq!(heard, ["Hel", "lo", "!"]);
    assert_eq!((completion.message.content.as_str(), completion.finish), ("Hello!", Finish::Stop));
    assert_eq!((completion.usage.tokens_in, completion.usage.tokens_out), (12, 3));
    assert_eq!(completion.model, model.info().name);
    let hosted = completion.hosted.unwrap();
    assert!(hosted.usage_reported && !hosted.replayed && hosted.cost_usd.is_none());
}

#[tokio::test]
async fn a_sink_can_stop_the_stream() {
    let endless = vec![
        Act::Send([STREAM.as_bytes(), &chunk(&event("one ")), &chunk(&event("two "))].concat()),
        Act::SendUntilGone(chunk(&event("more "))),
    ];
    let server = Server::start(vec![endless]).await;
    let model = compatible(&server.url, impatient());
    let mut heard = Vec::new();
    let completion = model.complete(request(0), Some(hears(2, &mut heard))).await.unwrap();
    assert_eq!(completion.message.content, "one two ");
    assert_eq!((completion.finish, completion.tokens.len()), (Finish::Cancelled, 2));
    assert!(!completion.hosted.unwrap().usage_reported);
    while server.gone.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn an_endless_reply_is_cut_at_the_limit() {
    let endless = vec![
        Act::Send([STREAM.as_bytes(), &chunk(&event("It begins. "))].concat()),
        Act::SendUntilGone(chunk(&event(&"x".repeat(1 << 20)))),
    ];
    let server = Server::start(vec![endless]).await;
    let completion = say(&compatible(&server.url, impatient()), 0).await.unwrap();
    assert_eq!(completion.finish, Finish::Length);
    assert!(completion.message.content.starts_with("It begins. xxx"));
    assert!((60 << 20..64 << 20).contains(&completion.message.content.len()), "{}", completion.message.content.len());
    let hosted = completion.hosted.unwrap();
    assert!(!hosted.usage_reported);
    let told = "the rest of the reply: its answer is larger than 67108864 bytes";
    assert_eq!(hosted.left_out, [told]);
    while server.gone.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn temporary_errors_are_retried() {
    let server = MockServer::start().await;
    let slow = ResponseTemplate::new(429)
        .insert_header("retry-after", "0")
        .set_body_json(json!({"error": {"message": "slow down"}}));
    Mock::given(method("POST")).respond_with(slow).up_to_n_times(2).mount(&server).await;
    Mock::given(method("POST")).respond_with(ResponseTemplate::new(500)).up_to_n_times(1).mount(&server).await;
    let body = [event("fine"), FINISH.to_vec(), USAGE.to_vec()].concat();
    Mock::given(method("POST"))
        .and(path("/v1/chat/completions"))
        .respond_with(ResponseTemplate::new(200).set_body_raw(body, "text/event-stream"))
        .mount(&server)
        .await;
    let completion = say(&compatible(&format!("{}/v1", server.uri()), impatient()), 0).await.unwrap();
    assert_eq!(completion.message.content, "fine");
    assert_eq!(completion.hosted.unwrap().retries, 3);
}

#[tokio::test]
async fn permanent_errors_are_not_retried() {
    for (status, body, why) in [
        (401, json!({"error": {"message": "bad key"}}), "rejected the API key"),
        (429, json!({"error": {"message": "pay", "code": "insufficient_quota"}}), "no quota left"),
        (
            400,
            json!({"error": {"message": "context_length_exceeded"}}),
            "rejected the request (400 Bad Request: context_length",
        ),
        (404, json!({"error": {"message": "no model m"}}), "has no such model or path"),
    ] {
        let server = MockServer::start().await;
        Mock::given(method("POST"))
            .respond_with(ResponseTemplate::new(status).set_body_json(body))
            .expect(1)
            .mount(&server)
            .await;
        let error = say(&compatible(&server.uri(), impatient()), 0).await.unwrap_err().to_string();
        assert!(error.contains(why), "{status}: {error}");
    }
}

#[tokio::test]
async fn a_requested_wait_beyond_the_limit_is_an_error() {
    let server = MockServer::start().await;
    let never = ResponseTemplate::new(429).insert_header("retry-after", "86400");
    Mock::given(method("POST")).respond_with(never).expect(1).mount(&server).await;
    let error = say(&compatible(&server.uri(), impatient()), 0).await.unwrap_err().to_string();
    assert!(error.contains("too many requests") && error.contains("--requests-per-minute"), "{error}");
}

#[tokio::test]
async fn a_broken_stream_is_retried_only_before_the_first_delivered_token() {
    let half = vec![Act::Send([STREAM.as_bytes(), &chunk(&event("Hel"))].concat())];
    let server = Server::start(vec![half.clone(), half.clone(), good(&["Hello"])]).await;
    let completion = say(&compatible(&server.url, impatient()), 0).await.unwrap();
    assert_eq!(completion.message.content, "Hello");
    assert_eq!(server.asked.load(Ordering::SeqCst), 3);

    let server = Server::start(vec![half, good(&["Hello"])]).await;
    let mut heard = Vec::new();
    let model = compatible(&server.url, impatient());
    let error = model.complete(request(0), Some(hears(100, &mut heard))).await.unwrap_err().to_string();
    assert!(error.contains("broke off after 1 tokens"), "{error}");
    assert_eq!(heard, ["Hel"]);
}

#[tokio::test]
async fn a_stream_without_a_finish_is_an_error() {
    let polite = vec![Act::Send([STREAM.as_bytes(), &chunk(&event("Hel")), LAST_CHUNK].concat())];
    let server = Server::start(vec![polite]).await;
    let remote = RemoteOptions { retries: 1, ..impatient() };
    let error = say(&compatible(&server.url, remote), 0).await.unwrap_err().to_string();
    assert!(error.contains("the end of the stream is missing"), "{error}");
    assert_eq!(server.asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn invalid_responses_are_quoted_and_not_retried() {
    let garbage = vec![Act::Send([STREAM.as_bytes(), &chunk(b"data: <html>oops</html>\n\n"), LAST_CHUNK].concat())];
    let server = Server::start(vec![garbage]).await;
    let error = say(&compatible(&server.url, impatient()), 0).await.unwrap_err().to_string();
    assert!(error.contains("an invalid chunk: <html>oops</html>"), "{error}");
    assert_eq!(server.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn timeouts_apply_before_the_first_byte_and_between_bytes() {
    let mute = vec![Act::Wait(Duration::from_mins(10))];
    let server = Server::start(vec![mute.clone()]).await;
    let remote = RemoteOptions { retries: 0, first_byte: Duration::from_millis(50), ..impatient() };
    let error = say(&compatible(&server.url, remote), 0).await.unwrap_err().to_string();
    assert!(error.contains("no response from") && error.contains("name a fallback"), "{error}");

    let stuck = [vec![Act::Send([STREAM.as_bytes(), &chunk(&event("Hel"))].concat())], mute].concat();
    let server = Server::start(vec![stuck]).await;
    let remote = RemoteOptions { retries: 0, idle: Duration::from_millis(50), ..impatient() };
    let error = say(&compatible(&server.url, remote), 0).await.unwrap_err().to_string();
    assert!(error.contains("no data for 50ms"), "{error}");
}

#[tokio::test]
async fn a_character_split_across_chunks_arrives_whole() {
    let bytes = [event("naïve 🦀"), FINISH.to_vec(), USAGE.to_vec()].concat();
    let acts = std::iter::once(Act::Send(STREAM.as_bytes().to_vec()))
        .chain(bytes.iter().flat_map(|byte| [Act::Send(chunk(&[*byte]))]))
        .chain([Act::Send(LAST_CHUNK.to_vec())]);
    let server = Server::start(vec![acts.collect()]).await;
    let completion = say(&compatible(&server.url, impatient()), 0).await.unwrap();
    assert_eq!(completion.message.content, "naïve 🦀");
}

#[tokio::test]
async fn a_refusal_is_a_completion() {
    let refusal = b"data: {\"choices\": [{\"delta\": {\"refusal\": \"No.\"}}]}\n\n";
    let body = [refusal.as_slice(), FINISH, USAGE].concat();
    let server = Server::start(vec![vec![Act::Send([STREAM.as_bytes(), &chunk(&body), LAST_CHUNK].concat())]]).await;
    let completion = say(&compatible(&server.url, impatient()), 0).await.unwrap();
    assert_eq!((completion.finish, completion.message.content.as_str()), (Finish::Refusal, "No."));
}

#[tokio::test]
async fn rejected_log_probabilities_are_left_out_and_reported() {
    let server = MockServer::start().await;
    let no = json!({"error": {"message": "logprobs are not supported with this model", "param": "logprobs"}});
    let asked = body_partial_json(json!({"logprobs": true}));
    Mock::given(asked).respond_with(ResponseTemplate::new(400).set_body_json(no)).expect(1).mount(&server).await;
    let body = [event("fine"), FINISH.to_vec(), USAGE.to_vec()].concat();
    Mock::given(method("POST"))
        .respond_with(ResponseTemplate::new(200).set_body_raw(body, "text/event-stream"))
        .mount(&server)
        .await;
    let model = compatible(&server.uri(), impatient());
    for seed in 0..2 {
        let completion = say(&model, seed).await.unwrap();
        assert_eq!(completion.tokens[0].logprob, None);
        let left_out = completion.hosted.unwrap().left_out;
        assert!(left_out[0].contains("logprobs are not supported"), "{left_out:?}");
    }
}

#[tokio::test]
async fn a_cached_reply_is_replayed_for_the_same_draw() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(vec![good(&["one", " reply"]), good(&["another"])]).await;
    let remote = RemoteOptions { cache: Some(folder.path().to_owned()), ..impatient() };
    let first = say(&compatible(&server.url, remote.clone()), 1).await.unwrap();
    let mut heard = Vec::new();
    let again =
        compatible(&server.url, remote.clone()).complete(request(1), Some(hears(100, &mut heard))).await.unwrap();
    assert_eq!((&again.message, &again.tokens, again.usage), (&first.message, &first.tokens, first.usage));
    assert_eq!(heard, ["one", " reply"]);
    assert!(again.hosted.unwrap().replayed && !first.hosted.unwrap().replayed);
    assert_eq!(server.asked.load(Ordering::SeqCst), 1);
    // Another draw, another reply.
    assert_eq!(say(&compatible(&server.url, remote), 2).await.unwrap().message.content, "another");
}

#[tokio::test]
async fn a_fallback_reply_records_the_errors_before_it() {
    let server = MockServer::start().await;
    Mock::given(method("POST")).respond_with(ResponseTemplate::new(404)).mount(&server).await;
    let chain = format!("local:/nowhere,openai-compatible:{}#m,echo", server.uri());
    let model = named(&chain, impatient());
    let completion = say(&model, 0).await.unwrap();
    assert_eq!((completion.model.as_str(), completion.message.content.as_str()), ("echo", "Hello?"));
    let [(first, why), (second, then)] = &completion.fallbacks[..] else { panic!("{:?}", completion.fallbacks) };
    assert_eq!((first.as_str(), second), ("local:/nowhere", &format!("openai-compatible:{}#m", server.uri())));
    assert!(why.contains("/nowhere") && then.contains("has no such model or path"), "{why} {then}");
}

#[tokio::test]
async fn a_chain_does_not_fall_back_after_delivered_tokens() {
    let half = vec![Act::Send([STREAM.as_bytes(), &chunk(&event("Hel"))].concat())];
    let server = Server::start(vec![half]).await;
    let chain = format!("openai-compatible:{}#m,echo", server.url);
    let model = named(&chain, impatient());
    let mut heard = Vec::new();
    let error = model.complete(request(0), Some(hears(100, &mut heard))).await.unwrap_err().to_string();
    assert!(error.contains("broke off after 1 tokens"), "{error}");
    assert_eq!(heard, ["Hel"]);
    // Nobody heard the half of it: the next link answers.
    assert_eq!(say(&model, 0).await.unwrap().model, "echo");
}

#[tokio::test]
async fn a_chain_scores_with_its_first_model_only() {
    let scored = async |chain: &str| {
        let model = named(chain, impatient());
        model.score(score("One"), Continuation::Text(" two".to_owned())).await
    };
    // As the first by itself says it, so that a judge who cannot score writes.
    assert!(matches!(scored("echo,bundled").await, Err(ModelError::Unsupported { .. })));
    assert!(scored("bundled,echo").await.unwrap().logprob().is_some());
}

fn score(prompt: &str) -> Request {
    Request::new(Prompt::Text(prompt.to_owned()), Sampling::greedy(), RngStream::root(0))
}

#[tokio::test]
async fn scores_need_a_server_that_echoes() {
    let deaf = MockServer::start().await;
    let plain = json!({"choices": [{"text": " seven", "logprobs": null}]});
    Mock::given(path("/completions"))
        .respond_with(ResponseTemplate::new(200).set_body_json(plain))
        .expect(1)
        .mount(&deaf)
        .await;
    let model = compatible(&deaf.uri(), impatient());
    let error = model.score(score("One"), Continuation::Text(" two".to_owned())).await.unwrap_err().to_string();
    assert!(error.contains("does not echo log-probabilities"), "{error}");

    let server = MockServer::start().await;
    let echo = |prompt: &str, tokens: &[&str]| {
        let logprobs: Vec<_> = (0..tokens.len()).map(|index| (index > 0).then_some(-0.5 * index as f64)).collect();
        let answer =
            json!({"choices": [{"text": tokens.concat(), "logprobs": {"tokens": tokens, "token_logprobs": logprobs}}]});
        Mock::given(body_partial_json(json!({"prompt": prompt, "echo": true})))
            .respond_with(ResponseTemplate::new(200).set_body_json(answer))
    };
    echo("One two three four five six", &["One", " two", " three", " four", " five", " six", "!"])
        .expect(1)
        .mount(&server)
        .await;
    echo("I see a crab", &["I", " see", " a", " crab", "."]).expect(2).mount(&server).await;
    let model = compatible(&server.uri(), impatient());
    for _ in 0..2 {
        let scored = model.score(score("I see"), Continuation::Text(" a crab".to_owned())).await.unwrap();
        let tokens: Vec<_> = scored.tokens.iter().map(|token| (token.text.as_str(), token.logprob)).collect();
        assert_eq!(tokens, [(" a", Some(-1.0)), (" crab", Some(-1.5))]);
        assert!(scored.tokens.iter().all(|token| token.basis == Basis::Sampled));
    }
}
