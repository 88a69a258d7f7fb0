//! Moods: deterministic modes that say what a run may do.
