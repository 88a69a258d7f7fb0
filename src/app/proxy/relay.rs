//! Passes a stream of server-sent events on, byte for byte, reads each, and ends the stream when the regulator says so.

use std::collections::VecDeque;
use std::io;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream, Stream};
use serde_json::{Value, json};

use super::session::{Call, Verdict};
use crate::foundation::base::limits::REMOTE_ANSWER_BYTES_MAX;
use crate::governance::regulator::ResourceUsage;

struct Relay {
    /// `None` once the proxy has ended the stream: dropping it ends the upstream's work.
    upstream: Option<BoxStream<'static, Result<Vec<u8>, String>>>,
    /// Bytes that do not make a whole event yet.
    rest: Vec<u8>,
    /// Pieces to pass on.
    ready: VecDeque<Vec<u8>>,
    call: Call,
    /// The last chunk's id and model, which the last chunk of a cut stream repeats.
    last: Value,
    /// `[DONE]` has passed.
    done: bool,
}

/// The client's stream. It ends with an event `loom`, after `[DONE]`, where clients have stopped reading.
pub(super) fn relay(
    upstream: BoxStream<'static, Result<Vec<u8>, String>>,
    call: Call,
) -> impl Stream<Item = io::Result<Vec<u8>>> {
    let relay = Relay {
        upstream: Some(upstream),
        rest: Vec::new(),
        ready: VecDeque::new(),
        call,
        last: Value::Null,
        done: false,
    };
    stream::unfold(Some(relay), |relay| async move {
        let mut relay = relay?;
        loop {
            if let Some(piece) = relay.ready.pop_front() {
                return Some((Ok(piece), Some(relay)));
            }
            let Some(upstream) = &mut relay.upstream else { return None };
            match upstream.next().await {
                Some(Ok(bytes)) => {
                    relay.rest.extend_from_slice(&bytes);
                    if relay.rest.len() > REMOTE_ANSWER_BYTES_MAX {
                        let why = format!("an event is longer than {REMOTE_ANSWER_BYTES_MAX} bytes");
                        return Some((Err(io::Error::other(why)), None));
                    }
                    relay.take_events();
                }
                Some(Err(why)) => return Some((Err(io::Error::other(why)), None)),
                None => relay.ends(),
            }
        }
    })
}

impl Relay {
    /// Passes on every whole event, up to the one after which the reply is stopped.
    fn take_events(&mut self) {
        while let Some(length) = event_length(&self.rest) {
            let event: Vec<u8> = self.rest.drain(..length).collect();
            let data = data_of(&event);
            self.ready.push_back(event);
            if data.is_empty() {
                continue;
            }
            if data == "[DONE]" {
                self.done = true;
                continue;
            }
            let verdict = self.call.read(&data);
            if let Ok(chunk @ Value::Object(_)) = serde_json::from_str(&data) {
                self.last = chunk;
            }
            if !self.done && self.call.is_stopped(&verdict) {
                return self.cut();
            }
        }
    }

    /// Ends the reply: a last chunk whose finish reason is `length` and which says why, `[DONE]`, and the event.
    fn cut(&mut self) {
        self.upstream = None;
        self.rest.clear();
        let (verdict, spent) = self.call.end(true);
        let field = |name: &str| self.last.get(name).cloned().unwrap_or(Value::Null);
        let report = verdict.json(&self.call.id, spent);
        let chunk = json!({
            "id": field("id"), "object": "chat.completion.chunk", "created": field("created"), "model": field("model"),
            "choices": [{ "index": 0, "delta": {}, "finish_reason": "length" }], "loom_stop": report,
        });
        self.ready.push_back(format!("data: {chunk}\n\ndata: [DONE]\n\n").into_bytes());
        self.ready.push_back(event(&self.call, &verdict, spent));
    }

    /// The upstream has ended the stream.
    fn ends(&mut self) {
        self.upstream = None;
        let rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() {
            self.ready.push_back(rest);
        }
        let (verdict, spent) = self.call.end(false);
        if self.done {
            self.ready.push_back(event(&self.call, &verdict, spent));
        }
    }
}

fn event(call: &Call, verdict: &Verdict, spent: ResourceUsage) -> Vec<u8> {
    format!("event: loom\ndata: {}\n\n", verdict.json(&call.id, spent)).into_bytes()
}

/// The length of the first whole event, with the empty line that ends it.
fn event_length(bytes: &[u8]) -> Option<usize> {
    let mut line_start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte == b'\n' {
            let line = bytes.get(line_start..at).unwrap_or_default();
            if line.is_empty() || line == b"\r" {
                return Some(at + 1);
            }
            line_start = at + 1;
        }
    }
    None
}

/// The data of an event: its `data` lines, joined.
fn data_of(event: &[u8]) -> String {
    let text = String::from_utf8_lossy(event);
    let lines: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .map(|data| data.strip_prefix(' ').unwrap_or(data))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_end_at_an_empty_line_whatever_its_ending() {
        for (bytes, expected) in [
            ("data: x\n\ndata: y", Some(9)),
            ("data: x\r\n\r\n", Some(11)),
            ("data: x\n", None),
            ("", None),
            ("\n", Some(1)),
            (": keep-alive\n\n", Some(14)),
        ] {
            assert_eq!(event_length(bytes.as_bytes()), expected, "{bytes:?}");
        }
        assert_eq!(data_of(b"event: x\ndata: a\ndata:b\n\n"), "a\nb");
        assert_eq!(data_of(b": keep-alive\n\n"), "");
    }
}
