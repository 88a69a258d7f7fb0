//! Wall-clock time as an injected dependency, so that tests can use a fixed time.

use jiff::Timestamp;

/// A source of the current time. Pure cores hold none: they receive times in events.
pub trait Clock: Send + Sync {
    /// The current instant, UTC.
    fn now(&self) -> Timestamp;
}

/// The operating system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        // A clock beyond the representable times shows the nearest one.
        let system = std::time::SystemTime::now();
        let nearest = if system < std::time::SystemTime::UNIX_EPOCH { Timestamp::MIN } else { Timestamp::MAX };
        Timestamp::try_from(system).unwrap_or(nearest)
    }
}

/// A clock that always returns the same time: for tests and for byte-identical output.
#[derive(Debug, Clone, Copy)]
pub struct FixedClock(pub Timestamp);

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        self.0
    }
}
