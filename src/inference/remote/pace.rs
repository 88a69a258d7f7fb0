//! When to send: the waits between retries, and the spacing that keeps within a provider's limits. Pure; time comes in.

use std::time::Duration;

use crate::foundation::base::Stream;
use crate::foundation::base::limits::REMOTE_WAIT_MAX;

/// How long to wait before try number `retry` (from 1): `first`, doubled each time, of which a draw takes away up to
/// half so that many callers do not come back at once; and never less than the provider asks for.
///
/// `None` when that would be longer than [`REMOTE_WAIT_MAX`].
pub(super) fn backoff(first: Duration, retry: u32, asked: Option<Duration>, stream: Stream) -> Option<Duration> {
    let full = first.saturating_mul(2u32.saturating_pow(retry.saturating_sub(1))).min(REMOTE_WAIT_MAX);
    let drawn = full.mul_f64(1.0 - 0.5 * stream.child("retry", u64::from(retry)).uniform(0));
    Some(asked.map_or(drawn, |asked| asked.max(drawn))).filter(|wait| *wait <= REMOTE_WAIT_MAX)
}

/// Spaces amounts evenly, so many per minute. There are no bursts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Meter {
    per_minute: f64,
    /// When what was booked so far is used up, since the meter's beginning.
    free_at: Duration,
}

impl Meter {
    pub(super) fn new(per_minute: u32) -> Self {
        Self { per_minute: f64::from(per_minute.max(1)), free_at: Duration::ZERO }
    }

    /// Books `amount` at the time `now`; the answer is how long to wait first.
    pub(super) fn book(&mut self, now: Duration, amount: u64) -> Duration {
        let begin = self.free_at.max(now);
        self.free_at = begin.saturating_add(self.lasts(amount));
        begin.saturating_sub(now)
    }

    /// What was booked as `booked` came to `real`.
    pub(super) fn settle(&mut self, booked: u64, real: u64) {
        if real >= booked {
            self.free_at = self.free_at.saturating_add(self.lasts(real - booked));
        } else {
            self.free_at = self.free_at.saturating_sub(self.lasts(booked - real));
        }
    }

    fn lasts(&self, amount: u64) -> Duration {
        Duration::try_from_secs_f64(amount as f64 * 60.0 / self.per_minute).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn waits_double_and_are_spread_by_the_named_stream_alone() {
        let stream = Stream::root(1);
        for retry in 1..6 {
            let full = SECOND * 2u32.pow(retry - 1);
            let wait = backoff(SECOND, retry, None, stream).unwrap();
            assert!(wait <= full && wait >= full / 2, "{retry}: {wait:?}");
            assert_eq!(backoff(SECOND, retry, None, stream), Some(wait));
        }
        assert_ne!(backoff(SECOND, 1, None, stream), backoff(SECOND, 1, None, Stream::root(2)));
    }

    #[test]
    fn the_provider_is_obeyed_up_to_a_limit() {
        assert_eq!(backoff(SECOND, 1, Some(30 * SECOND), Stream::root(0)), Some(30 * SECOND));
        assert!(backoff(60 * SECOND, 1, Some(SECOND), Stream::root(0)).unwrap() >= 30 * SECOND);
        assert_eq!(backoff(SECOND, 1, Some(REMOTE_WAIT_MAX + SECOND), Stream::root(0)), None);
        assert!(backoff(SECOND, 60, None, Stream::root(0)).is_some());
    }

    #[test]
    fn bookings_are_spaced_evenly_and_settled_after() {
        let mut meter = Meter::new(30);
        assert_eq!(meter.book(Duration::ZERO, 1), Duration::ZERO);
        assert_eq!(meter.book(Duration::ZERO, 1), 2 * SECOND);
        assert_eq!(meter.book(3 * SECOND, 1), SECOND);
        // A pause is not saved up.
        assert_eq!(meter.book(100 * SECOND, 1), Duration::ZERO);
        meter.settle(1, 11);
        assert_eq!(meter.book(100 * SECOND, 1), 22 * SECOND);
        meter.settle(1, 0);
        assert_eq!(meter.book(100 * SECOND, 1), 22 * SECOND);
    }
}
