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
/// Bytes counted per byte of a body: its text in the request, rendered, and in the tokenizer.
const WORK_PER_BYTE: usize = 8;

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
    /// If it holds too many values, nests too deeply, or is too large.
    pub(super) async fn work(&self, body: &[u8]) -> Result<WorkMemory, ApiError> {
        let values = check_json(body)?;
        let bytes = body.len().saturating_mul(WORK_PER_BYTE).saturating_add(values.saturating_mul(VALUE_BYTES));
        let most = u32::try_from(bytes.min(REQUEST_WORK_BYTES_MAX)).unwrap_or(u32::MAX);
        let closed = |_| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down");
        let permit = Arc::clone(&self.work).acquire_many_owned(most).await.map_err(closed)?;
        Ok(WorkMemory { _permit: permit })
    }
}

/// The number of values in a JSON text, at least, found without parsing it.
fn check_json(body: &[u8]) -> Result<usize, ApiError> {
    let (mut values, mut depth, mut inside, mut escaped) = (1usize, 0usize, false, false);
    for &byte in body {
        if inside {
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
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_depth_are_counted_outside_strings() {
        assert_eq!(check_json(br#"{"a": [1, 2, "x,[{\"],"], "b": {}}"#).unwrap(), 7);
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
        let body = format!("\"{}\"", "a".repeat(REQUEST_WORK_BYTES_MAX / WORK_PER_BYTE));
        let held = memory.work(body.as_bytes()).await.unwrap();
        let soon = std::time::Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, memory.work(b"{}")).await.is_err());
        drop(held);
        assert!(tokio::time::timeout(soon, memory.work(b"{}")).await.is_ok());
    }
}
