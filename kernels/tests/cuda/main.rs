//! The CUDA kernels against the Rust kernels on random inputs: odd sizes, long sequences, ragged batches, separate source
//! and destination slots, extreme Δ, poisoned outputs. They run on the emulated GPU (`cuda/simt.hpp`) or on a real one:
//!
//! `cargo test -p loom-kernels --features cuda-emulation --test cuda`
//! `cargo test -p loom-kernels --features cuda --test cuda`
#![cfg(any(feature = "cuda", feature = "cuda-emulation"))]
#![allow(clippy::pedantic, reason = "tests")]

mod attention;
mod logits;
mod norms;
mod products;
mod scans;

use loom_kernels::cuda::{
    AttentionPass, Buffer, Gpu, GpuConv, GpuHeadScan, GpuScan, HeadDims, Matrix, MatrixWeights, NO_ENTRY, NO_ROW, PAGE,
    RowList, RowPosition, RowQueries, RowQuery, RowStats, SequenceBatch, SequenceRows, TOP_MAX,
};
use loom_kernels::{
    Attention, AttentionMask, Dtype, HeadScan, KvPage, PAGE_LEN, Panels, Rows, SampleParams, Scan, add_steps, attend,
    causal_conv_silu, head_scan, matmul, penalise, rank_of, read_logits, rms_norm, sample, selective_scan, silu_gate,
};

/// The real or the emulated GPU.
fn gpu() -> Gpu {
    Gpu::open(0).expect("a GPU; the feature cuda-emulation plays one on the CPU")
}

fn up(gpu: &Gpu, values: &[f32]) -> Buffer<f32> {
    gpu.upload(values).unwrap()
}

fn poisoned(gpu: &Gpu, len: usize) -> Buffer<f32> {
    up(gpu, &vec![POISON; len])
}

fn down(buffer: &Buffer<f32>) -> Vec<f32> {
    let mut values = vec![0.0; buffer.len()];
    buffer.read(&mut values).unwrap();
    values
}

/// Numbers from a counter (SplitMix64, Steele et al. 2014), uniform in [−1, 1).
struct Draw(u64);

impl Draw {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn floats(&mut self, count: usize, scale: f32) -> Vec<f32> {
        (0..count).map(|_| (2.0 * self.unit() - 1.0) as f32 * scale).collect()
    }
}

const POISON: f32 = f32::NAN;

#[track_caller]
fn close(what: &str, ours: &[f32], theirs: &[f32], relative: f32, absolute: f32) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (at, (a, b)) in ours.iter().zip(theirs).enumerate() {
        assert!((a - b).abs() <= absolute + relative * b.abs(), "{what}[{at}]: {a} on the device, {b} here");
    }
}
