//! Scoring what was said. `docs/SCORES.md` defines every score.
//!
//! Three families: [`measured`] looks at the words alone, [`likelihood`] asks the persona's own model how likely its words
//! were under this prompt and that, [`judged`] asks another model. [`scoring`] takes what a configuration wants of them
//! and keeps it with the transcript.

mod meaning;
mod points;
pub mod measured;
pub mod likelihood;
pub mod judged;
pub mod scoring;

pub use meaning::meaning;
