//! Receipts as OpenTelemetry spans: OTLP/JSON, with the GenAI conventions where a model or a tool was called.
//!
//! A receipt becomes one span. `model.called` (`{model, provider, tokens_in, tokens_out, wall_ms, finish, grant}`) and
//! `tool.called` (`{tool, wall_ms, grant}`) end at the time of the receipt and start `wall_ms` before; the others have no
//! duration. `grant`, the digest of the permitting receipt, becomes the parent span.

use serde_json::{Value, json};

use super::receipt::Receipt;
use crate::foundation::base::Digest;

/// The receipts as an `ExportTraceServiceRequest` in OTLP/JSON. They form one trace, whose id is derived from the first receipt.
pub fn to_otlp(receipts: &[Receipt]) -> Value {
    let trace = receipts.first().map(|first| id(first.digest, 16)).unwrap_or_default();
    let spans: Vec<_> = receipts.iter().map(|receipt| span(receipt, &trace)).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": [text("service.name", "loom"), text("service.version", env!("CARGO_PKG_VERSION"))]},
        "scopeSpans": [{"scope": {"name": "loom.receipts", "version": "1"}, "spans": spans}],
    }]})
}

fn span(receipt: &Receipt, trace: &str) -> Value {
    let body = &receipt.entry.body;
    let field = |name: &str| body.get(name).and_then(Value::as_str);
    let count = |name: &str| body.get(name).and_then(Value::as_u64);
    let mut attributes = vec![
        text("loom.receipt.kind", &receipt.entry.kind),
        text("loom.receipt.digest", &receipt.digest.to_string()),
        number("loom.receipt.seq", receipt.seq),
    ];
    let mut name = receipt.entry.kind.clone();
    // INTERNAL; model calls are CLIENT.
    let mut kind = 1;
    match receipt.entry.kind.as_str() {
        "model.called" => {
            kind = 3;
            name = format!("chat {}", field("model").unwrap_or("unknown"));
            attributes.push(text("gen_ai.operation.name", "chat"));
            let texts = [("gen_ai.provider.name", "provider"), ("gen_ai.request.model", "model")];
            attributes.extend(texts.into_iter().filter_map(|(key, name)| Some(text(key, field(name)?))));
            let counts = [("gen_ai.usage.input_tokens", "tokens_in"), ("gen_ai.usage.output_tokens", "tokens_out")];
            attributes.extend(counts.into_iter().filter_map(|(key, name)| Some(number(key, count(name)?))));
            attributes.extend(field("finish").map(|reason| {
                json!({"key": "gen_ai.response.finish_reasons",
                    "value": {"arrayValue": {"values": [{"stringValue": reason}]}}})
            }));
        }
        "tool.called" => {
            let tool = field("tool").unwrap_or("unknown");
            name = format!("execute_tool {tool}");
            attributes.push(text("gen_ai.operation.name", "execute_tool"));
            attributes.push(text("gen_ai.tool.name", tool));
        }
        _ => {}
    }
    let end = receipt.at.as_nanosecond();
    let start = end - i128::from(count("wall_ms").unwrap_or(0)) * 1_000_000;
    let refused = receipt.entry.kind.ends_with("refused");
    let mut span = json!({
        "traceId": trace,
        "spanId": id(receipt.digest, 8),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": start.to_string(),
        "endTimeUnixNano": end.to_string(),
        "attributes": attributes,
        "status": if refused { json!({"code": 2, "message": "refused"}) } else { json!({}) },
    });
    if let Some(grant) = field("grant").and_then(|grant| grant.parse::<Digest>().ok())
        && let Some(fields) = span.as_object_mut()
    {
        fields.insert("parentSpanId".to_owned(), Value::from(id(grant, 8)));
    }
    span
}

/// The first bytes of a digest, as OTLP/JSON writes ids: hex.
fn id(digest: Digest, bytes: usize) -> String {
    digest.to_string().chars().take(2 * bytes).collect()
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// OTLP/JSON writes 64-bit integers as text.
fn number(key: &str, value: u64) -> Value {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}
