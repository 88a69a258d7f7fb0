//! Models that run elsewhere: OpenAI's, Anthropic's, and those of any server that speaks like OpenAI's. And the hub from
//! which weights are fetched.
//!
//! ```text
//! HostedModel: retries, limits, response cache, listeners      hosted.rs
//!   │ a request's body, and what each event of the answer means
//! Dialect                                                     openai.rs, anthropic.rs
//!   │ server-sent events                                      sse.rs
//! the network
//! ```
//!
//! A provider tells less than an engine in the process: no ids, no entropy, no states. What it does not tell is `None`.
//! Its log-probabilities count as [`Basis::Sampled`](crate::foundation::chat::Basis::Sampled): whether temperature and
//! masks have touched them differs from provider to provider and is rarely documented
//! (<https://github.com/standardcompletions/rfcs/issues/11> compares several).

mod anthropic;
mod cache;
mod draft;
mod fault;
mod hosted;
pub mod hub;
mod keys;
mod openai;
mod pace;
mod prices;
mod score;
mod sse;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::{Map, Value};

use self::anthropic::Anthropic;
use self::draft::Draft;
use self::fault::Fault;
use self::hosted::HostedModel;
use self::keys::Account;
use self::openai::OpenAi;
use self::sse::Event;
use crate::foundation::base::limits::REMOTE_RETRIES_MAX;
use crate::foundation::chat::{LanguageModel, Message, ModelError, ModelSpec, Sampling};

/// How hosted models are asked.
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// A folder that keeps replies, so that the same request is asked once.
    pub cache: Option<PathBuf>,
    /// Most requests per minute to one model, evenly spaced.
    pub requests_per_minute: Option<u32>,
    /// Most tokens per minute, prompt and reply together, to one model.
    pub tokens_per_minute: Option<u32>,
    /// How often a request that may go well later is sent again.
    pub retries: u32,
    /// The wait before the first of these; it doubles.
    pub first_wait: Duration,
    /// Longest wait for a connection.
    pub connect: Duration,
    /// Longest wait for the answer to begin.
    pub first_byte: Duration,
    /// Longest silence inside an answer.
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

/// What is asked of a provider.
struct Ask<'a> {
    /// The model's name there.
    model: &'a str,
    messages: &'a [Message],
    sampling: &'a Sampling,
    /// Where the provider's draws come from; absent where nothing is drawn.
    seed: Option<u32>,
}

/// One provider's way of asking and answering. Pure.
trait Dialect: Send + Sync {
    /// Its name, part of a cached reply's key.
    fn name(&self) -> &'static str;
    /// What follows the base URL.
    fn path(&self) -> &'static str;
    /// Whether its servers may score prompts by `/completions` with `echo`.
    fn scores(&self) -> bool;
    /// The headers that show who asks.
    fn headers(&self, account: &Account) -> Result<HeaderMap, String>;
    /// The request.
    ///
    /// # Errors
    /// What the provider cannot do, in words.
    fn body(&self, ask: &Ask<'_>) -> Result<Map<String, Value>, String>;
    /// Adds what an event of the answer tells.
    fn event(&self, event: &Event, draft: &mut Draft) -> Result<(), Fault>;
}

/// Opens the hosted model `spec`. Nothing is asked yet.
///
/// # Errors
/// [`ModelError::Unavailable`] without a key, with an unusable address, cache or price table, or for a model that is not
/// hosted.
pub fn open(spec: &ModelSpec, options: &RemoteOptions) -> Result<Arc<dyn LanguageModel>, ModelError> {
    let told = |why: String| ModelError::Unavailable { model: spec.to_string(), why };
    let opened = || -> Result<HostedModel, String> {
        let (dialect, account, name): (Box<dyn Dialect>, _, _) = match spec {
            ModelSpec::OpenAi(name) => {
                let url = "https://api.openai.com/v1";
                (Box::new(OpenAi::Own), Account::read("OPENAI_API_KEY", Some("OPENAI_BASE_URL"), url, true)?, name)
            }
            ModelSpec::Anthropic(name) => {
                let url = "https://api.anthropic.com";
                let account = Account::read("ANTHROPIC_API_KEY", Some("ANTHROPIC_BASE_URL"), url, true)?;
                (Box::new(Anthropic), account, name)
            }
            ModelSpec::OpenAiCompatible { url, name } => {
                (Box::new(OpenAi::Compatible), Account::read("OPENAI_COMPATIBLE_API_KEY", None, url, false)?, name)
            }
            _ => return Err("it is not a hosted model".to_owned()),
        };
        HostedModel::new(spec.to_string(), name.clone(), dialect, account, options)
    };
    opened().map(|model| Arc::new(model) as Arc<dyn LanguageModel>).map_err(told)
}

#[cfg(test)]
mod testing {
    use super::*;

    pub(super) fn ask<'a>(messages: &'a [Message], sampling: &'a Sampling) -> Ask<'a> {
        Ask { model: "m", messages, sampling, seed: Some(7) }
    }

    pub(super) fn read(dialect: &dyn Dialect, events: &[&str]) -> Result<Draft, Fault> {
        let mut draft = Draft::default();
        for data in events {
            dialect.event(&Event { name: String::new(), data: (*data).to_owned() }, &mut draft)?;
        }
        Ok(draft)
    }
}
