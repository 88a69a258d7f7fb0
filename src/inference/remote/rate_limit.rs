//! Waits between retries, and spacing of requests within a provider's rate limits. Pure; the caller passes the time.

use std::time::Duration;

use crate::foundation::base::RngStream;
use crate::foundation::base::limits::REMOTE_WAIT_MAX;

/// The wait before retry number `retry` (from 1): `first`, doubled with each retry, of which a random draw removes up
/// to half, so that many callers do not retry at once; and never less than the wait requested by the provider.
///
/// `None` if that exceeds [`REMOTE_WAIT_MAX`].
pub(super) fn backoff(first: Duration, retry: u32, requested: Option<Duration>, stream: RngStream) -> Option<Duration> {
    let full = first.saturating_mul(2u32.saturating_pow(retry.saturating_sub(1))).min(REMOTE_WAIT_MAX);
    let drawn = full.mul_f64(1.0 - 0.5 * stream.child("retry", u64::from(retry)).uniform(0));
    Some(requested.map_or(drawn, |requested| requested.max(drawn))).filter(|wait| *wait <= REMOTE_WAIT_MAX)
}

/// Spaces amounts evenly, `per_minute` per minute, without bursts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RateLimiter {
    per_minute: f64,
    /// The time at which all bookings are used up, since the limiter was created.
    free_at: Duration,
}

impl RateLimiter {
    pub(super) fn new(per_minute: u32) -> Self {
        Self { per_minute: f64::from(per_minute.max(1)), free_at: Duration::ZERO }
    }

    /// Books `amount` at the time `now` and returns how long to wait before sending.
    pub(super) fn book(&mut self, now: Duration, amount: u64) -> Duration {
        let starts_at = self.free_at.max(now);
        self.free_at = starts_at.saturating_add(self.duration_of(amount));
        starts_at.saturating_sub(now)
    }

    /// Corrects a booking of `booked` to the real amount.
    pub(super) fn settle(&mut self, booked: u64, real: u64) {
        if real >= booked {
            self.free_at = self.free_at.saturating_add(self.duration_of(real - booked));
        } else {
            self.free_at = self.free_at.saturating_sub(self.duration_of(booked - real));
        }
    }

    fn duration_of(&self, amount: u64) -> Duration {
        Duration::try_from_secs_f64(amount as f64 * 60.0 / self.per_minute).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn waits_double_and_their_jitter_comes_from_the_stream_only() {
        let stream = RngStream::root(1);
        for retry in 1..6 {
            let full = SECOND * 2u32.pow(retry - 1);
            let wait = backoff(SECOND, retry, None, stream).unwrap();
            assert!(wait <= full && wait >= full / 2, "{retry}: {wait:?}");
            assert_eq!(backoff(SECOND, retry, None, stream), Some(wait));
        }
        assert_ne!(backoff(SECOND, 1, None, stream), backoff(SECOND, 1, None, RngStream::root(2)));
    }

    #[test]
    fn the_requested_wait_is_respected_up_to_the_limit() {
        assert_eq!(backoff(SECOND, 1, Some(30 * SECOND), RngStream::root(0)), Some(30 * SECOND));
        assert!(backoff(60 * SECOND, 1, Some(SECOND), RngStream::root(0)).unwrap() >= 30 * SECOND);
        assert_eq!(backoff(SECOND, 1, Some(REMOTE_WAIT_MAX + SECOND), RngStream::root(0)), None);
        assert!(backoff(SECOND, 60, None, RngStream::root(0)).is_some());
    }

    #[test]
    fn bookings_are_spaced_evenly_and_corrected_afterwards() {
        let mut limiter = RateLimiter::new(30);
        assert_eq!(limiter.book(Duration::ZERO, 1), Duration::ZERO);
        assert_eq!(limiter.book(Duration::ZERO, 1), 2 * SECOND);
        assert_eq!(limiter.book(3 * SECOND, 1), SECOND);
        // Unused time is not saved up.
        assert_eq!(limiter.book(100 * SECOND, 1), Duration::ZERO);
        limiter.settle(1, 11);
        assert_eq!(limiter.book(100 * SECOND, 1), 22 * SECOND);
        limiter.settle(1, 0);
        assert_eq!(limiter.book(100 * SECOND, 1), 22 * SECOND);
    }
}
