//! A request's fields, taken one by one by those who understand them. What nobody took is refused by name: a field that
//! is silently ignored changes an experiment without a word.

use std::error::Error;
use std::io;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::ApiError;

/// The fields of a JSON object that are still to be understood.
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    /// The fields of a request's body.
    pub(super) fn of(body: Result<Bytes, BytesRejection>) -> Result<Self, ApiError> {
        let body = body.map_err(|rejection| {
            if fell_silent(&rejection) {
                let message = "nothing more of the request came; send it whole";
                return ApiError::new(StatusCode::REQUEST_TIMEOUT, message);
            }
            let why = rejection.body_text();
            let status = rejection.into_response().status();
            if status == StatusCode::PAYLOAD_TOO_LARGE {
                ApiError::new(status, "the request is larger than this server takes (see `loom serve --body-bytes`)")
            } else {
                ApiError::new(status, why)
            }
        })?;
        serde_json::from_slice(&body)
            .map(Self)
            .map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, format!("the body is no JSON object: {error}")))
    }

    pub(super) fn new(fields: Map<String, Value>) -> Self {
        Self(fields)
    }

    /// The field called `name`; `null` is absent.
    pub(super) fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, ApiError> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value)
                .map(Some)
                .map_err(|error| ApiError::field(name, format!("`{name}` is not understood: {error}"))),
        }
    }

    /// Whether there is a field called `name` that nobody has taken.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !value.is_null())
    }

    /// A field that there must be.
    pub(super) fn need<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, ApiError> {
        self.take(name)?.ok_or_else(|| ApiError::field(name, format!("`{name}` is missing")))
    }

    /// A field that is taken only where it asks for nothing: as `null`, empty, or one of `neutral`.
    pub(super) fn only(&mut self, name: &str, neutral: &[Value]) -> Result<(), ApiError> {
        let asks = |value: &Value| match value {
            Value::Null => false,
            Value::Array(list) => !list.is_empty(),
            Value::Object(map) => !map.is_empty(),
            _ => true,
        };
        match self.0.remove(name) {
            Some(value) if asks(&value) && !neutral.contains(&value) => {
                Err(ApiError::field(name, format!("`{name}` is not supported by this server; leave it out"))
                    .code("unsupported_parameter"))
            }
            _ => Ok(()),
        }
    }

    /// Fields that are notes for a provider and change no answer.
    pub(super) fn notes(&mut self, names: &[&str]) {
        for name in names {
            self.0.remove(*name);
        }
    }

    /// Refuses what is left.
    pub(super) fn done(self, inside: &str) -> Result<(), ApiError> {
        let Some((name, _)) = self.0.into_iter().find(|(_, value)| !value.is_null()) else { return Ok(()) };
        let message = format!("`{name}` in {inside} is not supported by this server; leave it out");
        Err(ApiError::field(name, message).code("unsupported_parameter"))
    }
}

/// Whether the body did not come because its sender fell silent.
fn fell_silent(rejection: &BytesRejection) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(rejection);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(json: &Value) -> Fields {
        Fields::of(Ok(Bytes::from(json.to_string()))).unwrap()
    }

    fn told(error: &ApiError) -> String {
        error.json()["error"]["message"].as_str().unwrap().to_owned()
    }

    #[test]
    fn what_nobody_takes_is_refused_by_name() {
        let mut all = fields(&json!({ "n": 2, "user": "ann", "seed": null, "tools": [], "best_of": 3 }));
        assert_eq!(all.take::<u64>("n").unwrap(), Some(2));
        assert_eq!(all.take::<u64>("seed").unwrap(), None);
        all.notes(&["user"]);
        all.only("tools", &[]).unwrap();
        assert!(told(&all.done("the request").unwrap_err()).starts_with("`best_of` in the request is not supported"));
        assert!(fields(&json!({ "x": null })).done("the request").is_ok());
    }

    #[test]
    fn what_is_no_such_value_says_so() {
        let error = fields(&json!({ "n": "two" })).take::<u64>("n").unwrap_err();
        assert!(told(&error).starts_with("`n` is not understood: invalid type: string"), "{error:?}");
        assert!(told(&fields(&json!({})).need::<u64>("n").unwrap_err()).contains("`n` is missing"));
        let penalty = fields(&json!({ "frequency_penalty": 0.5 })).only("frequency_penalty", &[json!(0)]).unwrap_err();
        assert!(told(&penalty).contains("`frequency_penalty` is not supported"));
        let body = Fields::of(Ok(Bytes::from_static(b"[]"))).err().unwrap();
        assert!(told(&body).starts_with("the body is no JSON object"));
    }
}
