//! Scoring what was said. `docs/SCORES.md` defines every score.

pub mod measured;
