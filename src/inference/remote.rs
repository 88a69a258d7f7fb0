//! Hosted models: OpenAI's, Anthropic's, and those of any OpenAI-compatible server. And the Hugging Face hub, from
//! which weights are downloaded.
//!
//! ```text
//! HostedModel: retries, rate limits, response cache          hosted.rs
//!   │ request body; meaning of each event of the response
//! ProviderApi                                                 openai.rs, anthropic.rs
//!   │ server-sent events
//! the network
//! ```
//!
//! A provider reports less than a local engine: no token ids, no entropy, no states. What it does not report is `None`.
//! Its log-probabilities have [`Basis::Sampled`](crate::foundation::chat::Basis::Sampled): whether temperature and
//! masks were applied to them differs from provider to provider and is rarely documented
//! (<https://github.com/standardcompletions/rfcs/issues/11> compares several).

mod anthropic;
mod cache;
mod partial_reply;
mod provider_error;
mod hosted;
pub mod hub;
mod credentials;
mod openai;
mod rate_limit;
mod prices;
mod echo_scoring;
pub mod upstream;
#[doc(hidden)]
pub mod fuzzing;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::{Map, Value};

use self::anthropic::Anthropic;
use self::credentials::Credentials;
pub(in crate::inference) use self::credentials::{is_loopback, server_url};
use self::hosted::{HostedHandle, HostedModel};
use self::openai::OpenAi;
use self::partial_reply::PartialReply;
use self::provider_error::ProviderError;
use crate::foundation::base::limits::REMOTE_RETRIES_MAX;
use crate::foundation::chat::{LanguageModel, Message, ModelError, ModelSpec, Sampling, Thinking};

/// Cache, timeouts, retries and rate limits of hosted models.
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// The folder of the response cache.
    pub cache: Option<PathBuf>,
    /// Maximum requests per minute to one model, evenly spaced.
    pub requests_per_minute: Option<u32>,
    /// Maximum tokens per minute to one model, prompt and reply together.
    pub tokens_per_minute: Option<u32>,
    /// Retries of a request that failed for a temporary reason.
    pub retries: u32,
    /// The wait before the first retry; it doubles with each one.
    pub first_wait: Duration,
    /// Connection timeout.
    pub connect: Duration,
    /// Timeout until the response begins.
    pub first_byte: Duration,
    /// Timeout between two chunks of a response.
    pub idle: Duration,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            cache: None,
            requests_per_minute: None,
            tokens_per_minute: None,
            retries: REMOTE_RETRIES_MAX,
            first_wait: Duration::from_millis(500),
            connect: Duration::from_secs(10),
            first_byte: Duration::from_mins(2),
            idle: Duration::from_mins(1),
        }
    }
}

/// A chat request to a provider.
struct ChatRequest<'a> {
    /// The model's name at the provider.
    model: &'a str,
    messages: &'a [Message],
    sampling: &'a Sampling,
    /// How to think before the answer.
    thinking: &'a Thinking,
    /// The seed for the provider's sampling; absent at temperature 0.
    seed: Option<u32>,
}

/// The request and response format of one provider. Pure.
trait ProviderApi: Send + Sync {
    /// The name of the format; part of the cache key.
    fn name(&self) -> &'static str;
    /// The path after the base URL.
    fn path(&self) -> &'static str;
    /// Whether its servers may score prompts by `/completions` with `echo`.
    fn scores(&self) -> bool;
    /// The authentication headers.
    fn headers(&self, credentials: &Credentials) -> Result<HeaderMap, String>;
    /// The request body.
    ///
    /// # Errors
    /// The setting that the provider does not support.
    fn body(&self, request: &ChatRequest<'_>) -> Result<Map<String, Value>, String>;
    /// Adds the data of one event to the reply.
    fn event(&self, data: &str, partial: &mut PartialReply) -> Result<(), ProviderError>;
}

/// Opens the hosted model `spec`. Sends no request.
///
/// # Errors
/// [`ModelError::Unavailable`] without a key, with an invalid address, cache or price table, or for a model that is not
/// hosted.
pub fn open(spec: &ModelSpec, options: &RemoteOptions) -> Result<Arc<dyn LanguageModel>, ModelError> {
    let unavailable = |why: String| ModelError::Unavailable { model: spec.to_string(), why };
    let opened = || -> Result<HostedModel, String> {
        let (api, credentials, name): (Box<dyn ProviderApi>, _, _) = match spec {
            ModelSpec::OpenAi(name) => {
                let url = "https://api.openai.com/v1";
                (Box::new(OpenAi::Own), Credentials::read("OPENAI_API_KEY", Some("OPENAI_BASE_URL"), url, true)?, name)
            }
            ModelSpec::Anthropic(name) => {
                let url = "https://api.anthropic.com";
                let credentials = Credentials::read("ANTHROPIC_API_KEY", Some("ANTHROPIC_BASE_URL"), url, true)?;
                (Box::new(Anthropic), credentials, name)
            }
            ModelSpec::OpenAiCompatible { url, name } => {
                (Box::new(OpenAi::Compatible), Credentials::read("OPENAI_COMPATIBLE_API_KEY", None, url, false)?, name)
            }
            _ => return Err("it is not a hosted model".to_owned()),
        };
        HostedModel::new(spec.to_string(), name.clone(), api, credentials, options)
    };
    let handle = |model| Arc::new(HostedHandle::new(model)) as Arc<dyn LanguageModel>;
    opened().map(handle).map_err(unavailable)
}

/// The error with its causes, without the URL: a signed URL is a secret.
fn causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    if let Some(url) = error.url() {
        text = text.replace(&format!(" for url ({url})"), "");
    }
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn error_texts_hold_no_url() {
        let error = reqwest::get("http://127.0.0.1:1/file?X-Amz-Signature=secret").await.unwrap_err();
        assert!(error.to_string().contains("secret"), "{error}");
        let message = super::causes(&error);
        assert!(message.contains("onnect") && !message.contains("secret"), "{message}");
    }
}

#[cfg(test)]
mod testing {
    use std::sync::LazyLock;

    use super::*;

    pub(super) fn chat_request<'a>(messages: &'a [Message], sampling: &'a Sampling) -> ChatRequest<'a> {
        static NONE: LazyLock<Thinking> = LazyLock::new(Thinking::default);
        ChatRequest { model: "m", messages, sampling, thinking: &NONE, seed: Some(7) }
    }

    pub(super) fn read(api: &dyn ProviderApi, events: &[&str]) -> Result<PartialReply, ProviderError> {
        let mut partial = PartialReply::default();
        for data in events {
            api.event(data, &mut partial)?;
        }
        Ok(partial)
    }
}
