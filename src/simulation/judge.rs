//! Scores of transcripts. `docs/SCORES.md` defines every score.
//!
//! Three families: [`measured`] scores are computed from the text alone; [`likelihood`] scores compare the probability
//! of the persona's replies under different prompts, computed by the persona's own model; [`judged`] scores are ratings
//! by another model. [`scoring`] computes the scores that a configuration enables and stores them with the transcript.

mod conversation;
mod points;
pub mod scorers;
pub mod measured;
pub mod likelihood;
pub mod judged;
pub mod labels;
pub mod scoring;
mod info;

pub use info::info;
pub use scorers::ScoreInfo;
