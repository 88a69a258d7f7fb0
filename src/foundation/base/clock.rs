//! Wall-clock time as a dependency, so that pure code can be given a time and tests a fixed one.

use jiff::Timestamp;

/// Something that knows the time. Pure cores never hold one: time comes to them in events.
pub trait Clock: Send + Sync {
    /// The current instant, UTC.
    fn now(&self) -> Timestamp;
}

/// The operating system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that stands still: for tests and for byte-identical output.
#[derive(Debug, Clone, Copy)]
pub struct FixedClock(pub Timestamp);

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        self.0
    }
}
