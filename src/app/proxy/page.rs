//! The sessions as a page and as JSON, for this machine alone.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::session::Overview;
use super::{Proxy, error, is_local};

const HEAD: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"5\">\
    <title>loom proxy</title><style>body{font:15px/1.4 system-ui,sans-serif;margin:2rem;max-width:80rem}\
    table{border-collapse:collapse}td,th{padding:.3rem .8rem;border-bottom:1px solid #ccc;text-align:right}\
    td:nth-child(-n+2),th:nth-child(-n+2),td:last-child,th:last-child{text-align:left}.stop{background:#fdd}</style></head><body>";

/// Answers requests of this machine alone.
pub(super) async fn local_only(peer: ConnectInfo<SocketAddr>, request: Request, next: Next) -> Response {
    if is_local(peer, request.headers()) {
        return next.run(request).await;
    }
    let message = "the sessions are shown to this machine alone: open http://127.0.0.1:PORT/ on it";
    error(StatusCode::FORBIDDEN, "loom_local", message)
}

pub(super) async fn html(State(proxy): State<Arc<Proxy>>) -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    let page = page(proxy.upstream.url(), &proxy.sessions.overview());
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, policy)], page)
        .into_response()
}

pub(super) async fn json(State(proxy): State<Arc<Proxy>>) -> Response {
    let row = |session: &Overview| -> Value {
        let mut row = session.verdict.json(&session.id, session.spent);
        if let Value::Object(fields) = &mut row {
            let more = json!({ "key": session.id.key, "calls": session.calls, "running": session.running, "refused": session.refused,
                "stopped": session.stopped, "key_spent": session.key_spent });
            fields.extend(more.as_object().cloned().unwrap_or_default());
        }
        row
    };
    Json(proxy.sessions.overview().iter().map(row).collect::<Vec<_>>()).into_response()
}

fn page(upstream: &str, sessions: &[Overview]) -> String {
    let mut page = format!("{HEAD}<h1>loom proxy</h1><p>In front of {}.</p>", escape(upstream));
    if sessions.is_empty() {
        page.push_str("<p>No session yet. A request names its session in the header <code>x-loom-session</code>.</p></body></html>");
        return page;
    }
    page.push_str(
        "<table><tr><th>Key</th><th>Session</th><th>Turns</th><th>Calls</th><th>Running</th><th>Refused</th><th>Cut</th>\
         <th>Tokens in</th><th>Tokens out</th><th>Money (millionths)</th><th>Tokens of the key</th><th>Decisions</th></tr>",
    );
    for Overview { id, turns, calls, running, spent, key_spent, refused, stopped, verdict } in sessions {
        let decisions: Vec<String> =
            verdict.decisions.iter().map(|(scope, ranked)| format!("{} ({scope})", ranked.decision.kind())).collect();
        let decisions = if decisions.is_empty() { "continue".to_owned() } else { decisions.join(", ") };
        let class = if verdict.stop { " class=\"stop\"" } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(
            page,
            "<tr{class}><td>{}</td><td>{}</td><td>{turns}</td><td>{calls}</td><td>{running}</td><td>{refused}</td><td>{stopped}</td>\
             <td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&id.key),
            if id.name.is_empty() { "(unnamed)".to_owned() } else { escape(&id.name) },
            spent.tokens_in,
            spent.tokens_out,
            spent.money_micros,
            key_spent.tokens(),
            escape(&decisions),
        );
    }
    page.push_str("</table></body></html>");
    page
}

fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sessions_are_text() {
        assert_eq!(escape("<b a='1'>&\"</b>"), "&lt;b a=&#39;1&#39;&gt;&amp;&quot;&lt;/b&gt;");
        assert!(page("https://x/v1", &[]).contains("No session yet"));
    }
}
