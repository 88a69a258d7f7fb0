//! Errors in the form that OpenAI's clients read: `{"error": {"message", "type", "param", "code"}}`.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::foundation::chat::ModelError;

/// An error response.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    message: String,
    /// The request field in question.
    param: Option<String>,
    code: Option<&'static str>,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: None }
    }

    /// An error about a field.
    pub(super) fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::new(StatusCode::BAD_REQUEST, message) }
    }

    /// An error about an unknown name.
    pub(super) fn not_found(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::new(StatusCode::NOT_FOUND, message) }
    }

    /// Adds that the field is in message number `index`.
    #[must_use]
    pub(super) fn in_message(self, index: usize) -> Self {
        let param = self.param.map(|param| format!("messages[{index}].{param}"));
        Self { message: format!("message {index}: {}", self.message), param, ..self }
    }

    /// Sets the machine-readable code.
    #[must_use]
    pub(super) fn code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    /// The JSON form, for a response or a stream.
    pub(super) fn json(&self) -> Value {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        };
        json!({ "error": { "message": self.message, "type": kind, "param": self.param, "code": self.code } })
    }
}

impl From<ModelError> for ApiError {
    fn from(error: ModelError) -> Self {
        let status = match &error {
            ModelError::Unsupported { .. } => StatusCode::BAD_REQUEST,
            ModelError::Denied { .. } => StatusCode::FORBIDDEN,
            ModelError::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
            ModelError::Failed { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.json())).into_response();
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
