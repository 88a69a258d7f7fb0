//! Scoring what was said.
