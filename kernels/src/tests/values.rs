//! The reference against double precision.
