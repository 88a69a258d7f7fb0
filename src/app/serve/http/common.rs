//! Fields that chat and completion requests have in common, and fields of every response.

use axum::http::StatusCode;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::budget::{WorkMemory, choices_at_once};
use super::error::ApiError;
use super::fields::Fields;
use super::{Gains, Shared};
use crate::foundation::base::limits::{
    CHOICES_MAX, CHOICES_TEXT_BYTES_MAX, REPLY_ASKED_TOKENS_MAX, REPORTED_ALTERNATIVE_BYTES, REPORTED_TOKEN_BYTES,
    RESPONSE_LOGPROBS_MAX, RESPONSE_TOKENS_MAX, STOP_TEXT_BYTES_MAX, STOP_TEXTS_MAX, TOP_LOGPROBS_MAX,
};
use crate::foundation::base::{Clock, RngStream, SystemClock};
use crate::foundation::chat::{DeltaGains, Finish, Prompt, Request, Sampling, Thinking, TokenLogprob, Usage};

/// The common fields of a request.
pub(super) struct CommonFields {
    /// Number of choices per prompt.
    pub(super) n: u64,
    pub(super) stream: bool,
    /// Whether a stream ends with the token usage.
    pub(super) include_usage: bool,
    pub(super) seed: u64,
    pub(super) sampling: Sampling,
    pub(super) gains: Option<DeltaGains>,
    /// How to think before the answer, over the model's own settings.
    pub(super) thinking: Thinking,
    /// Whether each choice includes entropy, rank and alternatives of its tokens.
    pub(super) readings: bool,
    /// Choices that may be generated now: one request must not take all places of the engine, nor all memory.
    pub(super) places: Semaphore,
    /// Bytes of all prompts.
    prompt_bytes: usize,
    /// Most bytes that the reported tokens take.
    reported_bytes: usize,
}

impl CommonFields {
    /// Takes the common fields. `max_tokens` and the log-probabilities are specific to each kind of request.
    pub(super) fn of(fields: &mut Fields, shared: &Shared) -> Result<Self, ApiError> {
        let model: String = fields.require("model")?;
        shared.check_name(&model)?;
        let info = shared.model.info();
        let defaults = info.sampling.clone().unwrap_or_default();
        let sampling = Sampling {
            temperature: fields.take("temperature")?.unwrap_or(defaults.temperature),
            top_p: fields.take("top_p")?.unwrap_or(defaults.top_p),
            top_k: fields.take("top_k")?.or(defaults.top_k),
            min_p: fields.take("min_p")?.unwrap_or(defaults.min_p),
            repetition_penalty: fields.take("repetition_penalty")?.unwrap_or(defaults.repetition_penalty),
            stop: stops(fields)?,
            ..defaults
        };
        let n = fields.take("n")?.unwrap_or(1);
        if !(1..=CHOICES_MAX as u64).contains(&n) {
            return Err(ApiError::field("n", format!("`n` must be from 1 to {CHOICES_MAX}")));
        }
        let stream = fields.take("stream")?.unwrap_or(false);
        let include_usage = match fields.take("stream_options")? {
            None => false,
            Some(options) => {
                let mut options = Fields::new(options);
                let usage = options.take("include_usage")?.unwrap_or(false);
                options.finish("`stream_options`")?;
                usage
            }
        };
        let seed = match fields.take::<i64>("seed")? {
            Some(seed) => seed.cast_unsigned(),
            None => shared.draw_seed(),
        };
        let (gains, readings) = match fields.take("loom")? {
            None => (None, false),
            Some(own) => {
                let mut own = Fields::new(own);
                let gains = own.take::<Gains>("delta")?.map(|gains| gains.on(info)).transpose();
                let gains = gains.map_err(|why| ApiError::field("loom.delta", why))?;
                let readings = own.take("readings")?.unwrap_or(false);
                own.finish("`loom`")?;
                (gains, readings)
            }
        };
        for name in ["frequency_penalty", "presence_penalty"] {
            fields.take_neutral(name, &[json!(0), json!(0.0)])?;
        }
        fields.take_neutral("logit_bias", &[])?;
        fields.ignore(&["user", "metadata", "safety_identifier", "prompt_cache_key"]);
        let (places, thinking) = (Semaphore::new(1), Thinking::default());
        Ok(Self {
            n,
            stream,
            include_usage,
            seed,
            sampling,
            gains,
            thinking,
            readings,
            places,
            prompt_bytes: 0,
            reported_bytes: 0,
        })
    }

    /// Checks what the response to `prompts` prompts of `bytes` together can take, `tokens` of which are reported, and sets
    /// how many choices are generated at the same time. `logprobs`: whether log-probabilities or readings are reported.
    pub(super) fn check_size(
        &mut self,
        prompts: usize,
        bytes: usize,
        tokens: usize,
        logprobs: bool,
    ) -> Result<(), ApiError> {
        let choices = prompts.saturating_mul(self.n as usize);
        if bytes.saturating_mul(self.n as usize) > CHOICES_TEXT_BYTES_MAX {
            let message = format!(
                "the prompts, once per choice, are larger than {CHOICES_TEXT_BYTES_MAX} bytes; ask for fewer choices"
            );
            return Err(ApiError::field("n", message));
        }
        let each = self.sampling.max_tokens.min(REPLY_ASKED_TOKENS_MAX).saturating_add(tokens);
        let all = choices.saturating_mul(each);
        let alternatives = self.sampling.top_logprobs;
        let too_many = if all > RESPONSE_TOKENS_MAX {
            format!("{choices} choices of {each} tokens are more than the limit of {RESPONSE_TOKENS_MAX} tokens")
        } else if logprobs && all.saturating_mul(alternatives + 1) > RESPONSE_LOGPROBS_MAX {
            format!(
                "{choices} choices of {each} tokens with {alternatives} alternatives are more than the limit of \
                 {RESPONSE_LOGPROBS_MAX} log-probabilities"
            )
        } else {
            self.places = Semaphore::new(choices_at_once(choices, bytes));
            let each = REPORTED_TOKEN_BYTES + alternatives * REPORTED_ALTERNATIVE_BYTES;
            self.reported_bytes = if logprobs { all.saturating_mul(each) } else { 0 };
            self.prompt_bytes = bytes;
            return Ok(());
        };
        Err(ApiError::field("max_tokens", too_many + "; ask for fewer choices, tokens or alternatives"))
    }

    /// Waits for the memory of the choices that are generated at the same time, and of the response unless it is streamed.
    pub(super) async fn memory(&self, shared: &Shared, request: WorkMemory) -> Result<WorkMemory, ApiError> {
        let memory = shared.memory.choices(request, self.places.available_permits(), self.prompt_bytes).await?;
        shared.memory.response(memory, if self.stream { 0 } else { self.reported_bytes }).await
    }

    /// Whether the response reports tokens.
    pub(super) fn reports_tokens(&self) -> bool {
        self.reported_bytes > 0
    }

    /// The model's request for choice number `index`.
    pub(super) fn request(&self, prompt: Prompt, index: u64) -> Request {
        let mut request =
            Request::new(prompt, self.sampling.clone(), RngStream::root(self.seed).child("choice", index));
        request.gains.clone_from(&self.gains);
        request.thinking.clone_from(&self.thinking);
        request
    }

    /// Sets how many alternatives to report with each token.
    ///
    /// # Errors
    /// If there are too many, or the model gives no log-probabilities.
    pub(super) fn set_top_logprobs(&mut self, param: &str, top: usize, shared: &Shared) -> Result<(), ApiError> {
        let info = shared.model.info();
        if !info.logprobs {
            let message = format!("model `{}` gives no log-probabilities; leave `{param}` out", info.name);
            return Err(ApiError::field(param, message));
        }
        if top > TOP_LOGPROBS_MAX {
            return Err(ApiError::field(param, format!("`{param}` must be at most {TOP_LOGPROBS_MAX}")));
        }
        self.sampling.top_logprobs = top;
        Ok(())
    }

    /// The fields of every response and every chunk.
    pub(super) fn envelope(&self, shared: &Shared, object: &str) -> Value {
        let kind = if object.starts_with("chat") { "chatcmpl" } else { "cmpl" };
        json!({
            "id": shared.response_id(kind),
            "object": object,
            "created": SystemClock.now().as_second(),
            "model": shared.name,
            "system_fingerprint": shared.model.info().digest,
            // As an i64, the type that requests use.
            "loom": { "seed": self.seed.cast_signed() },
        })
    }
}

/// The envelope with more fields.
#[derive(Serialize)]
pub(super) struct Enveloped<'a, T> {
    #[serde(flatten)]
    pub(super) envelope: &'a Value,
    #[serde(flatten)]
    pub(super) fields: T,
}

/// The fields of a response that is not streamed.
#[derive(Serialize)]
pub(super) struct Answered<C> {
    pub(super) choices: Vec<C>,
    pub(super) usage: Value,
}

/// Loom's own figures of tokens, in the field `loom`.
#[derive(Serialize)]
pub(super) struct Readings<L> {
    pub(super) tokens: L,
}

/// A list whose items are made one at a time, when they are written.
pub(super) struct Each<F>(pub(super) F);

impl<F, I> Serialize for Each<F>
where
    F: Fn() -> I,
    I: IntoIterator,
    I::Item: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

fn stops(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let stops = match fields.take::<Value>("stop")? {
        None => Vec::new(),
        Some(Value::String(stop)) => vec![stop],
        Some(list) => serde_json::from_value::<Vec<String>>(list).map_err(|error| {
            ApiError::field("stop", format!("`stop` must be a string or a list of strings: {error}"))
        })?,
    };
    if stops.len() > STOP_TEXTS_MAX || stops.iter().any(|stop| stop.len() > STOP_TEXT_BYTES_MAX) {
        let message = format!("`stop` may hold at most {STOP_TEXTS_MAX} strings of {STOP_TEXT_BYTES_MAX} bytes each");
        return Err(ApiError::field("stop", message));
    }
    Ok(stops)
}

/// The settings of thinking in a request: `chat_template_kwargs` as vLLM takes it, `reasoning_effort`, which templates read
/// as an argument, and `thinking_token_budget`.
///
/// # Errors
/// What the model's chat template cannot be told.
pub(super) fn thinking(fields: &mut Fields, shared: &Shared) -> Result<Thinking, ApiError> {
    let mut thinking = Thinking::default();
    let mut add = |name: &str, one: Thinking| {
        if one.is_default() {
            return Ok(());
        }
        thinking = thinking.with(&one);
        let checked = shared.model.with_thinking(&thinking);
        checked.map(drop).map_err(|error| ApiError::field(name, error.to_string()).code("unsupported_parameter"))
    };
    let template_arguments: Map<String, Value> = fields.take("chat_template_kwargs")?.unwrap_or_default();
    add("chat_template_kwargs", Thinking { template_arguments, ..Thinking::default() })?;
    let effort = fields.take::<String>("reasoning_effort")?;
    let template_arguments =
        effort.map(|effort| ("reasoning_effort".to_owned(), Value::from(effort))).into_iter().collect();
    add("reasoning_effort", Thinking { template_arguments, ..Thinking::default() })?;
    let tokens_max = fields.take("thinking_token_budget")?;
    add("thinking_token_budget", Thinking { tokens_max, ..Thinking::default() })?;
    Ok(thinking)
}

/// Adds fields to `base`.
pub(super) fn with_fields(mut base: Value, fields: Value) -> Value {
    if let (Value::Object(base), Value::Object(fields)) = (&mut base, fields) {
        base.extend(fields);
    }
    base
}

/// In OpenAI's format.
pub(super) const fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Length => "length",
        Finish::Refusal => "content_filter",
        _ => "stop",
    }
}

/// In OpenAI's format.
pub(super) fn usage(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.tokens_in,
        "completion_tokens": usage.tokens_out,
        "total_tokens": usage.tokens_in + usage.tokens_out,
        "prompt_tokens_details": { "cached_tokens": usage.tokens_cached },
    })
}

/// The usage of several choices of one prompt: the prompt counts once, and as cached only as far as it was cached for
/// all.
pub(super) fn prompt_usage(all: impl Iterator<Item = Usage>) -> Usage {
    all.reduce(|sum, one| Usage {
        tokens_in: sum.tokens_in.max(one.tokens_in),
        tokens_out: sum.tokens_out + one.tokens_out,
        tokens_cached: sum.tokens_cached.min(one.tokens_cached),
    })
    .unwrap_or_default()
}

/// The alternatives of a token by text; of equal texts only the most likely.
pub(super) fn alternatives(token: &TokenLogprob, shared: &Shared) -> Vec<(String, f32)> {
    let vocabulary = shared.model.vocabulary();
    let mut texts: Vec<(String, f32)> = Vec::with_capacity(token.top.len());
    for &(id, logprob) in &token.top {
        let text = super::text_of(id, vocabulary).unwrap_or_else(|| format!("token {id}"));
        if texts.iter().all(|(known, _)| *known != text) {
            texts.push((text, logprob));
        }
    }
    texts
}

/// The error of a request that needs token ids.
pub(super) fn no_vocabulary(shared: &Shared, what: &str) -> ApiError {
    let name = &shared.model.info().name;
    ApiError::new(
        StatusCode::NOT_IMPLEMENTED,
        format!("{what} needs a model with a known vocabulary, such as `bundled` or `local:DIR`; `{name}` has none"),
    )
}
