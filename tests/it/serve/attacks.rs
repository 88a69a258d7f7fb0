//! Clients that send too much, too little or nothing, and do not read.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use loom_agent::app::serve::http::{HttpService, ServerLimits};
use secrecy::SecretString;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Server, endless, endless_service, service, short};

fn impatient() -> ServerLimits {
    ServerLimits { silence: Duration::from_millis(300), ..ServerLimits::default() }
}

/// What the server sends until it closes the connection, which must be soon.
async fn answer(server: &Server, sent: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.at).await.unwrap();
    stream.write_all(sent).await.unwrap();
    let mut bytes = Vec::new();
    // A reset is an end, too.
    let _ended = timeout(Duration::from_secs(20), stream.read_to_end(&mut bytes)).await.expect("it stays open");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn connections_that_send_nothing_or_half_a_request_end() {
    let server = Server::of(HttpService { limits: impatient(), ..service() }).await;
    let head =
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n";
    for sent in ["", "GET /health HTTP/1.1\r\nHost:", "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", head] {
        answer(&server, sent.as_bytes()).await;
    }
    assert!(answer(&server, head.as_bytes()).await.contains("408"));
    server.ask("/tokenize", &json!({ "prompt": "still here" })).await;
}

#[tokio::test]
async fn idle_connections_make_room_for_new_ones() {
    let limits = ServerLimits { connections: 8, ..ServerLimits::default() };
    let server = Server::of(HttpService { limits, ..endless_service() }).await;
    // A request in progress keeps its place.
    let mut stream = server.post("/v1/completions", &endless(true)).send().await.unwrap();
    server.until("loom_sequences_active", 1).await;
    let mut held = Vec::new();
    for index in 0..40 {
        let mut idle = TcpStream::connect(server.at).await.unwrap();
        idle.write_all([&b""[..], b"GET /health HTTP/1.1\r\nHost:"][index % 2]).await.unwrap();
        held.push(idle);
    }
    let begun = Instant::now();
    for _ in 0..5 {
        let client = reqwest::Client::new();
        let healthy = client.get(format!("http://{}/health", server.at)).send();
        assert_eq!(timeout(Duration::from_secs(10), healthy).await.expect("it waits").unwrap().status(), 200);
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(stream.chunk().await.unwrap().is_some(), "the stream goes on");
    // The oldest idle one was closed.
    let mut byte = [0];
    let closed = timeout(Duration::from_secs(10), held[0].read(&mut byte)).await.expect("it stays open");
    assert!(closed.is_err() || closed.is_ok_and(|read| read == 0));
}

#[tokio::test]
async fn http_2_is_off() {
    let server = Server::bundled().await;
    let told = answer(&server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    assert!(!told.as_bytes().starts_with(&[0, 0]) && (told.is_empty() || told.starts_with("HTTP/1.1 4")), "{told:?}");
}

#[tokio::test]
async fn a_host_that_is_not_text_is_refused() {
    let server = Server::of(HttpService { limits: impatient(), ..service() }).await;
    for host in [&b"evil.example\xff"[..], b"\xff", b"evil.example", b"127.0.0.1\r\nHost: evil.example"] {
        let request = [b"GET /v1/models HTTP/1.1\r\nHost: ", host, b"\r\nConnection: close\r\n\r\n"].concat();
        let told = answer(&server, &request).await;
        assert!(told.starts_with("HTTP/1.1 403") || told.starts_with("HTTP/1.1 400"), "{host:?}: {told}");
    }
    let absolute = b"GET http://evil.example/v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert!(answer(&server, absolute).await.starts_with("HTTP/1.1 403"));
    let good = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert!(answer(&server, good).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn the_key_is_asked_for_before_the_body() {
    let key = Some(SecretString::from("open sesame"));
    let server = Server::of(HttpService { key, ..service() }).await;
    let mut stream = TcpStream::connect(server.at).await.unwrap();
    let head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9999999\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut bytes = [0; 12];
    timeout(Duration::from_secs(10), stream.read_exact(&mut bytes)).await.unwrap().unwrap();
    assert_eq!(&bytes, b"HTTP/1.1 401");
}

#[tokio::test]
async fn large_and_deep_requests_are_bounded() {
    let server = Server::bundled().await;
    let deep =
        format!("{{\"model\": \"bundled\", \"prompt\": \"a\", \"user\": {}1{}}}", "[".repeat(100), "]".repeat(100));
    let many = format!("{{\"model\": \"bundled\", \"prompt\": [{}1]}}", "1,".repeat(2_000_000));
    for body in [deep, many] {
        let request = server.client.post(format!("http://{}/v1/completions", server.at)).body(body);
        let response = request.header("content-type", "application/json").send().await.unwrap();
        assert_eq!(response.status(), 400);
    }
    let text = "a ".repeat(1 << 19);
    let body =
        json!({ "model": "bundled", "messages": [{"role": "user", "content": text}], "n": 200, "max_tokens": 1 });
    let (status, error) = server.answer("/v1/chat/completions", &body).await;
    assert!(status == 400 && error.to_string().contains("once per choice"), "{error}");
    let body = json!({ "model": "bundled", "prompt": "a", "n": 256, "max_tokens": 4000, "logprobs": 100 });
    let (status, error) = server.answer("/v1/completions", &body).await;
    assert!(status == 400 && error.to_string().contains("log-probabilities"), "{error}");
    // Six large bodies at once: each is answered or told to come again.
    let body = json!({ "prompt": "x y ".repeat(1 << 18) });
    assert_eq!(server.answer("/tokenize", &json!({ "prompt": "x y ".repeat(3 << 20) })).await.0, 413);
    let calls = join_all((0..6).map(|_| server.answer("/tokenize", &body))).await;
    assert!(
        calls.iter().all(|(status, _)| [200, 400, 413, 422, 501, 503].contains(&status.as_u16())),
        "{:?}",
        calls.iter().map(|call| call.0).collect::<Vec<_>>()
    );
    server.ask("/tokenize", &json!({ "prompt": "still here" })).await;
}

#[tokio::test]
async fn a_large_response_arrives_whole() {
    let server = Server::bundled().await;
    let body = json!({ "model": "bundled", "messages": [{"role": "user", "content": "Hi."}], "n": 4, "max_tokens": 30,
        "logprobs": true, "top_logprobs": 100, "temperature": 50, "loom": {"readings": true} });
    let request = server.client.post(format!("http://{}/v1/chat/completions", server.at)).json(&body);
    let response = request.send().await.unwrap();
    let length: usize = response.headers()["content-length"].to_str().unwrap().parse().unwrap();
    let text = response.text().await.unwrap();
    assert!(text.len() == length && length > 1 << 18, "{length}");
    let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
    let choices = answer["choices"].as_array().unwrap();
    let counts = |list: fn(&serde_json::Value) -> &serde_json::Value| -> usize {
        choices.iter().map(|choice| list(choice).as_array().unwrap().len()).sum()
    };
    let tokens = answer["usage"]["completion_tokens"].as_u64().unwrap() as usize;
    let (logprobs, readings) =
        (counts(|choice| &choice["logprobs"]["content"]), counts(|choice| &choice["loom"]["tokens"]));
    assert!(choices.len() == 4 && logprobs == readings && logprobs <= tokens && logprobs > 4, "{logprobs}, {tokens}");
}

#[tokio::test]
async fn a_chat_of_many_messages_is_read_in_linear_time() {
    let server = Server::bundled().await;
    let messages: Vec<_> = (0..20_001)
        .map(|index| json!({"role": if index % 2 == 0 { "user" } else { "assistant" }, "content": "hi"}))
        .collect();
    let begun = Instant::now();
    let answer = server.ask("/tokenize", &json!({ "messages": messages })).await;
    assert!(answer["count"].as_u64().unwrap() > 20_001);
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_stream_that_nobody_reads_waits_and_then_ends() {
    let server = Server::of(HttpService { limits: impatient(), ..endless_service() }).await;
    let body = endless(true).to_string();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(server.at).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    server.until("loom_sequences_active", 1).await;
    // It fills the buffers, waits, and the connection ends: the sequence with it.
    timeout(Duration::from_mins(2), server.until("loom_sequences_active", 0)).await.expect("the sequence goes on");
    drop(stream);
}

#[tokio::test]
async fn streams_that_nobody_reads_give_their_places_to_others() {
    let limits = ServerLimits { active_max: 4, ..ServerLimits::default() };
    let server = Server::of(HttpService { limits, ..endless_service() }).await;
    let body =
        json!({ "model": "endless", "prompt": [[5]], "max_tokens": 500_000, "stream": true, "n": 1 }).to_string();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(server.at).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        held.push(stream);
    }
    timeout(Duration::from_mins(1), server.until("loom_sequences_active", 4)).await.expect("they are refused");
    // Before the connections of the others end, which takes 30 s from their last write on.
    timeout(Duration::from_secs(25), server.ask("/v1/completions", &short())).await.expect("it waits for all of them");
}

#[tokio::test]
async fn many_choices_of_one_request_starve_nobody() {
    let server = Server::of(endless_service()).await;
    let mut greedy = endless(false);
    greedy["n"] = json!(64);
    greedy["max_tokens"] = json!(30_000);
    let call = tokio::spawn(server.post("/v1/completions", &greedy).send());
    let begun = timeout(Duration::from_mins(1), server.until("loom_sequences_active", 16));
    begun.await.expect("it is refused");
    timeout(Duration::from_secs(30), server.ask("/v1/completions", &short())).await.expect("it waits for all 64");
    call.abort();
}

#[tokio::test]
async fn a_server_stops_in_time_whatever_is_connected() {
    let mut server = Server::of(endless_service()).await;
    let mut held = Vec::new();
    for sent in [
        "",
        "GET /health HTT",
        "PRI * HTTP/2.0\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    ] {
        let mut stream = TcpStream::connect(server.at).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        held.push(stream);
    }
    let streaming = server.post("/v1/completions", &endless(true)).send().await.unwrap();
    server.until("loom_sequences_active", 1).await;
    let begun = Instant::now();
    server.stop.take().unwrap().send(()).unwrap();
    timeout(Duration::from_secs(10), &mut server.ends).await.expect("it does not stop").unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10));
    drop((held, streaming));
}
