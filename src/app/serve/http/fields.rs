//! The fields of a request, taken one by one. Fields that remain are rejected by name, because a silently ignored field
//! would change an experiment.

use std::error::Error;
use std::io;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::budget::{JsonSize, WorkMemory};
use super::error::ApiError;
use super::{Shared, run_sized};

/// The fields of a JSON object that are not taken yet.
pub(super) struct Fields(Map<String, Value>);

/// A parsed request body.
pub(super) struct ParsedBody {
    pub(super) fields: Fields,
    /// Bytes of the body.
    pub(super) bytes: usize,
    pub(super) memory: WorkMemory,
}

impl Fields {
    /// Parses a request body within the memory for requests.
    pub(super) async fn read(
        shared: &Arc<Shared>,
        body: Result<Bytes, BytesRejection>,
    ) -> Result<ParsedBody, ApiError> {
        let body = received(body)?;
        let (bytes, counted) = (body.len(), body.clone());
        let size = run_sized(shared, bytes, move |_| JsonSize::of(&counted)).await?;
        let memory = shared.memory.work(size).await?;
        let fields = run_sized(shared, bytes, move |_| Self::parse(&body)).await?;
        Ok(ParsedBody { fields, bytes, memory })
    }

    fn parse(body: &[u8]) -> Result<Self, ApiError> {
        serde_json::from_slice(body)
            .map(Self)
            .map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, format!("the body is not a JSON object: {error}")))
    }

    pub(super) fn new(fields: Map<String, Value>) -> Self {
        Self(fields)
    }

    /// Takes the field `name`; `null` counts as absent.
    pub(super) fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, ApiError> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value)
                .map(Some)
                .map_err(|error| ApiError::field(name, format!("`{name}` is invalid: {error}"))),
        }
    }

    /// Whether the field `name` is present and not taken yet.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !value.is_null())
    }

    /// Takes a required field.
    pub(super) fn require<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, ApiError> {
        self.take(name)?.ok_or_else(|| ApiError::field(name, format!("`{name}` is missing")))
    }

    /// Takes an unsupported field if its value requests nothing: `null`, empty, or one of `neutral`.
    pub(super) fn take_neutral(&mut self, name: &str, neutral: &[Value]) -> Result<(), ApiError> {
        let is_set = |value: &Value| match value {
            Value::Null => false,
            Value::Array(list) => !list.is_empty(),
            Value::Object(map) => !map.is_empty(),
            _ => true,
        };
        match self.0.remove(name) {
            Some(value) if is_set(&value) && !neutral.contains(&value) => {
                Err(ApiError::field(name, format!("`{name}` is not supported by this server; leave it out"))
                    .code("unsupported_parameter"))
            }
            _ => Ok(()),
        }
    }

    /// Drops fields that do not affect the response.
    pub(super) fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.0.remove(*name);
        }
    }

    /// Rejects the remaining fields.
    pub(super) fn finish(self, inside: &str) -> Result<(), ApiError> {
        let Some((name, _)) = self.0.into_iter().find(|(_, value)| !value.is_null()) else { return Ok(()) };
        let message = format!("`{name}` in {inside} is not supported by this server; leave it out");
        Err(ApiError::field(name, message).code("unsupported_parameter"))
    }
}

/// The bytes of a body.
fn received(body: Result<Bytes, BytesRejection>) -> Result<Bytes, ApiError> {
    body.map_err(|rejection| match io_error(&rejection) {
        Some(io::ErrorKind::TimedOut) => {
            ApiError::new(StatusCode::REQUEST_TIMEOUT, "the request body was not sent completely in time")
        }
        Some(io::ErrorKind::OutOfMemory) => {
            let message = "the server has no memory for this body beside those of other requests; try again later";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).code("busy")
        }
        _ => {
            let why = rejection.body_text();
            let status = rejection.into_response().status();
            if status == StatusCode::PAYLOAD_TOO_LARGE {
                ApiError::new(status, "the request is too large for this server (see `loom serve --body-bytes`)")
            } else {
                ApiError::new(status, why)
            }
        }
    })
}

/// The I/O error inside a rejection.
fn io_error(rejection: &BytesRejection) -> Option<io::ErrorKind> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(rejection);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(json: &Value) -> Fields {
        Fields::parse(json.to_string().as_bytes()).unwrap()
    }

    fn message(error: &ApiError) -> String {
        error.json()["error"]["message"].as_str().unwrap().to_owned()
    }

    #[test]
    fn remaining_fields_are_rejected_by_name() {
        let mut all = fields(&json!({ "n": 2, "user": "ann", "seed": null, "tools": [], "best_of": 3 }));
        assert_eq!(all.take::<u64>("n").unwrap(), Some(2));
        assert_eq!(all.take::<u64>("seed").unwrap(), None);
        all.ignore(&["user"]);
        all.take_neutral("tools", &[]).unwrap();
        assert!(
            message(&all.finish("the request").unwrap_err()).starts_with("`best_of` in the request is not supported")
        );
        assert!(fields(&json!({ "x": null })).finish("the request").is_ok());
    }

    #[test]
    fn invalid_values_are_errors() {
        let error = fields(&json!({ "n": "two" })).take::<u64>("n").unwrap_err();
        assert!(message(&error).starts_with("`n` is invalid: invalid type: string"), "{error:?}");
        assert!(message(&fields(&json!({})).require::<u64>("n").unwrap_err()).contains("`n` is missing"));
        let penalty =
            fields(&json!({ "frequency_penalty": 0.5 })).take_neutral("frequency_penalty", &[json!(0)]).unwrap_err();
        assert!(message(&penalty).contains("`frequency_penalty` is not supported"));
        let body = Fields::parse(b"[]").err().unwrap();
        assert!(message(&body).starts_with("the body is not a JSON object"));
    }
}
