//! Requests that real clients sent (`scripts/check-clients.sh --record`): each gets an answer of the recorded form.

use std::collections::BTreeSet;

use loom_agent::app::serve::http::HttpService;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::Value;

use super::{Server, service};
use crate::program;

#[derive(Deserialize)]
struct Recorded {
    client: String,
    method: String,
    path: String,
    headers: std::collections::BTreeMap<String, String>,
    body: Value,
    status: u16,
    form: BTreeSet<String>,
}

/// The paths of a JSON value with their types, as `scripts/record_clients.py` writes them.
fn form(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    let kind = match value {
        Value::Object(fields) => {
            let last = path.rsplit('.').next().unwrap_or_default();
            if last.starts_with("top_logprobs") && fields.values().all(Value::is_f64) {
                found.insert(format!("{path}: by token"));
                return;
            }
            for (key, one) in fields {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                form(one, &path, found);
            }
            return;
        }
        Value::Array(list) => {
            list.iter().for_each(|one| form(one, &format!("{path}[]"), found));
            return;
        }
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Null => "null",
    };
    found.insert(format!("{path}: {kind}"));
}

fn form_of_answer(kind: &str, text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if !kind.starts_with("text/event-stream") {
        form(&serde_json::from_str(text).unwrap(), "", &mut found);
        return found;
    }
    for event in text.split("\n\n") {
        match event.strip_prefix("data: ").map(str::trim) {
            Some("[DONE]") => drop(found.insert("[DONE]".to_owned())),
            Some(data) => form(&serde_json::from_str(data).unwrap(), "data", &mut found),
            None => assert!(event.is_empty() || event.starts_with(':'), "{event}"),
        }
    }
    found
}

#[tokio::test]
async fn requests_of_real_clients_are_answered_in_the_recorded_form() {
    let key = Some(SecretString::from("open sesame"));
    let server = Server::of(HttpService { key, ..service() }).await;
    let file = std::fs::read_to_string(program::root().join("tests/data/clients.jsonl")).unwrap();
    let records: Vec<Recorded> = file.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for client in ["openai", "lm_eval"] {
        assert!(records.iter().any(|record| record.client.starts_with(client)), "{client}");
    }
    for Recorded { client, method, path, headers, body, status, form } in records {
        let mut request = server.client.request(method.parse().unwrap(), format!("http://{}{path}", server.at));
        for (name, value) in &headers {
            request = request.header(name, value);
        }
        if status != 401 {
            request = request.bearer_auth("open sesame");
        }
        if !body.is_null() {
            request = request.body(body.to_string());
        }
        let response = request.send().await.unwrap();
        let what = format!("{client}: {method} {path} {body}");
        assert_eq!(response.status().as_u16(), status, "{what}");
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        let text = response.text().await.unwrap();
        let found = form_of_answer(&kind, &text);
        assert_eq!(found.symmetric_difference(&form).collect::<Vec<_>>(), Vec::<&String>::new(), "{what}: {text}");
    }
}
