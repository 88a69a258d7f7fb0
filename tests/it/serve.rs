//! `loom serve` from outside: what clients get, in OpenAI's form and beyond it.

mod attacks;
mod clients;
mod refusals;
mod replies;
mod thoughts;

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::StreamExt;
use loom_agent::app::serve::http::{HttpService, ServerLimits, serve};
use loom_agent::foundation::chat::{BoxFuture, Embedder, LanguageModel, ModelError};
use reqwest::{Client, RequestBuilder, StatusCode};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A server at work, and a client beside it.
pub(crate) struct Server {
    at: SocketAddr,
    client: Client,
    stop: Option<oneshot::Sender<()>>,
    ends: JoinHandle<std::io::Result<()>>,
}

/// Counts letters: enough to see which text became which vector.
struct Letters;

impl Embedder for Letters {
    fn embed<'a>(&'a self, texts: &'a [&'a str]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, ModelError>> {
        let count = |text: &&str, letter| text.matches(letter).count() as f32;
        Box::pin(async move { Ok(texts.iter().map(|text| vec![count(text, 'a'), count(text, 'b')]).collect()) })
    }
}

pub(crate) fn service() -> HttpService {
    let model: Arc<dyn LanguageModel> = Arc::new(super::engine::bundled(1));
    HttpService { model, name: "bundled".to_owned(), embedder: None, key: None, limits: ServerLimits::default() }
}

/// A model that never ends a reply by itself: it has no end token.
fn endless_service() -> HttpService {
    HttpService { model: Arc::new(super::engine::tiny("mamba2")), name: "endless".to_owned(), ..service() }
}

impl Server {
    pub(crate) async fn of(service: HttpService) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let ends = tokio::spawn(serve(listener, service, async move {
            let _ = stopped.await;
        }));
        Self { at, client: Client::new(), stop: Some(stop), ends }
    }

    pub(crate) async fn bundled() -> Self {
        Self::of(service()).await
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("http://{}{path}", self.at))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.client.post(format!("http://{}{path}", self.at)).json(body)
    }

    pub(crate) async fn ask(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.answer(path, body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer
    }

    pub(crate) async fn answer(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        let response = self.post(path, body).send().await.unwrap();
        (response.status(), response.json().await.unwrap())
    }

    /// The chunks of a stream, up to `[DONE]`.
    pub(crate) async fn stream(&self, path: &str, body: &Value) -> Vec<Value> {
        let response = self.post(path, body).send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let text = response.text().await.unwrap();
        let mut chunks: Vec<_> = text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
        assert_eq!(chunks.pop(), Some("[DONE]"), "{text}");
        chunks.into_iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect()
    }

    /// The value of a metric.
    async fn metric(&self, name: &str) -> u64 {
        let page = self.get("/metrics").send().await.unwrap().text().await.unwrap();
        let line = page.lines().find(|line| line.starts_with(&format!("{name} "))).expect(&page);
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    }

    /// Comes back when a metric has this value.
    async fn until(&self, name: &str, value: u64) {
        while self.metric(name).await != value {
            tokio::task::yield_now().await;
        }
    }
}

/// What [`endless_service`] would write a million tokens in answer to.
fn endless(stream: bool) -> Value {
    json!({ "model": "endless", "prompt": [[5]], "max_tokens": 1_000_000, "stream": stream })
}

/// What it is soon done with.
fn short() -> Value {
    json!({ "model": "endless", "prompt": [[5]], "max_tokens": 2 })
}

#[tokio::test]
async fn a_disconnected_client_cancels_its_work() {
    let server = Server::of(endless_service()).await;
    // In the middle of a stream.
    let response = server.post("/v1/completions", &endless(true)).send().await.unwrap();
    let mut body = response.bytes_stream();
    assert!(body.next().await.unwrap().unwrap().starts_with(b"data: {"));
    assert_eq!(server.metric("loom_sequences_active").await, 1);
    drop(body);
    server.until("loom_sequences_active", 0).await;
    // While it waits for the whole.
    let call = tokio::spawn(server.post("/v1/completions", &endless(false)).send());
    server.until("loom_sequences_active", 1).await;
    call.abort();
    server.until("loom_sequences_active", 0).await;
    server.until("loom_requests_total{endpoint=\"/v1/completions\",status=\"499\"}", 1).await;
    server.until("loom_requests_total{endpoint=\"/v1/completions\",status=\"200\"}", 1).await;
}

#[tokio::test]
async fn many_disconnected_clients_leave_no_sequences() {
    let server = Server::of(endless_service()).await;
    for _ in 0..3 {
        let calls: Vec<_> =
            (0..12).map(|n| tokio::spawn(server.post("/v1/completions", &endless(n % 2 == 0)).send())).collect();
        server.until("loom_sequences_active", 12).await;
        for call in calls {
            call.abort();
            drop(call.await);
        }
        server.until("loom_sequences_active", 0).await;
    }
    server.ask("/v1/completions", &short()).await;
}

#[tokio::test]
async fn a_stopping_server_finishes_running_requests() {
    let mut server = Server::bundled().await;
    let body = json!({ "model": "bundled", "prompt": "Hi", "max_tokens": 3000, "temperature": 50, "top_p": 1, "stream": true });
    let response = server.post("/v1/completions", &body).send().await.unwrap();
    let mut stream = response.bytes_stream();
    let mut text = stream.next().await.unwrap().unwrap().to_vec();
    server.stop.take().unwrap().send(()).unwrap();
    // The listener closes; how soon is the system's affair.
    while Client::new().get(format!("http://{}/health", server.at)).send().await.is_ok() {
        tokio::task::yield_now().await;
    }
    while let Some(chunk) = stream.next().await {
        text.extend(chunk.unwrap());
    }
    let text = String::from_utf8(text).unwrap();
    assert!(text.trim_end().ends_with("data: [DONE]"), "{text}");
    drop((stream, std::mem::take(&mut server.client)));
    server.ends.await.unwrap().unwrap();
}

#[tokio::test]
async fn requests_beyond_the_limits_wait_or_are_rejected() {
    let limits = ServerLimits { active_max: 1, waiting: 1, ..ServerLimits::default() };
    let server = Server::of(HttpService { limits, ..endless_service() }).await;
    let response = server.post("/v1/completions", &endless(true)).send().await.unwrap();
    let waits = tokio::spawn(server.post("/v1/completions", &short()).send());
    server.until("loom_requests_waiting", 1).await;
    let turned_away = server.post("/v1/completions", &short()).send().await.unwrap();
    assert_eq!(turned_away.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(turned_away.headers()["retry-after"], "1");
    let error: Value = turned_away.json().await.unwrap();
    assert_eq!((&error["error"]["type"], &error["error"]["code"]), (&json!("rate_limit_error"), &json!("queue_full")));
    drop(response);
    assert_eq!(waits.await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn the_key_is_required_except_for_health() {
    let key = Some(SecretString::from("open sesame"));
    let server = Server::of(HttpService { key, ..service() }).await;
    for path in ["/v1/models", "/metrics", "/tokenizer_info"] {
        assert_eq!(server.get(path).send().await.unwrap().status(), StatusCode::UNAUTHORIZED, "{path}");
        let wrong = server.get(path).bearer_auth("open sesam").send().await.unwrap();
        assert_eq!(wrong.headers()["www-authenticate"], "Bearer");
        let error: Value = wrong.json().await.unwrap();
        assert_eq!(error["error"]["code"], "invalid_api_key");
        assert_eq!(server.get(path).bearer_auth("open sesame").send().await.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(server.get("/health").send().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn embeddings_come_from_the_embedder() {
    let embedder: Arc<dyn Embedder> = Arc::new(Letters);
    let server = Server::of(HttpService { embedder: Some(("letters".to_owned(), embedder)), ..service() }).await;
    let body = json!({ "model": "letters", "input": ["abba", "a"] });
    let answer = server.ask("/v1/embeddings", &body).await;
    assert_eq!(answer["data"][0], json!({ "object": "embedding", "index": 0, "embedding": [2.0, 2.0] }));
    assert_eq!(answer["data"][1]["embedding"], json!([1.0, 0.0]));
    let body = json!({ "model": "letters", "input": "abba", "encoding_format": "base64" });
    assert_eq!(server.ask("/v1/embeddings", &body).await["data"][0]["embedding"], "AAAAQAAAAEA=");
    let models: Value = server.get("/v1/models").send().await.unwrap().json().await.unwrap();
    assert_eq!((&models["data"][0]["id"], &models["data"][1]["id"]), (&json!("bundled"), &json!("letters")));

    let (status, error) = Server::bundled().await.answer("/v1/embeddings", &body).await;
    assert_eq!(status, StatusCode::NOT_IMPLEMENTED);
    assert!(error["error"]["message"].as_str().unwrap().contains("has no embedder"), "{error}");
}

#[tokio::test]
async fn requests_and_tokens_are_counted() {
    let server = Server::bundled().await;
    let body = json!({ "model": "bundled", "prompt": "Hi there, how are you?", "max_tokens": 4, "seed": 1 });
    let used = server.ask("/v1/completions", &body).await["usage"].clone();
    server.until("loom_requests_total{endpoint=\"/v1/completions\",status=\"200\"}", 1).await;
    assert_eq!(server.metric("loom_tokens_in_total").await, used["prompt_tokens"].as_u64().unwrap());
    assert_eq!(server.metric("loom_tokens_out_total").await, used["completion_tokens"].as_u64().unwrap());
    assert_eq!(server.metric("loom_request_seconds_bucket{endpoint=\"/v1/completions\",le=\"+Inf\"}").await, 1);
    assert_eq!(server.get("/nowhere").send().await.unwrap().status(), StatusCode::NOT_FOUND);
    server.until("loom_requests_total{endpoint=\"other\",status=\"404\"}", 1).await;
}
