//! A hub on loopback. Small files come from `127.0.0.1` itself; large ones by a redirect to `localhost`, which to a client
//! is another host, as the real hub's are.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
pub(crate) const TOKEN: &str = "hf_test_token";

/// How a hub lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    ShardOutside,
    CommitIsPath,
    TagIsPath,
    OtherBytes,
    EndlessFile,
}

pub(crate) struct Hub {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<String>>>,
    _runtime: tokio::runtime::Runtime,
}

struct State {
    port: u16,
    lie: Option<Lie>,
    asked: Arc<Mutex<Vec<String>>>,
    /// A download that breaks off once.
    to_cut: Mutex<bool>,
    /// Repository → file → content.
    repos: BTreeMap<String, BTreeMap<String, Bytes>>,
}

/// Larger than two of the pieces in which files are fetched.
pub(crate) fn large() -> Vec<u8> {
    (0..21_000_000u32).map(|index| (index % 251) as u8).collect()
}

fn folder(path: &str) -> BTreeMap<String, Bytes> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: BTreeMap<_, _> = files
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), Bytes::from(fs::read(path).unwrap())))
        .collect();
    for surplus in ["pytorch_model.bin", "training.log"] {
        files.insert(surplus.to_owned(), Bytes::from_static(b"not needed"));
    }
    files.insert("README.md".to_owned(), Bytes::from_static(b"---\nlicense: mit\n---\n# A model\n"));
    files
}

impl Hub {
    pub(crate) fn start() -> Self {
        Self::new(None)
    }

    pub(crate) fn lying(lie: Lie) -> Self {
        Self::new(Some(lie))
    }

    fn new(lie: Option<Lie>) -> Self {
        let plain = folder("tests/data/mamba/plain");
        let mut shards = folder("tests/data/mamba/shards");
        if lie == Some(Lie::ShardOutside) {
            let index = br#"{"weight_map": {"a": "../../../x"}}"#;
            shards.insert("model.safetensors.index.json".to_owned(), Bytes::from_static(index));
            shards.insert("../../../x".to_owned(), Bytes::from_static(b"outside"));
        }
        let mut bare = plain.clone();
        bare.remove("tokenizer.json");
        let mut large_repo = plain.clone();
        large_repo.insert("model.safetensors".to_owned(), Bytes::from(large()));
        let repos = [
            ("acme/plain", plain.clone()),
            ("acme/private", plain.clone()),
            ("acme/gated", plain),
            ("acme/shards", shards),
            ("acme/bare", bare),
            ("acme/large", large_repo),
        ];
        let repos = repos.into_iter().map(|(name, files)| (name.to_owned(), files)).collect();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let state = Arc::new(State { port, lie, asked: Arc::clone(&asked), to_cut: Mutex::new(true), repos });
        let answer = move |request: Request| {
            let state = Arc::clone(&state);
            async move { state.answer(&request) }
        };
        runtime.spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
        Self { url: format!("http://127.0.0.1:{port}"), asked, _runtime: runtime }
    }

    /// Every request so far: its path and its range.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl State {
    fn answer(&self, request: &Request) -> Response {
        let (path, headers) = (request.uri().path().to_owned(), request.headers());
        let range = headers.get(header::RANGE).map_or("", |range| range.to_str().unwrap()).to_owned();
        // The content host must not see the token.
        let foreign = headers.get(header::HOST).is_some_and(|host| !host.as_bytes().starts_with(b"127.0.0.1"));
        let leak = if foreign && headers.contains_key(header::AUTHORIZATION) { "TOKEN LEAKED " } else { "" };
        self.asked.lock().unwrap().push(format!("{leak}{path} {range}"));
        let parts: Vec<_> = path.trim_start_matches('/').splitn(5, '/').collect();
        match parts[..] {
            ["api", "models", owner, repo, _] => {
                let revision = path.rsplit('/').next().unwrap();
                self.list(&format!("{owner}/{repo}"), revision, headers)
            }
            ["cdn", owner, repo, file] => self.content(&format!("{owner}/{repo}"), file, &range, true),
            [owner, repo, "resolve", _, file] => self.file(&format!("{owner}/{repo}"), file, &range, headers),
            _ => StatusCode::NOT_FOUND.into_response(),
        }
    }

    fn denied(repo: &str, headers: &HeaderMap) -> Option<StatusCode> {
        let shown = headers.get(header::AUTHORIZATION).is_some_and(|value| value == &format!("Bearer {TOKEN}"));
        match repo {
            "acme/private" if !shown => Some(StatusCode::UNAUTHORIZED),
            "acme/gated" => Some(StatusCode::FORBIDDEN),
            _ => None,
        }
    }

    fn list(&self, repo: &str, revision: &str, headers: &HeaderMap) -> Response {
        if let Some(status) = Self::denied(repo, headers) {
            return status.into_response();
        }
        let Some(files) = self.repos.get(repo).filter(|_| ["main", COMMIT].contains(&revision)) else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let siblings: Vec<_> = files.keys().map(|name| serde_json::json!({"rfilename": name})).collect();
        let sha = if self.lie == Some(Lie::CommitIsPath) { "../../../../x" } else { COMMIT };
        serde_json::json!({"siblings": siblings, "sha": sha}).to_string().into_response()
    }

    fn file(&self, repo: &str, file: &str, range: &str, headers: &HeaderMap) -> Response {
        if let Some(status) = Self::denied(repo, headers) {
            return status.into_response();
        }
        let Some(bytes) = self.repos.get(repo).and_then(|files| files.get(file)) else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let digits = Sha256::digest(bytes).into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let digest: String = digits.map(|digit| char::from_digit(u32::from(digit), 16).unwrap()).collect();
        let digest = if self.lie == Some(Lie::TagIsPath) { "../../x".to_owned() } else { digest };
        if Path::new(file).extension().is_some_and(|extension| extension == "safetensors") {
            let to = format!("http://localhost:{}/cdn/{repo}/{file}", self.port);
            let told = [("x-repo-commit", COMMIT), ("x-linked-etag", &format!("\"{digest}\"")), ("location", &to)];
            return (StatusCode::FOUND, told, "").into_response();
        }
        // Of a small file the tag is a Git blob's name.
        let tag = if self.lie == Some(Lie::TagIsPath) { digest } else { digest[..40].to_owned() };
        let mut response = self.content(repo, file, range, false);
        response.headers_mut().insert("x-repo-commit", COMMIT.parse().unwrap());
        response.headers_mut().insert("etag", format!("\"{tag}\"").parse().unwrap());
        response
    }

    fn content(&self, repo: &str, file: &str, range: &str, large: bool) -> Response {
        let mut bytes = self.repos[repo][file].clone();
        if large && self.lie == Some(Lie::OtherBytes) {
            bytes = bytes.iter().map(|byte| byte ^ 1).collect::<Vec<_>>().into();
        }
        let (len, total) = (bytes.len(), if self.lie == Some(Lie::EndlessFile) { 1 << 40 } else { bytes.len() });
        let (from, to) = range.trim_start_matches("bytes=").split_once('-').unwrap();
        let (from, to) = (from.parse::<usize>().unwrap(), to.parse::<usize>().unwrap().min(len - 1));
        let told =
            [("content-range", format!("bytes {from}-{to}/{total}")), ("content-length", (to + 1 - from).to_string())];
        let part = bytes.slice(from..=to);
        let cut = from == 10_000_000 && std::mem::replace(&mut *self.to_cut.lock().unwrap(), false);
        let body = if cut {
            let half = part.slice(..part.len() / 2);
            let broken = std::io::Error::other("cut");
            Body::from_stream(futures_util::stream::iter([Ok(half), Err(broken)]))
        } else {
            Body::from(part)
        };
        (StatusCode::PARTIAL_CONTENT, told, body).into_response()
    }
}
