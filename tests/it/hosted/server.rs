//! A server on loopback that answers each connection with the bytes it is told, in the pieces it is told. It can do what
//! a well-behaved mock cannot: break off, be slow, split characters, and see a client hang up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What to do next on a connection.
#[derive(Clone)]
pub(crate) enum Act {
    Send(Vec<u8>),
    Wait(Duration),
    /// Sends the bytes again and again until the client is gone.
    SendUntilGone(Vec<u8>),
}

pub(crate) struct Server {
    pub(crate) url: String,
    /// How many requests came.
    pub(crate) asked: Arc<AtomicUsize>,
    /// How many clients hung up on a reply without end.
    pub(crate) gone: Arc<AtomicUsize>,
}

pub(crate) const STREAM: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";

/// A chunk of a chunked body.
pub(crate) fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// One event of a chat completion.
pub(crate) fn event(content: &str) -> Vec<u8> {
    let delta = serde_json::json!({"choices": [{"index": 0, "delta": {"content": content}}]});
    format!("data: {delta}\n\n").into_bytes()
}

pub(crate) const FINISH: &[u8] =
    b"data: {\"choices\": [{\"index\": 0, \"delta\": {}, \"finish_reason\": \"stop\"}]}\n\n";
pub(crate) const USAGE: &[u8] =
    b"data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 12, \"completion_tokens\": 3}}\n\ndata: [DONE]\n\n";

/// A whole, good reply.
pub(crate) fn good(pieces: &[&str]) -> Vec<Act> {
    let events: Vec<u8> = pieces.iter().flat_map(|piece| event(piece)).collect();
    let body = [&events, FINISH, USAGE].concat();
    vec![Act::Send([STREAM.as_bytes(), &chunk(&body), LAST_CHUNK].concat())]
}

impl Server {
    /// Connection number `i` is answered with `script[i]`; later ones like the last.
    pub(crate) async fn start(script: Vec<Vec<Act>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (asked, gone) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let server = Self { url, asked: Arc::clone(&asked), gone: Arc::clone(&gone) };
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let number = asked.fetch_add(1, Ordering::SeqCst);
                let acts = script[number.min(script.len() - 1)].clone();
                tokio::spawn(serve(socket, acts, Arc::clone(&gone)));
            }
        });
        server
    }
}

async fn serve(mut socket: TcpStream, acts: Vec<Act>, gone: Arc<AtomicUsize>) {
    read_request(&mut socket).await;
    for act in acts {
        match act {
            Act::Send(bytes) => {
                if socket.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Act::Wait(time) => tokio::time::sleep(time).await,
            Act::SendUntilGone(bytes) => {
                while socket.write_all(&bytes).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                gone.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
    let _closed = socket.shutdown().await;
}

async fn read_request(socket: &mut TcpStream) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return;
            }
        }
        match socket.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}
