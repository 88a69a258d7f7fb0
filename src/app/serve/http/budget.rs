//! Memory for requests: what their bodies take while they are sent, and what parsing, rendering and tokenising them takes.
//! Both have a limit for all requests together (`docs/SERVE.md`).

use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::ApiError;
use crate::foundation::base::limits::{
    BODIES_BYTES_MAX, BODY_FREE_BYTES_MAX, JSON_DEPTH_MAX, JSON_VALUES_MAX, REQUEST_WORK_BYTES_MAX,
};

/// Bytes counted per JSON value: the value itself, and its place in a list or an object.
const VALUE_BYTES: usize = 96;
/// Bytes counted per byte of text: in the request, rendered, and in the tokenizer, which keeps two offsets per byte and some
/// hundred bytes per token. Measured by `scripts/attack.sh`.
const WORK_PER_TEXT_BYTE: usize = 224;

/// The memory for all requests.
pub(super) struct RequestMemory {
    bodies: Arc<Semaphore>,
    work: Arc<Semaphore>,
}

impl Default for RequestMemory {
    fn default() -> Self {
        Self {
            bodies: Arc::new(Semaphore::new(BODIES_BYTES_MAX)),
            work: Arc::new(Semaphore::new(REQUEST_WORK_BYTES_MAX)),
        }
    }
}

/// What one request's body takes; given back when dropped.
#[derive(Clone, Default)]
pub(super) struct BodyMemory(Arc<Mutex<(usize, Option<OwnedSemaphorePermit>)>>);

/// What parsing and tokenising a request takes; given back when dropped.
pub(super) struct WorkMemory {
    _permit: OwnedSemaphorePermit,
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

    /// Waits for the memory to parse, render and tokenise `body`.
    ///
    /// # Errors
    /// If it holds too many values, nests too deeply, or needs more memory than there is for all requests.
    pub(super) async fn work(&self, body: &[u8]) -> Result<WorkMemory, ApiError> {
        let (values, text) = check_json(body)?;
        let bytes = text.saturating_mul(WORK_PER_TEXT_BYTE).saturating_add(values.saturating_mul(VALUE_BYTES));
        let Some(bytes) = u32::try_from(bytes).ok().filter(|bytes| *bytes as usize <= REQUEST_WORK_BYTES_MAX) else {
            let most = REQUEST_WORK_BYTES_MAX / WORK_PER_TEXT_BYTE;
            let message = format!("the request is too large: its texts may have about {most} bytes together");
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        };
        let closed = |_| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down");
        let permit = Arc::clone(&self.work).acquire_many_owned(bytes).await.map_err(closed)?;
        Ok(WorkMemory { _permit: permit })
    }
}

/// The numbers of values and of bytes of text in a JSON text, at least, found without parsing it.
fn check_json(body: &[u8]) -> Result<(usize, usize), ApiError> {
    let (mut values, mut depth, mut inside, mut escaped, mut text) = (1usize, 0usize, false, false, 0usize);
    for &byte in body {
        if inside {
            text += 1;
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
                values += 1;
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
        if depth > JSON_DEPTH_MAX || values > JSON_VALUES_MAX {
            let message =
                format!("the body has more than {JSON_VALUES_MAX} values or nests deeper than {JSON_DEPTH_MAX}");
            return Err(ApiError::new(StatusCode::BAD_REQUEST, message));
        }
    }
    Ok((values, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_depth_are_counted_outside_strings() {
        assert_eq!(check_json(br#"{"a": [1, 2, "x,[{\"],"], "b": {}}"#).unwrap(), (7, 13));
        assert!(check_json("[".repeat(JSON_DEPTH_MAX + 1).as_bytes()).is_err());
        assert!(check_json(format!("\"{}\"", "[,".repeat(JSON_VALUES_MAX)).as_bytes()).is_ok());
        assert!(check_json(format!("[{}1]", "1,".repeat(JSON_VALUES_MAX)).as_bytes()).is_err());
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
        let body = format!("\"{}\"", "a".repeat(REQUEST_WORK_BYTES_MAX / WORK_PER_TEXT_BYTE - 2));
        assert!(memory.work(format!("[{body}{body}]").as_bytes()).await.is_err());
        let held = memory.work(body.as_bytes()).await.unwrap();
        let soon = std::time::Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, memory.work(b"\"a short text\"")).await.is_err());
        drop(held);
        assert!(tokio::time::timeout(soon, memory.work(b"\"a short text\"")).await.is_ok());
    }
}
