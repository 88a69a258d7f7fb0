//! Who may come in. A request is let in when there is a place for it and room for all that it may come to hold: its
//! state, the state before its reply, and its tokens. Until then it waits, in order of arrival; one that could never
//! fit is refused at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::foundation::base::limits::{PREFIX_BYTES_MAX, STATE_BYTES_MAX};
use crate::foundation::chat::{TokenId, TokenLogprob};

/// How much memory an engine may use beside the weights. What a caller keeps of a reply (its snapshots) is the
/// caller's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of the states and tokens of all requests at work.
    pub state_bytes: u64,
    /// Bytes of the states kept of openings that other prompts may share; 0 shares nothing. Results do not depend
    /// on it.
    pub prefix_bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { state_bytes: STATE_BYTES_MAX, prefix_bytes: PREFIX_BYTES_MAX }
    }
}

/// What one permit stands for, bytes.
const UNIT: usize = 4_096;

/// A request's own state and the one before its reply.
const STATES_PER_REQUEST: usize = 2;

/// Those that come together take at most the so-manieth part of places and room: to let them in, not everybody has to
/// have left.
const SHARE: usize = 2;

/// The door to an engine.
pub(super) struct Admission {
    places: Arc<Semaphore>,
    places_max: usize,
    /// In [`UNIT`]s.
    room: Arc<Semaphore>,
    room_bytes: usize,
    state_bytes: Box<dyn Fn(usize) -> usize + Send + Sync>,
}

/// Held as long as a request is at work.
pub(super) struct Admitted {
    _place: OwnedSemaphorePermit,
    _room: OwnedSemaphorePermit,
}

impl Admission {
    /// A door to `budget` with `places`, for an architecture whose state takes `state_bytes(tokens)`.
    pub(super) fn new(
        budget: Budget,
        places: usize,
        state_bytes: impl Fn(usize) -> usize + Send + Sync + 'static,
    ) -> Self {
        let most = (u32::MAX as usize).min(Semaphore::MAX_PERMITS);
        let units = usize::try_from(budget.state_bytes).unwrap_or(usize::MAX) / UNIT;
        let units = units.min(most);
        Self {
            places: Arc::new(Semaphore::new(places)),
            places_max: places,
            room: Arc::new(Semaphore::new(units)),
            room_bytes: units * UNIT,
            state_bytes: Box::new(state_bytes),
        }
    }

    /// Waits for places and for room for up to `wanted` requests at the same time, each of `tokens` tokens with `top`
    /// alternatives: as many as can come in together, one at least.
    ///
    /// # Errors
    /// In words, when there is not that much room even with nobody else at work.
    pub(super) async fn admit(&self, wanted: usize, tokens: usize, top: usize) -> Result<Vec<Admitted>, String> {
        let per_token = size_of::<TokenLogprob>() + top.saturating_mul(size_of::<(TokenId, f32)>());
        let state = (self.state_bytes)(tokens);
        let spoken = tokens.saturating_mul(per_token);
        let bytes = state.saturating_mul(STATES_PER_REQUEST).saturating_add(spoken);
        if bytes > self.room_bytes {
            return Err(format!(
                "{tokens} tokens, prompt and reply together, may come to {} ({STATES_PER_REQUEST} states of {} and {} \
                 for the tokens), and all requests together have {}; ask for a shorter reply, shorten the prompt, or \
                 give the engine more",
                mebibytes(bytes),
                mebibytes(state),
                mebibytes(spoken),
                mebibytes(self.room_bytes),
            ));
        }
        let gone = || "the engine has closed: this is a bug in it".to_owned();
        let units = bytes.div_ceil(UNIT).max(1);
        let share = (self.places_max / SHARE).min(self.room_bytes / UNIT / units / SHARE);
        let count = wanted.min(share).max(1);
        let many = |count: usize| u32::try_from(count).map_err(|error| error.to_string());
        // Together or not at all: two that hold a part each would wait for each other.
        let places = Arc::clone(&self.places).acquire_many_owned(many(count)?);
        let mut places = places.await.map_err(|_| gone())?;
        let room = Arc::clone(&self.room).acquire_many_owned(many(count * units)?);
        let mut room = room.await.map_err(|_| gone())?;
        let one = |_| Some(Admitted { _place: places.split(1)?, _room: room.split(units)? });
        (0..count).map(one).collect::<Option<_>>().ok_or_else(gone)
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

    fn door(bytes: u64) -> Admission {
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
    fn what_can_never_fit_is_refused_with_the_sums() {
        let door = door(1 << 20);
        let why = poll(pin!(door.admit(1, 1_000, 0))).unwrap().err().unwrap();
        assert!(why.starts_with("1000 tokens, prompt and reply together, may come to 2."), "{why}");
        assert!(why.contains("(2 states of 1.0 MiB") && why.contains("have 1.0 MiB; ask for a shorter reply"), "{why}");
    }

    #[test]
    fn those_who_wait_come_in_in_order_small_or_large() {
        let door = door(1 << 20);
        let first = poll(pin!(door.admit(1, 400, 0))).unwrap().unwrap();
        let mut large = pin!(door.admit(1, 300, 0));
        let mut small = pin!(door.admit(1, 1, 0));
        assert!(poll(large.as_mut()).is_none());
        // There is room for the small one; it does not push past.
        assert!(poll(small.as_mut()).is_none());
        drop(first);
        assert!(poll(large.as_mut()).is_some_and(|admitted| admitted.is_ok()));
        assert!(poll(small.as_mut()).is_some_and(|admitted| admitted.is_ok()));
    }

    #[test]
    fn those_who_come_together_take_a_share() {
        let door = door(1 << 20);
        let come = |wanted, tokens| poll(pin!(door.admit(wanted, tokens, 0))).unwrap().unwrap().len();
        assert_eq!([come(5, 1), come(100, 1)], [5, 32], "of 64 places");
        // Half of the room holds two of them, and what fills the room comes alone.
        assert_eq!([come(5, 100), come(5, 450)], [2, 1]);
    }
}
