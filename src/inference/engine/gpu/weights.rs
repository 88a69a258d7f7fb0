//! Weights on a GPU: `Q8_0` unchanged, any other matrix in the narrowest type that represents its elements exactly.

use loom_kernels::Panels;
use loom_kernels::cuda::{Buffer, Gpu, GpuError, Matrix, MatrixWeights, View};

use super::super::device::Device;
use super::super::error::LoadError;
use super::super::tensors::{Linear, Name, Storage, TensorSource};
use super::super::weights::Weights;

/// Kernels read narrow weights eight at a time; a matrix whose row length is not a multiple is stored as f32.
pub(super) const PIECE: usize = 8;

/// In a GPU's memory.
pub(in super::super) struct OnGpu;

impl Storage for OnGpu {
    type Vector = Buffer<f32>;
    type Matrix = Matrix;
}

impl Linear<OnGpu> {
    /// Computes y for contiguous rows of x.
    pub(super) fn apply(&self, gpu: &Gpu, x: View<'_, f32>, rows: usize, y: View<'_, f32>) -> Result<(), GpuError> {
        let bias = self.bias.as_ref().map(Buffer::view);
        gpu.matmul((x, self.weight.inputs()), rows, &self.weight, bias, (y, self.weight.outputs()))
    }
}

/// Reads each tensor and moves it to a GPU.
pub(super) struct GpuUpload<'g, 's, 'w> {
    pub(super) gpu: &'g Gpu,
    pub(super) device: Device,
    pub(super) weights: &'s mut Weights<'w>,
}

impl GpuUpload<'_, '_, '_> {
    fn upload(&self, values: &[f32]) -> Result<Buffer<f32>, LoadError> {
        self.gpu.upload(values).map_err(|error| self.device.failed(&error))
    }
}

impl TensorSource for GpuUpload<'_, '_, '_> {
    type Storage = OnGpu;

    fn has(&self, name: &str) -> bool {
        self.weights.has(name)
    }

    fn vector(&mut self, name: Name<'_>, dims: &[usize]) -> Result<Buffer<f32>, LoadError> {
        let values = self.weights.vector(name, dims)?;
        self.upload(&values)
    }

    fn matrix(&mut self, name: Name<'_>, outputs: usize, inputs: usize) -> Result<Matrix, LoadError> {
        let panels = self.weights.matrix(name, outputs, inputs)?;
        matrix(self.gpu, &panels).map_err(|error| self.device.failed(&error))
    }

    fn split(&mut self, name: Name<'_>, dims: &[usize], parts: &[usize]) -> Result<Vec<Matrix>, LoadError> {
        let parts = self.weights.split(name, dims, parts)?;
        let upload = |panels: &Panels| matrix(self.gpu, panels).map_err(|error| self.device.failed(&error));
        parts.iter().map(upload).collect()
    }

    fn centred_norm(&mut self, name: Name<'_>, dim: usize) -> Result<Buffer<f32>, LoadError> {
        let values = self.weights.centred_norm(name, dim)?;
        self.upload(&values)
    }

    fn decay(&mut self, name: Name<'_>, dims: &[usize]) -> Result<Buffer<f32>, LoadError> {
        let values = self.weights.decay(name, dims)?;
        self.upload(&values)
    }

    fn convolution(&mut self, name: Name<'_>, channels: usize, taps: usize) -> Result<Buffer<f32>, LoadError> {
        let values = self.weights.convolution(name, channels, taps)?;
        self.upload(&values)
    }

    /// With rows of zeros after the low rank, which comes to whole pieces.
    fn low_rank_outputs(
        &mut self,
        name: Name<'_>,
        [rank, others]: [usize; 2],
        inputs: usize,
    ) -> Result<Matrix, LoadError> {
        let values = unpack(&self.weights.matrix(name, rank + others, inputs)?);
        let (first, rest) = values.split_at(rank * inputs);
        let padded = rank.next_multiple_of(PIECE);
        let values = [first, &vec![0.0; (padded - rank) * inputs], rest].concat();
        narrow(self.gpu, &values, padded + others, inputs).map_err(|error| self.device.failed(&error))
    }

    /// With columns of zeros after the low rank, which comes to whole pieces.
    fn low_rank_inputs(&mut self, name: Name<'_>, outputs: usize, rank: usize) -> Result<Matrix, LoadError> {
        let values = unpack(&self.weights.matrix(name, outputs, rank)?);
        let padded = rank.next_multiple_of(PIECE);
        let row = |row: &[f32]| [row, &vec![0.0; padded - rank]].concat();
        let values: Vec<_> = values.chunks_exact(rank.max(1)).flat_map(row).collect();
        narrow(self.gpu, &values, outputs, padded).map_err(|error| self.device.failed(&error))
    }

    fn tied_head(&mut self, head: Name<'_>, table: Name<'_>, dims: &[usize]) -> Result<(), LoadError> {
        self.weights.tied_head(head, table, dims)
    }

    fn leave(&mut self, prefix: &str) {
        self.weights.leave(prefix);
    }

    fn unused(&mut self, name: Name<'_>, dims: &[usize]) -> Result<(), LoadError> {
        self.weights.unused(name, dims)
    }
}

fn matrix(gpu: &Gpu, panels: &Panels) -> Result<Matrix, GpuError> {
    let (outputs, inputs) = (panels.outputs(), panels.inputs());
    if let Some((quants, scales)) = panels.q8_0() {
        let weights = MatrixWeights::Q8 { quants: gpu.upload(&quants)?, scales: gpu.upload(&scales)? };
        return Ok(Matrix::new(weights, outputs, inputs));
    }
    narrow(gpu, &unpack(panels), outputs, inputs)
}

fn unpack(panels: &Panels) -> Vec<f32> {
    let mut values = vec![0.0; panels.outputs() * panels.inputs()];
    for (output, row) in values.chunks_exact_mut(panels.inputs().max(1)).enumerate() {
        panels.unpack_row(output, row);
    }
    values
}

/// A matrix in the narrowest type that represents every element exactly.
fn narrow(gpu: &Gpu, values: &[f32], outputs: usize, inputs: usize) -> Result<Matrix, GpuError> {
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
