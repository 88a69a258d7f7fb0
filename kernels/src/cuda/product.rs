//! Products with a matrix on the device: few rows with kernels of this crate, many with the library (`many.rs`).

use super::many::{ProductScratch, Task};
use super::matrix::{Matrix, MatrixWeights};
use super::memory::View;
use super::{Arg, Gpu, GpuError};

/// Largest number of rows for which the kernels of this crate are used: they read the weights no more often than the
/// library, including its widening.
fn kernel_rows_max(weights: &MatrixWeights) -> usize {
    match weights {
        MatrixWeights::F32(_) | MatrixWeights::Bf16(_) => 8,
        MatrixWeights::F16(_) | MatrixWeights::Q8 { .. } => 64,
    }
}

impl Gpu {
    /// y[r, o] = Σᵢ x[r, i]·W[o, i] + bias[o]: rows of x are `x_stride` apart, rows of y `y_stride`. With weights narrower
    /// than f32 `x_stride` is a multiple of 4.
    ///
    /// # Errors
    /// An error of the driver or the library.
    ///
    /// # Panics
    /// If the dims disagree, or x, with weights narrower than f32, is not aligned to 16 bytes.
    pub fn matmul(
        &self,
        (x, x_stride): (View<'_, f32>, usize),
        rows: usize,
        matrix: &Matrix,
        bias: Option<View<'_, f32>>,
        (y, y_stride): (View<'_, f32>, usize),
    ) -> Result<(), GpuError> {
        let (weights, outputs, inputs) = (matrix.weights(), matrix.outputs(), matrix.inputs());
        let wide = x_stride.is_multiple_of(4) && x.is_wide();
        let plain = matches!(weights, MatrixWeights::F32(_)) && !(wide && inputs.is_multiple_of(4));
        assert!(wide || plain, "matmul: x at a stride of {x_stride}");
        let task = Task { x, x_stride, rows, bias, y, y_stride };
        let (x, x_stride) = (x.rows("matmul x", rows, x_stride, inputs), Arg::int(x_stride));
        let bias = bias.map_or(Arg::At(0), |bias| bias.rows("matmul bias", 1, outputs, outputs));
        let y = y.rows("matmul y", rows, y_stride, outputs);
        if let Some(scratch) =
            self.product_scratch().filter(|_| rows > kernel_rows_max(weights) && ProductScratch::fits(inputs))
        {
            return self.multiply_many(scratch, &task, matrix);
        }
        let grid = [outputs.div_ceil(4), rows.div_ceil(8), 1];
        let dims = [rows, inputs, outputs, y_stride].map(Arg::int);
        let [rows_, inputs_, outputs_, stride] = dims;
        let ([one, many], at) = match weights {
            MatrixWeights::F32(values) if plain => (["product_any"; 2], values.view().at()),
            MatrixWeights::F32(values) => (["product_f32_1", "product_f32_8"], values.view().at()),
            MatrixWeights::Bf16(values) => (["product_bf16_1", "product_bf16_8"], values.view().at()),
            MatrixWeights::F16(values) => (["product_f16_1", "product_f16_8"], values.view().at()),
            MatrixWeights::Q8 { quants, scales } => {
                let kernel = if rows == 1 { "product_q8_0_1" } else { "product_q8_0_8" };
                let (quants, scales) = (quants.view().at(), scales.view().at());
                let arguments = [x, x_stride, quants, scales, bias, y, rows_, inputs_, outputs_, stride];
                // SAFETY: the kernel's parameters, checked here and in `Matrix::new`.
                return unsafe { self.launch(kernel, grid, 128, arguments) };
            }
        };
        let arguments = [x, x_stride, at, bias, y, rows_, inputs_, outputs_, stride];
        // SAFETY: as above.
        unsafe { self.launch(if rows == 1 { one } else { many }, grid, 128, arguments) }
    }
}
