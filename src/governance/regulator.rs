//! Events of a model at work → confidence, decisions, and gains on Δ.
