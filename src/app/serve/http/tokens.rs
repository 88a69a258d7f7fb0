//! `/tokenize`, `/detokenize` and `/tokenizer_info`, compatible with vLLM's server and lm-evaluation-harness.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::ser::{Error, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::budget::WorkMemory;
use super::chat::messages;
use super::common::{no_vocabulary, thinking};
use super::error::ApiError;
use super::fields::{Fields, ParsedBody};
use super::{Shared, run_blocking};
use crate::foundation::chat::{TokenId, Vocabulary};

type Answer = Result<Json<Value>, ApiError>;

/// The reply of `/tokenize`.
#[derive(Serialize)]
struct Tokenized<'a> {
    tokens: &'a [TokenId],
    count: usize,
    max_model_len: Option<usize>,
    token_strs: Option<TokenTexts<'a>>,
}

/// The texts of tokens, made as they are written.
struct TokenTexts<'a> {
    ids: &'a [TokenId],
    known: &'a dyn Vocabulary,
}

impl Serialize for TokenTexts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.ids.len()))?;
        for id in self.ids {
            list.serialize_element(&self.known.decode(&[*id]).map_err(S::Error::custom)?)?;
        }
        list.end()
    }
}

fn vocabulary(shared: &Shared) -> Result<&dyn Vocabulary, ApiError> {
    shared.model.vocabulary().ok_or_else(|| no_vocabulary(shared, "this endpoint"))
}

/// The request's fields; a model name is checked if given.
async fn of(body: Result<Bytes, BytesRejection>, shared: &Arc<Shared>) -> Result<(Fields, WorkMemory), ApiError> {
    let ParsedBody { mut fields, memory, .. } = Fields::read(shared, body).await?;
    if let Some(model) = fields.take::<String>("model")? {
        shared.check_name(&model)?;
    }
    Ok((fields, memory))
}

pub(super) async fn tokenize(
    State(shared): State<Arc<Shared>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let (fields, memory) = of(body, &shared).await?;
    let turn = shared.enter().await?;
    // The work does not end with the client; until then it keeps its memory and its place.
    run_blocking(&shared, move |shared| {
        let _held = (memory, turn);
        tokens(shared, fields)
    })
    .await
}

fn tokens(shared: &Shared, mut fields: Fields) -> Result<Response, ApiError> {
    let known = vocabulary(shared)?;
    let text: Option<String> = fields.take("prompt")?;
    let ids = match text {
        // As a prompt of `/v1/completions`, unless the request wants the text alone.
        Some(text) if fields.take("add_special_tokens")?.unwrap_or(true) => known.encode_text(&text)?,
        Some(text) => known.encode(&text)?,
        None if !fields.has("messages") => return Err(ApiError::field("prompt", "give a `prompt` or `messages`")),
        None => {
            // The chat template writes them.
            fields.take_neutral("add_special_tokens", &[json!(false)])?;
            let thinking = thinking(&mut fields, shared)?;
            let messages = messages(&mut fields)?;
            if thinking.is_default() {
                known.chat(&messages)?
            } else {
                let model = shared.model.with_thinking(&thinking)?;
                model.vocabulary().ok_or_else(|| no_vocabulary(shared, "this endpoint"))?.chat(&messages)?
            }
        }
    };
    let texts = fields.take("return_token_strs")?.unwrap_or(false);
    fields.finish("the request")?;
    let reply = Tokenized {
        tokens: &ids,
        count: ids.len(),
        max_model_len: shared.model.info().window_tokens,
        token_strs: texts.then_some(TokenTexts { ids: &ids, known }),
    };
    let reply = serde_json::to_vec(&reply)
        .map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], reply).into_response())
}

pub(super) async fn detokenize(State(shared): State<Arc<Shared>>, body: Result<Bytes, BytesRejection>) -> Answer {
    let (mut fields, memory) = of(body, &shared).await?;
    let turn = shared.enter().await?;
    run_blocking(&shared, move |shared| {
        let _held = (memory, turn);
        let ids: Vec<TokenId> = fields.require("tokens")?;
        fields.finish("the request")?;
        Ok(Json(json!({ "prompt": vocabulary(shared)?.decode(&ids)? })))
    })
    .await
}

pub(super) async fn info(State(shared): State<Arc<Shared>>) -> Answer {
    let known = vocabulary(&shared)?;
    let (special, leading) = (known.special(), known.encode_text("")?);
    Ok(Json(json!({
        "bos_token": special.bos,
        "eos_token": special.eos,
        "pad_token": special.pad,
        "unk_token": special.unk,
        "end_token_ids": special.ends,
        "add_bos_token": !leading.is_empty(),
        "add_eos_token": false,
        "vocab_size": shared.model.info().vocabulary,
        "model_max_length": shared.model.info().window_tokens,
        "chat_template": special.chat_template,
    })))
}
