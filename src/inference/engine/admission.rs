//! Admission control. A request is admitted when there is a free slot and enough memory for everything it may need: its
//! state, the state before its reply, and its tokens. Until then it waits in FIFO order. A request that can never fit
//! is refused at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::foundation::base::limits::{PREFIX_BYTES_MAX, STATE_BYTES_MAX};
use crate::foundation::chat::{TokenId, TokenLogprob};

/// Memory that an engine may use in addition to the weights. Snapshots kept by callers are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Bytes for the states and tokens of all active requests.
    pub state_bytes: u64,
    /// Bytes for cached states of shared prompt prefixes; 0 disables sharing. Does not affect results.
    pub prefix_bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { state_bytes: STATE_BYTES_MAX, prefix_bytes: PREFIX_BYTES_MAX }
    }
}

/// Bytes per semaphore permit.
const UNIT: usize = 4_096;

/// A request's own state and the one before its reply.
const STATES_PER_REQUEST: usize = 2;

/// Requests submitted together take at most one part in this many of slots and memory, so that they do not have to wait
/// for all others to finish.
const GROUP_SHARE_DIVISOR: usize = 2;

/// Admission to an engine.
pub(super) struct Admission {
    slots: Arc<Semaphore>,
    slots_max: usize,
    /// In [`UNIT`]s.
    memory: Arc<Semaphore>,
    memory_bytes: usize,
    state_bytes: Box<dyn Fn(usize) -> usize + Send + Sync>,
}

/// Held while a request is active.
pub(super) struct AdmissionPermit {
    _slot: OwnedSemaphorePermit,
    _memory: OwnedSemaphorePermit,
}

impl Admission {
    /// Admission with `budget` and a number of slots, for an architecture whose state takes `state_bytes(tokens)`.
    pub(super) fn new(
        budget: Budget,
        slots: usize,
        state_bytes: impl Fn(usize) -> usize + Send + Sync + 'static,
    ) -> Self {
        let most = (u32::MAX as usize).min(Semaphore::MAX_PERMITS);
        let units = usize::try_from(budget.state_bytes).unwrap_or(usize::MAX) / UNIT;
        let units = units.min(most);
        Self {
            slots: Arc::new(Semaphore::new(slots)),
            slots_max: slots,
            memory: Arc::new(Semaphore::new(units)),
            memory_bytes: units * UNIT,
            state_bytes: Box::new(state_bytes),
        }
    }

    /// Waits for slots and memory for up to `wanted` requests at once, each of `tokens` tokens with `top` alternatives.
    /// Admits as many as possible together, at least one.
    ///
    /// # Errors
    /// A message, if the request would not fit even if nothing else were active.
    pub(super) async fn admit(&self, wanted: usize, tokens: usize, top: usize) -> Result<Vec<AdmissionPermit>, String> {
        let per_token = size_of::<TokenLogprob>() + top.saturating_mul(size_of::<(TokenId, f32)>());
        let state = (self.state_bytes)(tokens);
        let token_bytes = tokens.saturating_mul(per_token);
        let bytes = state.saturating_mul(STATES_PER_REQUEST).saturating_add(token_bytes);
        if bytes > self.memory_bytes {
            return Err(format!(
                "{tokens} tokens (prompt and reply) may take up to {} ({STATES_PER_REQUEST} states of {} and {} for the \
                 tokens), but the budget for all requests is {}; ask for a shorter reply, shorten the prompt, or \
                 raise the budget",
                mebibytes(bytes),
                mebibytes(state),
                mebibytes(token_bytes),
                mebibytes(self.memory_bytes),
            ));
        }
        let closed = || "the engine has closed; this is a bug, please report it".to_owned();
        let units = bytes.div_ceil(UNIT).max(1);
        let share = (self.slots_max / GROUP_SHARE_DIVISOR).min(self.memory_bytes / UNIT / units / GROUP_SHARE_DIVISOR);
        let count = wanted.min(share).max(1);
        let many = |count: usize| u32::try_from(count).map_err(|error| error.to_string());
        // All or nothing: two groups with a part each would deadlock.
        let slots = Arc::clone(&self.slots).acquire_many_owned(many(count)?);
        let mut slots = slots.await.map_err(|_| closed())?;
        let memory = Arc::clone(&self.memory).acquire_many_owned(many(count * units)?);
        let mut memory = memory.await.map_err(|_| closed())?;
        let one = |_| Some(AdmissionPermit { _slot: slots.split(1)?, _memory: memory.split(units)? });
        (0..count).map(one).collect::<Option<_>>().ok_or_else(closed)
    }
}

fn mebibytes(bytes: usize) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn admission(bytes: u64) -> Admission {
        let budget = Budget { state_bytes: bytes, ..Budget::default() };
        Admission::new(budget, 64, |tokens| tokens * 1_000)
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_request_that_can_never_fit_is_refused_with_the_sizes() {
        let admission = admission(1 << 20);
        let why = poll(pin!(admission.admit(1, 1_000, 0))).unwrap().err().unwrap();
        assert!(why.starts_with("1000 tokens (prompt and reply) may take up to 2."), "{why}");
        assert!(why.contains("(2 states of 1.0 MiB") && why.contains("is 1.0 MiB; ask for a shorter reply"), "{why}");
    }

    #[test]
    fn waiting_requests_are_admitted_in_order_whatever_their_size() {
        let admission = admission(1 << 20);
        let first = poll(pin!(admission.admit(1, 400, 0))).unwrap().unwrap();
        let mut large = pin!(admission.admit(1, 300, 0));
        let mut small = pin!(admission.admit(1, 1, 0));
        assert!(poll(large.as_mut()).is_none());
        // The small request would fit, but it does not overtake.
        assert!(poll(small.as_mut()).is_none());
        drop(first);
        assert!(poll(large.as_mut()).is_some_and(|admitted| admitted.is_ok()));
        assert!(poll(small.as_mut()).is_some_and(|admitted| admitted.is_ok()));
    }

    #[test]
    fn a_group_takes_only_its_share() {
        let admission = admission(1 << 20);
        let come = |wanted, tokens| poll(pin!(admission.admit(wanted, tokens, 0))).unwrap().unwrap().len();
        assert_eq!([come(5, 1), come(100, 1)], [5, 32], "of 64 places");
        // Half of the memory holds two of them; one that needs all of it is admitted alone.
        assert_eq!([come(5, 100), come(5, 450)], [2, 1]);
    }
}
