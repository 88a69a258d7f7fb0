//! Memory for requests: what their bodies take while they are sent, what parsing, rendering and tokenising them takes, and
//! what the log-probabilities of their responses take. Each has a limit for all requests together (`docs/SERVE.md`).

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::ApiError;
use crate::foundation::base::limits::{
    BODIES_BYTES_MAX, BODY_FREE_BYTES_MAX, CHOICES_AT_ONCE_MAX, CHOICES_WORK_BYTES_MAX, JSON_DEPTH_MAX,
    JSON_VALUES_MAX, REQUEST_WORK_BYTES_MAX, RESPONSES_BYTES_MAX, SMALL_REQUEST_WORK_BYTES_MAX,
    SMALL_REQUESTS_WORK_BYTES_MAX, SMALL_RESPONSE_BYTES_MAX, SMALL_RESPONSES_BYTES_MAX,
};

/// Bytes counted per item of a JSON list.
const ITEM_BYTES: usize = 128;
/// Bytes counted per field of a JSON object: its name, its value, and what is made of them. Twenty thousand messages of two
/// fields take 950 bytes each.
const FIELD_BYTES: usize = 384;
/// Bytes counted per byte of text: in the request, as the model's messages, rendered, as token ids and in the response. The
/// tokenizer reads a piece at a time and is not counted.
const WORK_PER_TEXT_BYTE: usize = 24;
/// Bytes counted per byte of a prompt for each further choice that is generated at the same time.
const CHOICE_PER_TEXT_BYTE: usize = 8;
/// A response up to this size is not counted while the client reads it, bytes.
const BODY_PIECE_BYTES: usize = 64 << 10;

/// The memory for all requests.
pub(super) struct RequestMemory {
    bodies: Arc<Semaphore>,
    work: Arc<Semaphore>,
    /// For small requests: the semaphores are fair, and one that is small would wait behind those that are large.
    small_work: Arc<Semaphore>,
    choices: Arc<Semaphore>,
    responses: Arc<Semaphore>,
    small_responses: Arc<Semaphore>,
}

impl Default for RequestMemory {
    fn default() -> Self {
        Self {
            bodies: Arc::new(Semaphore::new(BODIES_BYTES_MAX)),
            work: Arc::new(Semaphore::new(REQUEST_WORK_BYTES_MAX)),
            small_work: Arc::new(Semaphore::new(SMALL_REQUESTS_WORK_BYTES_MAX)),
            choices: Arc::new(Semaphore::new(CHOICES_WORK_BYTES_MAX)),
            responses: Arc::new(Semaphore::new(RESPONSES_BYTES_MAX)),
            small_responses: Arc::new(Semaphore::new(SMALL_RESPONSES_BYTES_MAX)),
        }
    }
}

/// What one request's body takes; given back when dropped.
#[derive(Clone, Default)]
pub(super) struct BodyMemory(Arc<Mutex<(usize, Option<OwnedSemaphorePermit>)>>);

/// What parsing and tokenising a request and its response take; given back when dropped.
pub(super) struct WorkMemory {
    _request: OwnedSemaphorePermit,
    _choices: Option<OwnedSemaphorePermit>,
    response: Option<OwnedSemaphorePermit>,
}

impl WorkMemory {
    /// `value` as the response's JSON. Of the memory only what the JSON takes is kept, until the client has read it.
    pub(super) fn respond(self, value: &impl Serialize) -> Result<Response, ApiError> {
        let json = serde_json::to_vec(value);
        let json = json.map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        let (length, json) = (json.len(), Bytes::from(json));
        let held = self.response.and_then(|mut held| held.split(length.min(held.num_permits())));
        let body = if length <= BODY_PIECE_BYTES {
            Body::from(json)
        } else {
            Body::from_stream(stream::unfold((json, held), |(mut rest, held)| async move {
                let piece = rest.split_to(rest.len().min(BODY_PIECE_BYTES));
                (!piece.is_empty()).then_some((Ok::<_, std::convert::Infallible>(piece), (rest, held)))
            }))
        };
        let headers =
            [(CONTENT_TYPE, HeaderValue::from_static("application/json")), (CONTENT_LENGTH, HeaderValue::from(length))];
        Ok((headers, body).into_response())
    }
}

/// How many of `choices` choices, each with a prompt of `bytes` bytes, are generated at the same time.
pub(super) fn choices_at_once(choices: usize, bytes: usize) -> usize {
    let fit = CHOICES_WORK_BYTES_MAX / bytes.saturating_mul(CHOICE_PER_TEXT_BYTE).max(1);
    choices.min(CHOICES_AT_ONCE_MAX).min(fit).max(1)
}

impl RequestMemory {
    /// Counts `bytes` more of a body. Small bodies are free; others are refused if all bodies together are too large.
    pub(super) fn receive(&self, body: &BodyMemory, bytes: usize) -> bool {
        let mut held = body.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.0 = held.0.saturating_add(bytes);
        if held.0 <= BODY_FREE_BYTES_MAX {
            return true;
        }
        let have = held.1.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let Ok(missing) = u32::try_from(held.0.saturating_sub(have)) else { return false };
        match Arc::clone(&self.bodies).try_acquire_many_owned(missing) {
            Ok(more) => {
                match &mut held.1 {
                    Some(permit) => permit.merge(more),
                    none => *none = Some(more),
                }
                true
            }
            Err(_) => false,
        }
    }

    /// Waits for the memory to parse, render and tokenise a body of this size.
    ///
    /// # Errors
    /// If it needs more memory than there is for all requests.
    pub(super) async fn work(&self, size: JsonSize) -> Result<WorkMemory, ApiError> {
        let values = size.items.saturating_mul(ITEM_BYTES).saturating_add(size.fields.saturating_mul(FIELD_BYTES));
        let bytes = size.text.saturating_mul(WORK_PER_TEXT_BYTE).saturating_add(values);
        let Some(permits) = u32::try_from(bytes).ok().filter(|_| bytes <= REQUEST_WORK_BYTES_MAX) else {
            let message = format!(
                "the request is too large: parsing it takes {bytes} bytes, {WORK_PER_TEXT_BYTE} for a byte of text, {ITEM_BYTES} \
                 for an item of a list and {FIELD_BYTES} for a field; the limit is {REQUEST_WORK_BYTES_MAX}"
            );
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        };
        let memory = if bytes <= SMALL_REQUEST_WORK_BYTES_MAX { &self.small_work } else { &self.work };
        let request = acquire(memory, permits).await?;
        Ok(WorkMemory { _request: request, _choices: None, response: None })
    }

    /// Waits for the memory of a request whose prompt of `bytes` bytes is continued `choices` times at the same time.
    pub(super) async fn choices(
        &self,
        request: WorkMemory,
        choices: usize,
        bytes: usize,
    ) -> Result<WorkMemory, ApiError> {
        let more = bytes.saturating_mul(CHOICE_PER_TEXT_BYTE).saturating_mul(choices.saturating_sub(1));
        let permits = u32::try_from(more.min(CHOICES_WORK_BYTES_MAX)).unwrap_or(u32::MAX);
        Ok(WorkMemory { _choices: Some(acquire(&self.choices, permits).await?), ..request })
    }

    /// Waits for the memory of a response whose log-probabilities take at most `bytes` bytes.
    pub(super) async fn response(&self, request: WorkMemory, bytes: usize) -> Result<WorkMemory, ApiError> {
        let bytes = bytes.min(RESPONSES_BYTES_MAX);
        let memory = if bytes <= SMALL_RESPONSE_BYTES_MAX { &self.small_responses } else { &self.responses };
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        Ok(WorkMemory { response: Some(acquire(memory, permits).await?), ..request })
    }
}

async fn acquire(memory: &Arc<Semaphore>, permits: u32) -> Result<OwnedSemaphorePermit, ApiError> {
    let closed = |_| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down");
    Arc::clone(memory).acquire_many_owned(permits).await.map_err(closed)
}

/// What a JSON text holds, at least, found without parsing it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct JsonSize {
    /// Items of lists.
    items: usize,
    /// Fields of objects.
    fields: usize,
    /// Bytes of strings.
    text: usize,
}

impl JsonSize {
    /// Counts `body`.
    ///
    /// # Errors
    /// If it holds too many values or nests too deeply.
    pub(super) fn of(body: &[u8]) -> Result<Self, ApiError> {
        let mut size = Self::default();
        // One bit per open list or object, the innermost lowest.
        let (mut objects, mut depth, mut inside, mut escaped) = (0u64, 0usize, false, false);
        for &byte in body {
            if inside {
                size.text += 1;
                match byte {
                    _ if escaped => escaped = false,
                    b'\\' => escaped = true,
                    b'"' => inside = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => inside = true,
                b'[' | b'{' => {
                    depth += 1;
                    objects = objects << 1 | u64::from(byte == b'{');
                    size.count(objects);
                }
                b']' | b'}' => {
                    depth = depth.saturating_sub(1);
                    objects >>= 1;
                }
                b',' => size.count(objects),
                _ => {}
            }
            if depth > JSON_DEPTH_MAX || size.items + size.fields > JSON_VALUES_MAX {
                let message =
                    format!("the body has more than {JSON_VALUES_MAX} values or nests deeper than {JSON_DEPTH_MAX}");
                return Err(ApiError::new(StatusCode::BAD_REQUEST, message));
            }
        }
        Ok(size)
    }

    fn count(&mut self, objects: u64) {
        if objects & 1 == 1 {
            self.fields += 1;
        } else {
            self.items += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_depth_are_counted_outside_strings() {
        let size = JsonSize::of(br#"{"a": [1, 2, "x,[{\"],"], "b": {}, "c": [{"d": 1}, 2]}"#).unwrap();
        assert_eq!(size, JsonSize { items: 5, fields: 5, text: 17 });
        assert!(JsonSize::of("[".repeat(JSON_DEPTH_MAX + 1).as_bytes()).is_err());
        assert!(JsonSize::of(format!("\"{}\"", "[,".repeat(JSON_VALUES_MAX)).as_bytes()).is_ok());
        assert!(JsonSize::of(format!("[{}1]", "1,".repeat(JSON_VALUES_MAX)).as_bytes()).is_err());
    }

    #[test]
    fn fewer_choices_of_a_long_prompt_are_generated_at_once() {
        assert_eq!(choices_at_once(3, 100), 3);
        assert_eq!(choices_at_once(256, 100), CHOICES_AT_ONCE_MAX);
        assert_eq!(choices_at_once(256, CHOICES_WORK_BYTES_MAX / CHOICE_PER_TEXT_BYTE / 2), 2);
        assert_eq!(choices_at_once(256, usize::MAX), 1);
        assert_eq!(choices_at_once(256, 0), CHOICES_AT_ONCE_MAX);
    }

    #[tokio::test]
    async fn choices_wait_for_memory_and_a_single_one_does_not() {
        let memory = RequestMemory::default();
        let work = async || memory.work(JsonSize::default()).await.unwrap();
        let soon = std::time::Duration::from_millis(20);
        let most = CHOICES_WORK_BYTES_MAX / CHOICE_PER_TEXT_BYTE;
        let held = memory.choices(work().await, 2, most).await.unwrap();
        let other = work().await;
        assert!(tokio::time::timeout(soon, memory.choices(other, 2, 1)).await.is_err());
        assert!(memory.choices(work().await, 1, most).await.is_ok());
        drop(held);
        assert!(memory.choices(work().await, 2, most).await.is_ok());
    }

    #[tokio::test]
    async fn responses_hold_their_memory_until_they_are_read() {
        let memory = RequestMemory::default();
        let work = async || memory.work(JsonSize::default()).await.unwrap();
        let large = SMALL_RESPONSE_BYTES_MAX + 1;
        let soon = std::time::Duration::from_millis(20);
        let held = memory.response(work().await, RESPONSES_BYTES_MAX).await.unwrap();
        assert!(tokio::time::timeout(soon, memory.response(work().await, large)).await.is_err());
        assert!(memory.response(work().await, large - 1).await.is_ok(), "a small one does not wait");

        // Once it is written, only the text of the response is held, and no longer than until it is read.
        let text = "x".repeat(10 * BODY_PIECE_BYTES);
        let response = held.respond(&text).unwrap();
        assert_eq!(response.headers()[CONTENT_LENGTH], (text.len() + 2).to_string().as_str());
        assert_eq!(memory.responses.available_permits(), RESPONSES_BYTES_MAX - text.len() - 2);
        let read = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert_eq!(read, format!("\"{text}\""));
        assert_eq!(memory.responses.available_permits(), RESPONSES_BYTES_MAX);
    }

    #[test]
    fn bodies_have_one_limit_together() {
        let memory = RequestMemory::default();
        let (one, other, small) = (BodyMemory::default(), BodyMemory::default(), BodyMemory::default());
        assert!(memory.receive(&one, BODIES_BYTES_MAX - 1));
        assert!(!memory.receive(&other, BODY_FREE_BYTES_MAX + 1));
        assert!(memory.receive(&small, BODY_FREE_BYTES_MAX));
        drop(one);
        assert!(memory.receive(&other, BODY_FREE_BYTES_MAX));
    }

    #[tokio::test]
    async fn work_waits_for_memory() {
        let memory = RequestMemory::default();
        let text = |bytes| JsonSize { text: bytes, ..JsonSize::default() };
        let most = REQUEST_WORK_BYTES_MAX / WORK_PER_TEXT_BYTE;
        assert!(memory.work(text(most + 1)).await.is_err());
        let held = memory.work(text(most)).await.unwrap();
        let soon = std::time::Duration::from_millis(20);
        let large = text(SMALL_REQUEST_WORK_BYTES_MAX / WORK_PER_TEXT_BYTE + 1);
        assert!(tokio::time::timeout(soon, memory.work(large)).await.is_err());
        assert!(tokio::time::timeout(soon, memory.work(text(100))).await.is_ok(), "a small one does not wait");
        drop(held);
        assert!(tokio::time::timeout(soon, memory.work(large)).await.is_ok());
    }
}
