//! What chat and completion requests have in common, and the fields of every answer.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::error::ApiError;
use super::fields::Fields;
use super::{Gains, Shared};
use crate::foundation::base::limits::{CHOICES_MAX, STOP_TEXT_BYTES_MAX, STOP_TEXTS_MAX, TOP_LOGPROBS_MAX};
use crate::foundation::base::{Clock, Stream, SystemClock};
use crate::foundation::chat::{DeltaGains, Finish, Prompt, Request, Sampling, TokenLogprob, Usage};

/// A request, as far as the two kinds agree.
pub(super) struct Asked {
    /// How many answers to each prompt.
    pub(super) n: u64,
    pub(super) stream: bool,
    /// A stream ends with the tokens that were used.
    pub(super) usage: bool,
    pub(super) seed: u64,
    pub(super) sampling: Sampling,
    pub(super) gains: Option<DeltaGains>,
    /// Every choice tells what the model thought of its tokens.
    pub(super) readings: bool,
}

impl Asked {
    /// Takes the common fields. `max_tokens` and the log-probabilities are each kind's own.
    pub(super) fn of(fields: &mut Fields, shared: &Shared) -> Result<Self, ApiError> {
        let model: String = fields.need("model")?;
        shared.check_name(&model)?;
        let info = shared.model.info();
        let own = info.sampling.clone().unwrap_or_default();
        let sampling = Sampling {
            temperature: fields.take("temperature")?.unwrap_or(own.temperature),
            top_p: fields.take("top_p")?.unwrap_or(own.top_p),
            top_k: fields.take("top_k")?.or(own.top_k),
            min_p: fields.take("min_p")?.unwrap_or(own.min_p),
            repetition_penalty: fields.take("repetition_penalty")?.unwrap_or(own.repetition_penalty),
            stop: stops(fields)?,
            ..own
        };
        let n = fields.take("n")?.unwrap_or(1);
        if !(1..=CHOICES_MAX as u64).contains(&n) {
            return Err(ApiError::field("n", format!("`n` must be from 1 to {CHOICES_MAX}")));
        }
        let stream = fields.take("stream")?.unwrap_or(false);
        let usage = match fields.take("stream_options")? {
            None => false,
            Some(options) => {
                let mut options = Fields::new(options);
                let usage = options.take("include_usage")?.unwrap_or(false);
                options.done("`stream_options`")?;
                usage
            }
        };
        let seed = match fields.take::<i64>("seed")? {
            Some(seed) => seed.cast_unsigned(),
            None => shared.draw(),
        };
        let (gains, readings) = match fields.take("loom")? {
            None => (None, false),
            Some(own) => {
                let mut own = Fields::new(own);
                let gains = own.take::<Gains>("delta")?.map(|gains| gains.on(info)).transpose();
                let gains = gains.map_err(|why| ApiError::field("loom.delta", why))?;
                let readings = own.take("readings")?.unwrap_or(false);
                own.done("`loom`")?;
                (gains, readings)
            }
        };
        for name in ["frequency_penalty", "presence_penalty"] {
            fields.only(name, &[json!(0), json!(0.0)])?;
        }
        fields.only("logit_bias", &[])?;
        fields.notes(&["user", "metadata", "safety_identifier", "prompt_cache_key"]);
        Ok(Self { n, stream, usage, seed, sampling, gains, readings })
    }

    /// The model's request for choice number `index`.
    pub(super) fn request(&self, prompt: Prompt, index: u64) -> Request {
        let mut request = Request::new(prompt, self.sampling.clone(), Stream::root(self.seed).child("choice", index));
        request.gains.clone_from(&self.gains);
        request
    }

    /// Alternatives to report with each token.
    ///
    /// # Errors
    /// When there are too many, or the model gives none at all.
    pub(super) fn report(&mut self, param: &str, top: usize, shared: &Shared) -> Result<(), ApiError> {
        let info = shared.model.info();
        if !info.logprobs {
            let message = format!("model `{}` gives no log-probabilities; leave `{param}` out", info.name);
            return Err(ApiError::field(param, message));
        }
        if top > TOP_LOGPROBS_MAX {
            return Err(ApiError::field(param, format!("`{param}` may ask for at most {TOP_LOGPROBS_MAX}")));
        }
        self.sampling.top_logprobs = top;
        Ok(())
    }

    /// The fields that every answer and every chunk of one has.
    pub(super) fn envelope(&self, shared: &Shared, object: &str) -> Value {
        let kind = if object.starts_with("chat") { "chatcmpl" } else { "cmpl" };
        json!({
            "id": shared.answer_id(kind),
            "object": object,
            "created": SystemClock.now().as_second(),
            "model": shared.name,
            "system_fingerprint": shared.model.info().digest,
            "loom": { "seed": self.seed },
        })
    }
}

fn stops(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let stops = match fields.take::<Value>("stop")? {
        None => Vec::new(),
        Some(Value::String(stop)) => vec![stop],
        Some(list) => serde_json::from_value::<Vec<String>>(list)
            .map_err(|error| ApiError::field("stop", format!("`stop` is a text or a list of texts: {error}")))?,
    };
    if stops.len() > STOP_TEXTS_MAX || stops.iter().any(|stop| stop.len() > STOP_TEXT_BYTES_MAX) {
        let message = format!("`stop` may hold at most {STOP_TEXTS_MAX} texts of {STOP_TEXT_BYTES_MAX} bytes each");
        return Err(ApiError::field("stop", message));
    }
    Ok(stops)
}

/// `base` with further fields.
pub(super) fn with(mut base: Value, fields: Value) -> Value {
    if let (Value::Object(base), Value::Object(fields)) = (&mut base, fields) {
        base.extend(fields);
    }
    base
}

/// In OpenAI's words.
pub(super) const fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Length => "length",
        Finish::Refusal => "content_filter",
        _ => "stop",
    }
}

/// In OpenAI's words.
pub(super) fn usage(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.tokens_in,
        "completion_tokens": usage.tokens_out,
        "total_tokens": usage.tokens_in + usage.tokens_out,
        "prompt_tokens_details": { "cached_tokens": usage.tokens_cached },
    })
}

/// What several answers to one prompt used: the prompt once, and what was not read even once.
pub(super) fn of_one_prompt(all: impl Iterator<Item = Usage>) -> Usage {
    all.reduce(|sum, one| Usage {
        tokens_in: sum.tokens_in.max(one.tokens_in),
        tokens_out: sum.tokens_out + one.tokens_out,
        tokens_cached: sum.tokens_cached.min(one.tokens_cached),
    })
    .unwrap_or_default()
}

/// The entries of a top list by their texts, the likeliest of those that are written alike, and the token itself.
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

/// A model without a vocabulary cannot do what only ids can.
pub(super) fn no_vocabulary(shared: &Shared, what: &str) -> ApiError {
    let name = &shared.model.info().name;
    ApiError::new(
        StatusCode::NOT_IMPLEMENTED,
        format!(
            "{what} needs a model whose tokens are known here, such as `bundled` or `local:DIR`; `{name}` tells none"
        ),
    )
}
