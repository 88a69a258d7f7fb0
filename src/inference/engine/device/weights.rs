//! Weights on a GPU: `Q8_0` unchanged, any other matrix in the narrowest type that represents its elements exactly.

use loom_kernels::Panels;
use loom_kernels::cuda::{Buffer, Gpu, GpuError, Matrix, MatrixWeights, View};

use super::super::linear::Linear as CpuLinear;

/// Kernels read narrow weights eight at a time; a matrix whose row length is not a multiple is stored as f32.
pub(super) const PIECE: usize = 8;

/// An affine map.
pub(super) struct Linear {
    weight: Matrix,
    bias: Option<Buffer<f32>>,
}

impl Linear {
    pub(super) fn new(gpu: &Gpu, linear: &CpuLinear) -> Result<Self, GpuError> {
        Ok(Self { weight: matrix(gpu, &linear.weight)?, bias: maybe(gpu, linear.bias.as_deref())? })
    }

    /// Computes y for contiguous rows of x.
    pub(super) fn apply(&self, gpu: &Gpu, x: View<'_, f32>, rows: usize, y: View<'_, f32>) -> Result<(), GpuError> {
        let bias = self.bias.as_ref().map(Buffer::view);
        gpu.matmul((x, self.weight.inputs()), rows, &self.weight, bias, (y, self.weight.outputs()))
    }
}

/// Uploads an optional vector.
pub(super) fn maybe(gpu: &Gpu, values: Option<&[f32]>) -> Result<Option<Buffer<f32>>, GpuError> {
    values.map(|values| gpu.upload(values)).transpose()
}

pub(super) fn matrix(gpu: &Gpu, panels: &Panels) -> Result<Matrix, GpuError> {
    let (outputs, inputs) = (panels.outputs(), panels.inputs());
    if let Some((quants, scales)) = panels.q8_0() {
        let weights = MatrixWeights::Q8 { quants: gpu.upload(&quants)?, scales: gpu.upload(&scales)? };
        return Ok(Matrix::new(weights, outputs, inputs));
    }
    narrow(gpu, &unpack(panels), outputs, inputs)
}

pub(super) fn unpack(panels: &Panels) -> Vec<f32> {
    let mut values = vec![0.0; panels.outputs() * panels.inputs()];
    for (output, row) in values.chunks_exact_mut(panels.inputs().max(1)).enumerate() {
        panels.unpack_row(output, row);
    }
    values
}

/// A matrix in the narrowest type that represents every element exactly.
pub(super) fn narrow(gpu: &Gpu, values: &[f32], outputs: usize, inputs: usize) -> Result<Matrix, GpuError> {
    Ok(Matrix::new(kind(gpu, values, inputs.is_multiple_of(PIECE))?, outputs, inputs))
}

fn kind(gpu: &Gpu, values: &[f32], whole: bool) -> Result<MatrixWeights, GpuError> {
    if !whole {
        return Ok(MatrixWeights::F32(gpu.upload(values)?));
    }
    if values.iter().all(|x| x.to_bits().trailing_zeros() >= 16) {
        let bits: Vec<_> = values.iter().map(|x| (x.to_bits() >> 16) as u16).collect();
        return Ok(MatrixWeights::Bf16(gpu.upload(&bits)?));
    }
    let halves: Option<Vec<_>> = values.iter().copied().map(half).collect();
    Ok(match halves {
        Some(bits) => MatrixWeights::F16(gpu.upload(&bits)?),
        None => MatrixWeights::F32(gpu.upload(values)?),
    })
}

/// x as f16 bits, if it is a normal f16 or 0.
fn half(x: f32) -> Option<u16> {
    let bits = x.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    if x == 0.0 {
        return Some(sign);
    }
    let exponent = (bits >> 23 & 0xff).checked_sub(127 - 15).filter(|exponent| (1..31).contains(exponent))?;
    (bits.trailing_zeros() >= 13).then_some(sign | (exponent << 10) as u16 | (bits >> 13 & 0x3ff) as u16)
}
