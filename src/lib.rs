//! Loom runs persona simulations on local models, monitors them token by token, and measures whether the persona held.
//!
//! The crate is layered. A module imports only modules of lower layers; `tests/it/layers.rs` checks it:
//!
//! | Layer | Module | Contents |
//! |---|---|---|
//! | 0 | `loom_kernels` | numeric kernels on slices |
//! | 1 | [`foundation`] | types shared by all layers, configuration, storage, random streams |
//! | 2 | [`inference`], [`governance`] | model execution; regulator, statecharts, moods, memory |
//! | 3 | [`simulation`] | personas, rollouts, scores, reports |
//! | 4 | [`studies`] | confidence benchmark, Δ studies, sweeps, import and export |
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
