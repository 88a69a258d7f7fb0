//! Clock, named random streams, digests, canonical JSON, and the table of all limits.

mod canonical;
mod clock;
mod digest;
pub mod limits;
mod panics;
mod random;

pub use canonical::canonical_json;
pub use clock::{Clock, FixedClock, SystemClock};
pub use digest::Digest;
pub use panics::{caught, is_caught};
pub use random::RngStream;
