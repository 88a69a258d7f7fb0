//! `/v1/embeddings`.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Shared;
use super::error::ApiError;
use super::fields::{Fields, ParsedBody};
use crate::foundation::base::limits::CHOICES_MAX;

#[derive(Deserialize)]
#[serde(untagged)]
enum Input {
    One(String),
    Many(Vec<String>),
}

pub(super) async fn embeddings(
    State(shared): State<Arc<Shared>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Value>, ApiError> {
    let Some((name, embedder)) = &shared.embedder else {
        let message = "this server has no embedder; start it with --embedder";
        return Err(ApiError::new(StatusCode::NOT_IMPLEMENTED, message));
    };
    let ParsedBody { mut fields, memory: _memory, .. } = Fields::read(&shared, body).await?;
    let model: String = fields.require("model")?;
    if model != *name {
        let message = format!("there is no embedder `{model}` here; this server has `{name}`");
        return Err(ApiError::not_found("model", message).code("model_not_found"));
    }
    let input = match serde_json::from_value(fields.require("input")?) {
        Ok(Input::One(text)) => vec![text],
        Ok(Input::Many(texts)) => texts,
        Err(_) => return Err(ApiError::field("input", "`input` must be a string or a list of strings")),
    };
    if input.is_empty() || input.len() > CHOICES_MAX {
        return Err(ApiError::field("input", format!("`input` must hold 1 to {CHOICES_MAX} strings")));
    }
    let format: Option<String> = fields.take("encoding_format")?;
    let base64 = match format.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(ApiError::field("encoding_format", "`encoding_format` must be `float` or `base64`")),
    };
    let dimensions: Option<usize> = fields.take("dimensions")?;
    fields.ignore(&["user"]);
    fields.finish("the request")?;
    let _turn = shared.enter().await?;
    let texts: Vec<_> = input.iter().map(String::as_str).collect();
    let vectors = embedder.embed(&texts).await?;
    if let (Some(wanted), Some(given)) = (dimensions, vectors.first().map(Vec::len))
        && wanted != given
    {
        return Err(ApiError::field(
            "dimensions",
            format!("`{name}` has {given} dimensions; others are not supported"),
        ));
    }
    let encode = |vector: &[f32]| if base64 { json!(encoded(vector)) } else { json!(vector) };
    let data: Vec<_> = vectors
        .iter()
        .enumerate()
        .map(|(index, vector)| json!({ "object": "embedding", "index": index, "embedding": encode(vector) }))
        .collect();
    // Embedders do not report token counts.
    Ok(Json(json!({ "object": "list", "model": name, "data": data, "usage": null })))
}

/// Little-endian f32s in base64, the default of OpenAI's clients.
fn encoded(vector: &[f32]) -> String {
    STANDARD.encode(vector.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_agrees_with_python() {
        // base64.b64encode(struct.pack("<3f", 1.0, -0.5, 2.75))
        assert_eq!(encoded(&[1.0, -0.5, 2.75]), "AACAPwAAAL8AADBA");
        assert_eq!(encoded(&[1.0]), "AACAPw==");
        assert_eq!(encoded(&[1.0, -0.5]), "AACAPwAAAL8=");
    }
}
