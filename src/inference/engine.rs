//! The local engine: weights, tokenizers, chat templates, architectures, states, batching, Δ gains.
