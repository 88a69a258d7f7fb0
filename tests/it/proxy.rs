//! `loom proxy` between a client and an endpoint.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use futures_util::{StreamExt, stream};
use loom_agent::app::proxy::{ProxySettings, serve};
use loom_agent::governance::regulator::{ModelPrice, ResourceLimits, Settings};
use loom_agent::inference::remote::upstream::Upstream;
use reqwest::header::HeaderMap;
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use wiremock::matchers::{body_json, header, method, path, query_param};
use wiremock::{Mock, MockServer, ResponseTemplate};

/// A proxy in front of `upstream`, and a client.
struct Proxy {
    at: SocketAddr,
    client: Client,
}

impl Proxy {
    async fn of(upstream: &str, settings: ProxySettings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let upstream = Upstream::new(&format!("{upstream}/v1"), Duration::from_secs(5)).unwrap();
        tokio::spawn(serve(listener, upstream, settings, std::future::pending()));
        Self { at, client: Client::new() }
    }

    async fn ask(&self, session: &str, body: &Value) -> Response {
        let request = self.client.post(format!("http://{}/v1/chat/completions", self.at)).bearer_auth("sk-client");
        request.header("x-loom-session", session).json(body).send().await.unwrap()
    }

    async fn sessions(&self) -> Value {
        self.client.get(format!("http://{}/loom/sessions", self.at)).send().await.unwrap().json().await.unwrap()
    }
}

fn capped(tokens: u64) -> ProxySettings {
    let mut settings = ProxySettings::default();
    settings.regulator.cost.hard.tokens = Some(tokens);
    settings
}

fn request(text: &str, stream: bool) -> Value {
    json!({ "model": "m", "stream": stream, "messages": [{ "role": "user", "content": text }] })
}

fn completion(text: &str, tokens_in: u64, tokens_out: u64) -> Value {
    json!({ "id": "c1", "object": "chat.completion", "model": "m", "choices": [{ "index": 0, "finish_reason": "stop",
        "message": { "role": "assistant", "content": text } }], "usage": { "prompt_tokens": tokens_in, "completion_tokens": tokens_out } })
}

fn chunk(text: &str) -> String {
    let chunk = json!({ "id": "c1", "object": "chat.completion.chunk", "created": 5, "model": "m", "choices": [{ "index": 0,
        "delta": { "content": text }, "logprobs": { "content": [{ "token": text, "logprob": -0.1, "top_logprobs": [] }] }, "finish_reason": null }] });
    format!("data: {chunk}\n\n")
}

fn word(headers: &HeaderMap, name: &str) -> String {
    headers[name].to_str().unwrap().to_owned()
}

/// An endpoint that answers every chat with `tokens` chunks, and counts those that were taken from it.
async fn streaming(tokens: usize, pause: Duration) -> (String, Arc<AtomicUsize>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let answer = move || {
        let counter = Arc::clone(&counter);
        async move {
            let pieces = stream::iter(0..tokens).then(move |n| {
                let counter = Arc::clone(&counter);
                async move {
                    tokio::time::sleep(pause).await;
                    counter.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, std::io::Error>(chunk(&format!(" w{n}")))
                }
            });
            let end = stream::iter([Ok("data: [DONE]\n\n".to_owned())]);
            ([("content-type", "text/event-stream")], Body::from_stream(pieces.chain(end)))
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let app = Router::new().route("/v1/chat/completions", post(answer));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (format!("http://{at}"), sent)
}

#[tokio::test]
async fn requests_and_responses_pass_unchanged_and_the_key_goes_to_the_upstream() {
    let upstream = MockServer::start().await;
    let body = request("Why is the sky blue?", false);
    let text = completion("Air scatters blue light most.", 12, 7).to_string() + "\n ";
    Mock::given(method("POST"))
        .and(path("/v1/chat/completions"))
        .and(header("authorization", "Bearer sk-client"))
        .and(body_json(&body))
        .respond_with(
            ResponseTemplate::new(200)
                .set_body_raw(text.clone(), "application/json")
                .insert_header("x-request-id", "r7"),
        )
        .expect(1)
        .mount(&upstream)
        .await;
    Mock::given(path("/v1/models"))
        .and(query_param("after", "a b"))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({ "data": [] })))
        .mount(&upstream)
        .await;
    let proxy = Proxy::of(&upstream.uri(), ProxySettings::default()).await;
    let response = proxy.ask("ann", &body).await;
    let headers = response.headers().clone();
    assert_eq!((response.status().as_u16(), word(&headers, "x-request-id").as_str()), (200, "r7"));
    assert_eq!((word(&headers, "x-loom-session"), word(&headers, "x-loom-turn")), ("ann".into(), "1".into()));
    assert_eq!((word(&headers, "x-loom-decision"), word(&headers, "x-loom-stop")), ("continue".into(), "false".into()));
    assert_eq!(response.text().await.unwrap(), text, "byte for byte");
    let models = proxy.client.get(format!("http://{}/v1/models?after=a%20b", proxy.at)).send().await.unwrap();
    assert_eq!(models.json::<Value>().await.unwrap(), json!({ "data": [] }));
    let sent = &upstream.received_requests().await.unwrap()[0];
    assert!(!sent.headers.contains_key("x-loom-session") && !sent.headers.contains_key("accept-encoding"));
    let spent = &proxy.sessions().await[0]["spent"];
    assert_eq!((&spent["tokens_in"], &spent["tokens_out"]), (&json!(12), &json!(7)));
    assert!(!proxy.sessions().await.to_string().contains("sk-client"));
}

#[tokio::test]
async fn errors_of_the_upstream_pass_with_status_body_and_headers() {
    let upstream = MockServer::start().await;
    let body = r#"{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}"#;
    Mock::given(method("POST"))
        .respond_with(
            ResponseTemplate::new(429).set_body_raw(body, "application/json").insert_header("retry-after", "17"),
        )
        .mount(&upstream)
        .await;
    let proxy = Proxy::of(&upstream.uri(), ProxySettings::default()).await;
    let response = proxy.ask("ann", &request("Hello?", true)).await;
    assert_eq!((response.status().as_u16(), word(response.headers(), "retry-after").as_str()), (429, "17"));
    assert_eq!(response.text().await.unwrap(), body);
    assert_eq!(proxy.sessions().await[0]["spent"]["tokens_in"], 0, "a failed call costs nothing");
    let nowhere = Proxy::of("http://127.0.0.1:9", ProxySettings::default()).await;
    let response = nowhere.ask("ann", &request("Hello?", false)).await;
    assert_eq!(response.status(), 502);
    assert_eq!(response.json::<Value>().await.unwrap()["error"]["code"], "upstream_unreachable");
}

#[tokio::test]
async fn a_stream_passes_byte_for_byte_and_an_event_follows() {
    let (upstream, _) = streaming(3, Duration::ZERO).await;
    let proxy = Proxy::of(&upstream, ProxySettings::default()).await;
    let text = proxy.ask("ann", &request("Count.", true)).await.text().await.unwrap();
    let expected = format!("{}{}{}data: [DONE]\n\n", chunk(" w0"), chunk(" w1"), chunk(" w2"));
    let event = text.strip_prefix(&expected).unwrap().strip_prefix("event: loom\ndata: ").unwrap();
    let event: Value = serde_json::from_str(event.trim_end()).unwrap();
    assert_eq!((&event["session"], &event["turn"], &event["stop"]), (&json!("ann"), &json!(1), &json!(false)));
    assert_eq!(event["spent"]["tokens_out"], 3);
}

#[tokio::test]
async fn a_cap_cuts_a_stream_and_refuses_what_follows() {
    let (upstream, sent) = streaming(100_000, Duration::from_millis(1)).await;
    let proxy = Proxy::of(&upstream, capped(40)).await;
    // 40 bytes are ten tokens of prompt: thirty are left.
    let ask = request(&"abcd".repeat(10), true);
    let text = proxy.ask("ann", &ask).await.text().await.unwrap();
    assert_eq!(text.matches("\"content\":\" w").count(), 30);
    let cut: Vec<&str> = text.split("\n\n").skip(30).collect();
    let last: Value = serde_json::from_str(cut[0].strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!((&last["id"], &last["choices"][0]["finish_reason"]), (&json!("c1"), &json!("length")));
    assert_eq!(last["loom_stop"]["decisions"][0]["reason"]["kind"], "cost_cap_reached");
    assert!(cut[1] == "data: [DONE]" && cut[2].starts_with("event: loom\ndata: {"), "{cut:?}");
    // The upstream's stream was dropped.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let taken = sent.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(sent.load(Ordering::SeqCst), taken);
    let refused = proxy.ask("ann", &ask).await;
    assert_eq!((refused.status().as_u16(), word(refused.headers(), "x-should-retry").as_str()), (403, "false"));
    assert_eq!(word(refused.headers(), "x-loom-decision"), "circuit_break");
    let error = refused.json::<Value>().await.unwrap();
    assert_eq!(error["error"]["code"], "loom_stop");
    assert!(error["error"]["message"].as_str().unwrap().contains("40 of 40 tokens"), "{error}");
    assert_eq!(sent.load(Ordering::SeqCst), taken, "nothing was asked of the upstream");
    // Another session has a cap of its own.
    let other = proxy.ask("bob", &ask).await;
    assert_eq!(other.status(), 200);
}

#[tokio::test]
async fn a_keys_cap_holds_for_its_sessions_together_and_observing_stops_nothing() {
    let upstream = MockServer::start().await;
    Mock::given(method("POST"))
        .respond_with(ResponseTemplate::new(200).set_body_json(completion("Done.", 60, 10)))
        .mount(&upstream)
        .await;
    let key_caps = ResourceLimits { tokens: Some(140), ..ResourceLimits::default() };
    let settings = ProxySettings { key_caps, ..ProxySettings::default() };
    let proxy = Proxy::of(&upstream.uri(), settings.clone()).await;
    let ask = request("Hello?", false);
    assert_eq!(proxy.ask("a", &ask).await.status(), 200);
    let second = proxy.ask("b", &ask).await;
    assert_eq!((second.status().as_u16(), word(second.headers(), "x-loom-stop").as_str()), (200, "true"));
    assert_eq!(proxy.ask("c", &ask).await.status(), 403);
    let other = proxy.client.post(format!("http://{}/v1/chat/completions", proxy.at)).bearer_auth("sk-other");
    assert_eq!(other.json(&ask).send().await.unwrap().status(), 200, "another key");
    let observing = Proxy::of(&upstream.uri(), ProxySettings { observe: true, ..settings }).await;
    for expected in ["false", "true", "true"] {
        let response = observing.ask("a", &ask).await;
        assert_eq!((response.status().as_u16(), word(response.headers(), "x-loom-stop").as_str()), (200, expected));
    }
}

#[tokio::test]
async fn money_follows_from_prices() {
    let upstream = MockServer::start().await;
    Mock::given(method("POST"))
        .respond_with(ResponseTemplate::new(200).set_body_json(completion("Done.", 60, 10)))
        .mount(&upstream)
        .await;
    let mut settings = ProxySettings { regulator: Settings::default(), ..ProxySettings::default() };
    settings.regulator.cost.prices.insert("m".into(), ModelPrice { input: 1.0, output: 4.0, cached: None });
    settings.regulator.cost.hard.money_micros = Some(150);
    let proxy = Proxy::of(&upstream.uri(), settings).await;
    let ask = request("Hello?", false);
    assert_eq!(proxy.ask("a", &ask).await.status(), 200);
    assert_eq!(proxy.sessions().await[0]["spent"]["money_micros"], 100);
    assert_eq!(proxy.ask("a", &ask).await.status(), 200);
    assert_eq!(proxy.ask("a", &ask).await.status(), 403);
}

#[tokio::test]
async fn loops_of_tools_are_found_in_streams_and_feedback_is_heard() {
    let upstream = MockServer::start().await;
    let piece = |delta: Value, finish: Value| {
        let chunk = json!({ "id": "c1", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] });
        format!("data: {chunk}\n\n")
    };
    let call = |fields: Value| json!({ "tool_calls": [fields] });
    let body = [
        piece(call(json!({ "index": 0, "id": "t1", "function": { "name": "read", "arguments": "" } })), Value::Null),
        piece(call(json!({ "index": 0, "function": { "arguments": "{\"path\":" } })), Value::Null),
        piece(call(json!({ "index": 0, "function": { "arguments": "\"a\"}" } })), Value::Null),
        piece(json!({}), json!("tool_calls")),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat();
    Mock::given(method("POST"))
        .respond_with(ResponseTemplate::new(200).set_body_raw(body, "text/event-stream"))
        .mount(&upstream)
        .await;
    let proxy = Proxy::of(&upstream.uri(), ProxySettings::default()).await;
    let mut messages = vec![json!({ "role": "user", "content": "Read the file." })];
    for round in 1..=4 {
        let ask = json!({ "model": "m", "stream": true, "messages": messages });
        let response = proxy.ask("ann", &ask).await;
        let expected = if round < 4 { "continue" } else { "tool_loop" };
        assert_eq!(word(response.headers(), "x-loom-decision"), expected, "round {round}");
        response.text().await.unwrap();
        messages.push(json!({ "role": "assistant", "tool_calls": [] }));
        messages.push(json!({ "role": "tool", "tool_call_id": "t1", "content": "busy" }));
    }
    let lines = "{\"type\":\"quality_feedback\",\"quality\":0.9}\n{\"type\":\"user_correction\",\"correction_message\":\"Shorter.\"}\n";
    let events = || proxy.client.post(format!("http://{}/loom/events", proxy.at)).bearer_auth("sk-client");
    let told: Value = events().header("x-loom-session", "ann").body(lines).send().await.unwrap().json().await.unwrap();
    assert_eq!((&told["session"], &told["turn"]), (&json!("ann"), &json!(1)));
    let wrong = events().body("{\"type\":\"nonsense\"}").send().await.unwrap();
    assert_eq!(wrong.status(), 400);
}

#[tokio::test]
async fn two_hundred_streams_at_once_are_counted_exactly() {
    let (upstream, _) = streaming(20, Duration::from_millis(1)).await;
    let proxy = Arc::new(Proxy::of(&upstream, ProxySettings::default()).await);
    let calls: Vec<_> = (0..200)
        .map(|n| {
            let proxy = Arc::clone(&proxy);
            // Half of them in one session.
            let session = if n % 2 == 0 { "shared".to_owned() } else { format!("own-{n}") };
            tokio::spawn(async move { proxy.ask(&session, &request("four", true)).await.text().await.unwrap() })
        })
        .collect();
    for call in calls {
        let text = call.await.unwrap();
        assert_eq!(text.matches("\"content\":\" w").count(), 20);
        assert!(text.contains("data: [DONE]\n\nevent: loom\n"));
    }
    let sessions = proxy.sessions().await;
    let sessions = sessions.as_array().unwrap();
    assert_eq!(sessions.len(), 101);
    let shared = sessions.iter().find(|session| session["session"] == "shared").unwrap();
    assert_eq!((&shared["calls"], &shared["running"]), (&json!(100), &json!(0)));
    assert_eq!((&shared["spent"]["tokens_in"], &shared["spent"]["tokens_out"]), (&json!(100), &json!(2000)));
}

#[tokio::test]
async fn a_client_that_leaves_pays_for_what_was_sent() {
    let (upstream, _) = streaming(100_000, Duration::from_millis(1)).await;
    let proxy = Proxy::of(&upstream, ProxySettings::default()).await;
    let mut body = proxy.ask("ann", &request("four", true)).await.bytes_stream();
    body.next().await.unwrap().unwrap();
    drop(body);
    loop {
        let sessions = proxy.sessions().await;
        if sessions[0]["running"] == 0 {
            assert!(sessions[0]["spent"]["tokens_out"].as_u64().unwrap() >= 1, "{sessions}");
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_page_lists_sessions_for_this_machine_and_no_other_site() {
    let (upstream, _) = streaming(2, Duration::ZERO).await;
    let proxy = Proxy::of(&upstream, ProxySettings::default()).await;
    proxy.ask("<b>ann</b>", &request("Hello?", true)).await.text().await.unwrap();
    let page = proxy.client.get(format!("http://{}/", proxy.at)).send().await.unwrap().text().await.unwrap();
    assert!(page.contains("&lt;b&gt;ann&lt;/b&gt;") && !page.contains("<b>ann"), "{page}");
    for path in ["/", "/loom/sessions"] {
        let asked = |host: &str| proxy.client.get(format!("http://{}{path}", proxy.at)).header("host", host).send();
        for host in ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.7"]
        {
            let rebound = asked(host).await.unwrap();
            assert_eq!(rebound.status(), 403, "{path} {host}");
            assert!(!rebound.text().await.unwrap().contains("ann"), "{path} {host}");
        }
        for host in ["localhost", "127.0.0.1:1", "[::1]"] {
            assert_eq!(asked(host).await.unwrap().status(), 200, "{path} {host}");
        }
    }
    let elsewhere = proxy.client.get(format!("http://{}/other", proxy.at)).send().await.unwrap();
    assert_eq!(elsewhere.status(), 404);
    let long = proxy.ask(&"x".repeat(200), &request("Hello?", true)).await;
    assert_eq!(long.status(), 400);
}
