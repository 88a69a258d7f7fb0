//! Loom: persona simulations on local models, watched token by token, governed and measured.
//!
//! The crate is a house of floors; a wing uses only wings on lower floors (`tests/it/floors.rs` checks it):
//!
//! | Floor | Wing | What lives there |
//! |---|---|---|
//! | 0 | `loom_kernels` | numeric kernels; knows no model |
//! | 1 | [`foundation`] | the words all parts share, configs, files, randomness |
//! | 2 | [`inference`], [`governance`] | running models; deciding what may happen |
//! | 3 | [`simulation`] | personas, rollouts, scores, reports |
//! | 4 | [`studies`] | what confidence is worth, sweeps over many runs, others' formats into ours |
//! | 5 | [`app`] | the program `loom` |
//!
//! Without the default feature `inference` only [`foundation`] and [`governance`] are built: a small library for
//! any Rust agent, without candle, tokio or network.

pub mod foundation;
pub mod governance;

#[cfg(feature = "inference")]
pub mod app;
#[cfg(feature = "inference")]
pub mod inference;
#[cfg(feature = "inference")]
pub mod simulation;
#[cfg(feature = "inference")]
pub mod studies;
