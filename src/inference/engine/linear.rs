//! Affine maps on the CPU, and arithmetic on slices that several networks need.

use loom_kernels::matmul;

use super::tensors::{Linear, OnCpu};

impl Linear<OnCpu> {
    /// Computes y for `rows` contiguous rows of x.
    pub(super) fn apply(&self, x: &[f32], rows: usize, y: &mut [f32]) {
        matmul(x, rows, &self.weight, y);
        if let Some(bias) = &self.bias {
            y.chunks_exact_mut(bias.len()).for_each(|row| add(row, bias));
        }
    }
}

/// x += y.
pub(super) fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

/// x *= factor.
pub(super) fn scale(x: &mut [f32], factor: f32) {
    x.iter_mut().for_each(|x| *x *= factor);
}

/// The part of a state that belongs to layer `index`; `len` numbers per layer.
pub(super) fn layer_of<T>(state: &mut [T], index: usize, len: usize) -> &mut [T] {
    state.split_at_mut(index * len).1.split_at_mut(len).0
}
