//! What goes wrong between us and a provider: which of it passes by itself, and what to do about the rest.

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::foundation::chat::ModelError;

/// A request that gave no reply.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    /// What happened, in the provider's words where it gives some.
    pub(super) why: String,
    /// How long the provider asks us to wait.
    pub(super) retry_after: Option<Duration>,
    /// The setting that the provider objects to.
    pub(super) parameter: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The key is missing, wrong or not allowed to do this.
    Key,
    /// The account is out of money or over its limit.
    Quota,
    /// Too many requests for now.
    Rate,
    /// The provider is overloaded or broken for now.
    Overloaded,
    /// Nobody answers, or not in time.
    Unreachable,
    /// The model or the path is not there.
    Missing,
    /// The provider will not serve this request.
    Request,
    /// The answer broke off.
    Cut,
    /// What came is not what the protocol says.
    Garbled,
}

/// How much of a provider's message is quoted.
const QUOTE_CHARS: usize = 300;

impl Fault {
    pub(super) fn new(kind: Kind, why: impl Into<String>) -> Self {
        Self { kind, why: why.into(), retry_after: None, parameter: None }
    }

    /// What an answer other than 2xx means. Both dialects put `error.message` and `error.type` into its body.
    pub(super) fn of_answer(status: StatusCode, headers: &HeaderMap, body: &str) -> Self {
        let json: Value = serde_json::from_str(body).unwrap_or_default();
        let error = json.get("error").unwrap_or(&Value::Null);
        let text = |key: &str| error.get(key).and_then(Value::as_str);
        let message =
            text("message").or_else(|| error.as_str()).or_else(|| json.get("message").and_then(Value::as_str));
        let message = quote(message.unwrap_or(body));
        let code = [text("code"), text("type")];
        let says = |word: &str| code.contains(&Some(word));
        let kind = match status.as_u16() {
            401 | 403 => Kind::Key,
            402 => Kind::Quota,
            429 if says("insufficient_quota") || says("billing_error") => Kind::Quota,
            400 if says("billing_error") || message.contains("credit balance is too low") => Kind::Quota,
            429 => Kind::Rate,
            404 => Kind::Missing,
            408 | 409 | 500.. => Kind::Overloaded,
            _ => Kind::Request,
        };
        let why = format!("{status}: {message}");
        let why = if kind == Kind::Key { status.to_string() } else { why };
        Self { kind, why, retry_after: retry_after(headers), parameter: text("param").map(str::to_owned) }
    }

    /// An `error` inside a stream that began well.
    pub(super) fn of_event(error: &Value) -> Self {
        let text = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or_default();
        let kind = match text("type") {
            "overloaded_error" | "api_error" | "server_error" | "timeout_error" => Kind::Overloaded,
            "rate_limit_error" => Kind::Rate,
            "authentication_error" | "permission_error" => Kind::Key,
            "billing_error" | "insufficient_quota" => Kind::Quota,
            "not_found_error" => Kind::Missing,
            "invalid_request_error" => Kind::Request,
            _ => Kind::Garbled,
        };
        Self::new(kind, format!("{} {}", text("type"), quote(text("message"))))
    }

    /// Whether the same request may go well a little later.
    pub(super) const fn passes(&self) -> bool {
        matches!(self.kind, Kind::Rate | Kind::Overloaded | Kind::Unreachable | Kind::Cut)
    }

    /// What the caller is told. `key` is the name of the key's environment variable.
    pub(super) fn told(self, model: &str, key: &str) -> ModelError {
        let (model, why) = (model.to_owned(), self.why);
        match self.kind {
            Kind::Key => ModelError::Unavailable {
                model,
                why: format!("the provider refuses the key ({why}); set {key} to one that may use this model"),
            },
            Kind::Quota => ModelError::Unavailable {
                model,
                why: format!("the account has no quota left ({why}); see the provider's billing page"),
            },
            Kind::Unreachable => ModelError::Unavailable {
                model,
                why: format!("{why}; check the address and the network, or name a fallback after a comma"),
            },
            Kind::Missing => ModelError::Unavailable {
                model,
                why: format!("the provider knows no such model or path ({why}); check the name and the base URL"),
            },
            Kind::Request => {
                ModelError::Unsupported { model, why: format!("the provider refuses the request ({why})") }
            }
            Kind::Rate => ModelError::Failed {
                model,
                why: format!("too many requests ({why}); ask less often with --requests-per-minute"),
            },
            Kind::Overloaded => {
                ModelError::Failed { model, why: format!("the provider cannot serve it now ({why}); try again later") }
            }
            Kind::Cut | Kind::Garbled => ModelError::Failed { model, why },
        }
    }
}

/// The beginning of a foreign text, on one line.
pub(super) fn quote(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(QUOTE_CHARS) {
        Some((at, _)) => format!("{}…", text.split_at(at).0),
        None if text.is_empty() => "no message".to_owned(),
        None => text,
    }
}

/// `retry-after-ms`, or `Retry-After` in seconds or as a date (RFC 9110, section 10.2.3). A date is compared with the
/// answer's own `Date`, since the clocks may differ.
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

    fn check(status: u16, body: &str, kind: Kind, why: &str) {
        let fault = Fault::of_answer(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body);
        assert_eq!(fault.kind, kind, "{status} {body}");
        assert!(fault.why.contains(why), "{status} {body}: {}", fault.why);
    }

    #[test]
    fn answers_are_told_apart() {
        check(401, r#"{"error": {"message": "Incorrect API key provided: sk-…"}}"#, Kind::Key, "401 Unauthorized");
        check(429, r#"{"error": {"message": "slow down", "type": "requests"}}"#, Kind::Rate, "slow down");
        check(429, r#"{"error": {"message": "pay", "code": "insufficient_quota"}}"#, Kind::Quota, "pay");
        check(400, r#"{"error": {"type": "invalid_request_error", "message": "max_tokens"}}"#, Kind::Request, "max_t");
        check(404, r#"{"error": "no such model"}"#, Kind::Missing, "no such model");
        check(
            529,
            r#"{"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}"#,
            Kind::Overloaded,
            "busy",
        );
        check(502, "<html>\n  bad gateway</html>", Kind::Overloaded, "<html> bad gateway</html>");
        check(500, "", Kind::Overloaded, "no message");
        check(400, &"x".repeat(1000), Kind::Request, "x…");
    }

    #[test]
    fn a_refused_key_is_never_quoted() {
        let fault =
            Fault::of_answer(StatusCode::UNAUTHORIZED, &HeaderMap::new(), r#"{"error": {"message": "bad sk-1234"}}"#);
        assert!(!fault.told("openai/x", "OPENAI_API_KEY").to_string().contains("sk-1234"));
    }

    #[test]
    fn the_wait_that_is_asked_for_is_read() {
        let wait = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("date", "Wed, 21 Oct 2026 07:27:30 GMT".parse().unwrap());
            headers.insert(name, value.parse().unwrap());
            Fault::of_answer(StatusCode::TOO_MANY_REQUESTS, &headers, "").retry_after
        };
        assert_eq!(wait("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(wait("retry-after-ms", "1500"), Some(Duration::from_millis(1500)));
        assert_eq!(wait("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(wait("retry-after", "Wed, 21 Oct 2026 07:27:00 GMT"), None);
        assert_eq!(wait("retry-after", "-1"), None);
    }
}
