//! Errors of requests to providers: which are temporary, and how to resolve the others.

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::foundation::chat::ModelError;

/// A request that failed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProviderError {
    pub(super) kind: ProviderErrorKind,
    /// The reason, with the provider's message where there is one.
    pub(super) why: String,
    /// The wait requested by the provider.
    pub(super) retry_after: Option<Duration>,
    /// The setting that the provider rejected.
    pub(super) parameter: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProviderErrorKind {
    /// The API key is missing, wrong or not authorised.
    Key,
    /// The account has no credit or quota left.
    Quota,
    /// The rate limit is exceeded.
    Rate,
    /// The provider is overloaded or broken at the moment.
    Overloaded,
    /// The server cannot be reached, or does not respond in time.
    Unreachable,
    /// The model or the path does not exist.
    Missing,
    /// The provider rejects this request.
    Request,
    /// The response broke off.
    Cut,
    /// The response does not follow the protocol.
    Garbled,
}

/// Maximum length of a quoted provider message.
const QUOTE_CHARS: usize = 300;

impl ProviderError {
    pub(super) fn new(kind: ProviderErrorKind, why: impl Into<String>) -> Self {
        Self { kind, why: why.into(), retry_after: None, parameter: None }
    }

    /// The error of a response with a status other than 2xx. Both formats have `error.message` and `error.type` in the
    /// body.
    pub(super) fn from_response(status: StatusCode, headers: &HeaderMap, body: &str) -> Self {
        let json: Value = serde_json::from_str(body).unwrap_or_default();
        let detail = json.get("error").unwrap_or(&Value::Null);
        let text = |key: &str| detail.get(key).and_then(Value::as_str);
        let message =
            text("message").or_else(|| detail.as_str()).or_else(|| json.get("message").and_then(Value::as_str));
        let message = quote(message.unwrap_or(body));
        let code = [text("code"), text("type")];
        let says = |word: &str| code.contains(&Some(word));
        let kind = match status.as_u16() {
            401 | 403 => ProviderErrorKind::Key,
            402 => ProviderErrorKind::Quota,
            429 if says("insufficient_quota") || says("billing_error") => ProviderErrorKind::Quota,
            400 if says("billing_error") || message.contains("credit balance is too low") => ProviderErrorKind::Quota,
            429 => ProviderErrorKind::Rate,
            404 => ProviderErrorKind::Missing,
            408 | 409 | 500.. => ProviderErrorKind::Overloaded,
            _ => ProviderErrorKind::Request,
        };
        let why = format!("{status}: {message}");
        let why = if kind == ProviderErrorKind::Key { status.to_string() } else { why };
        Self { kind, why, retry_after: retry_after(headers), parameter: text("param").map(str::to_owned) }
    }

    /// The error of an `error` event inside a stream.
    pub(super) fn from_event(error: &Value) -> Self {
        let text = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or_default();
        let kind = match text("type") {
            "overloaded_error" | "api_error" | "server_error" | "timeout_error" => ProviderErrorKind::Overloaded,
            "rate_limit_error" => ProviderErrorKind::Rate,
            "authentication_error" | "permission_error" => ProviderErrorKind::Key,
            "billing_error" | "insufficient_quota" => ProviderErrorKind::Quota,
            "not_found_error" => ProviderErrorKind::Missing,
            "invalid_request_error" => ProviderErrorKind::Request,
            _ => ProviderErrorKind::Garbled,
        };
        Self::new(kind, format!("{} {}", text("type"), quote(text("message"))))
    }

    /// Whether the same request may succeed later.
    pub(super) const fn is_temporary(&self) -> bool {
        matches!(
            self.kind,
            ProviderErrorKind::Rate
                | ProviderErrorKind::Overloaded
                | ProviderErrorKind::Unreachable
                | ProviderErrorKind::Cut
        )
    }

    /// The error for the caller. `key` is the name of the API key's environment variable.
    pub(super) fn into_model_error(self, model: &str, key: &str) -> ModelError {
        let (model, why) = (model.to_owned(), self.why);
        match self.kind {
            ProviderErrorKind::Key => ModelError::Unavailable {
                model,
                why: format!("the provider rejected the API key ({why}); set {key} to a key that may use this model"),
            },
            ProviderErrorKind::Quota => ModelError::Unavailable {
                model,
                why: format!("the account has no quota left ({why}); see the provider's billing page"),
            },
            ProviderErrorKind::Unreachable => ModelError::Unavailable {
                model,
                why: format!("{why}; check the address and the network, or name a fallback after a comma"),
            },
            ProviderErrorKind::Missing => ModelError::Unavailable {
                model,
                why: format!("the provider has no such model or path ({why}); check the name and the base URL"),
            },
            ProviderErrorKind::Request => {
                ModelError::Unsupported { model, why: format!("the provider rejected the request ({why})") }
            }
            ProviderErrorKind::Rate => ModelError::Failed {
                model,
                why: format!("too many requests ({why}); set a lower --requests-per-minute"),
            },
            ProviderErrorKind::Overloaded => ModelError::Failed {
                model,
                why: format!("the provider is temporarily unavailable ({why}); try again later"),
            },
            ProviderErrorKind::Cut | ProviderErrorKind::Garbled => ModelError::Failed { model, why },
        }
    }
}

/// The beginning of a provider's text, on one line.
pub(super) fn quote(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(QUOTE_CHARS) {
        Some((at, _)) => format!("{}…", text.split_at(at).0),
        None if text.is_empty() => "no message".to_owned(),
        None => text,
    }
}

/// `retry-after-ms`, or `Retry-After` in seconds or as a date (RFC 9110, section 10.2.3). A date is compared with the
/// response's own `Date`, since the clocks may differ.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok();
    let number = |name| text(name)?.trim().parse::<f64>().ok();
    let date = |name| Some(jiff::fmt::rfc2822::parse(text(name)?).ok()?.timestamp().as_second());
    let seconds = number("retry-after-ms").map(|ms| ms / 1000.0).or_else(|| number("retry-after"));
    let seconds = seconds.or_else(|| Some((date("retry-after")? - date("date")?) as f64))?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: u16, body: &str, kind: ProviderErrorKind, why: &str) {
        let error = ProviderError::from_response(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body);
        assert_eq!(error.kind, kind, "{status} {body}");
        assert!(error.why.contains(why), "{status} {body}: {}", error.why);
    }

    #[test]
    fn responses_are_classified() {
        check(
            401,
            r#"{"error": {"message": "Incorrect API key provided: sk-…"}}"#,
            ProviderErrorKind::Key,
            "401 Unauthorized",
        );
        check(429, r#"{"error": {"message": "slow down", "type": "requests"}}"#, ProviderErrorKind::Rate, "slow down");
        check(429, r#"{"error": {"message": "pay", "code": "insufficient_quota"}}"#, ProviderErrorKind::Quota, "pay");
        check(
            400,
            r#"{"error": {"type": "invalid_request_error", "message": "max_tokens"}}"#,
            ProviderErrorKind::Request,
            "max_t",
        );
        check(404, r#"{"error": "no such model"}"#, ProviderErrorKind::Missing, "no such model");
        check(
            529,
            r#"{"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}"#,
            ProviderErrorKind::Overloaded,
            "busy",
        );
        check(502, "<html>\n  bad gateway</html>", ProviderErrorKind::Overloaded, "<html> bad gateway</html>");
        check(500, "", ProviderErrorKind::Overloaded, "no message");
        check(400, &"x".repeat(1000), ProviderErrorKind::Request, "x…");
    }

    #[test]
    fn a_rejected_key_is_never_quoted() {
        let error = ProviderError::from_response(
            StatusCode::UNAUTHORIZED,
            &HeaderMap::new(),
            r#"{"error": {"message": "bad sk-1234"}}"#,
        );
        assert!(!error.into_model_error("openai/x", "OPENAI_API_KEY").to_string().contains("sk-1234"));
    }

    #[test]
    fn the_requested_wait_is_read() {
        let wait = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("date", "Wed, 21 Oct 2026 07:27:30 GMT".parse().unwrap());
            headers.insert(name, value.parse().unwrap());
            ProviderError::from_response(StatusCode::TOO_MANY_REQUESTS, &headers, "").retry_after
        };
        assert_eq!(wait("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(wait("retry-after-ms", "1500"), Some(Duration::from_millis(1500)));
        assert_eq!(wait("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(wait("retry-after", "Wed, 21 Oct 2026 07:27:00 GMT"), None);
        assert_eq!(wait("retry-after", "-1"), None);
    }
}
