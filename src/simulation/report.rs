//! Reports on finished runs.
