//! Clock, named random streams, digests, canonical JSON, and the table of all limits.

mod canonical;
mod clock;
mod digest;
pub mod limits;
mod random;

pub use canonical::canonical_json;
pub use clock::{Clock, FixedClock, SystemClock};
pub use digest::Digest;
pub use random::RngStream;
