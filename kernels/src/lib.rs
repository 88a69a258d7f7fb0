//! Numeric kernels of Loom on plain `f32` slices, independent of any model.
//!
//! # The contract
//!
//! **Bit-exact.** The order in which an output element is accumulated depends on the inner dimension
//! alone: one row or many, any batch, any number of threads give identical bits. Every kernel is written once, over
//! sixteen lanes, in operations that IEEE 754 defines to the bit (exp, ln, softplus and `SiLU` are built from them), and
//! compiled for each instruction set: the portable reference, NEON, AVX2 + FMA and AVX-512 give identical bits too. NaN
//! stays NaN; its payload is not defined.
//!
//! **Buffers and errors.** Buffers are row-major and belong to the caller; functions allocate only if their documentation
//! says so. Wrong dims panic like an index out of bounds: they are a bug of the caller. Large calls run in rayon's current
//! pool, small ones on the calling thread.
//!
//! | | |
//! |---|---|
//! | [`matmul`], [`matmul_rows`], [`Panels`], [`Dtype`] | products with packed weights, f32 or narrower |
//! | [`causal_conv_silu`], [`selective_scan`], [`head_scan`], [`add_steps`] | the parts of Mamba-1 and Mamba-2 layers |
//! | [`attend`], [`KvPage`] | attention over pages of keys and values |
//! | [`rms_norm`], [`layer_norm`], [`silu_gate`], [`gelu_tanh_gate`], [`gelu`], [`soft_cap`] | norms and activations |
//! | [`read_logits`], [`read_token`], [`rank_of`] | log-probabilities, entropy, the most likely entries |
//! | [`penalise`], [`sample`] | sampling |
//! | [`active_path`], [`cpu_features`] | instruction set in use |
//!
//! ```
//! use loom_kernels::{Panels, matmul, read_logits};
//!
//! let weight = Panels::pack(&[1.0, 2.0, 3.0, 4.0], 2, 2); // [outputs, inputs]
//! let mut logits = [0.0; 2];
//! matmul(&[1.0, 1.0], 1, &weight, &mut logits);
//! assert_eq!(logits, [3.0, 7.0]);
//!
//! let (summary, top) = read_logits(&logits, 1);
//! assert_eq!(top[0].0, 1);
//! assert!((summary.log_z - 7.018_15).abs() < 1e-5);
//! ```
#![expect(unsafe_code, reason = "intrinsics, and disjoint columns across threads")]
#![expect(
    clippy::inline_always,
    reason = "a kernel must be compiled inside the function that enables its instruction set"
)]
#![expect(clippy::needless_range_loop, reason = "closures do not inherit a function's instruction set; loops do")]

mod activation;
mod attention;
mod blocks;
mod conv;
#[cfg(any(feature = "cuda", feature = "cuda-emulation"))]
pub mod cuda;
mod dispatch;
mod half;
mod head_scan;
mod lanes;
mod logits;
mod math;
mod matmul;
mod norm;
mod panels;
mod rows;
mod sample;
mod scan;
mod steps;
#[cfg(test)]
mod tests;

pub use activation::{gelu, gelu_tanh_gate, silu_gate, soft_cap};
pub use attention::{Attention, AttentionMask, KvPage, PAGE_LEN, attend};
pub use conv::{CONV_TAPS_MAX, causal_conv_silu};
pub use dispatch::{PATH_VARIABLE, Path, active_path, cpu_features};
pub use head_scan::{HeadScan, head_scan};
pub use logits::{EntryStats, LogitSummary, rank_of, read_logits, read_token};
pub use matmul::{matmul, matmul_rows};
pub use norm::{layer_norm, rms_norm};
pub use panels::{Dtype, Panels};
pub use rows::Rows;
pub use sample::{SampleParams, SampleScratch, penalise, sample};
pub use scan::{Scan, selective_scan};
pub use steps::add_steps;
