//! Weights on the device and the products with them; rows of embedding tables.

use super::list::List;
use super::memory::{Buffer, View};
use super::{Arg, Gpu, GpuError};

/// How weights are kept.
#[derive(Debug)]
pub enum Kind {
    /// f32.
    F32(Buffer<f32>),
    /// The upper half of an f32.
    Bf16(Buffer<u16>),
    /// IEEE half precision.
    F16(Buffer<u16>),
    /// GGML's `Q8_0`, the integers `[outputs, inputs]` apart from the f16 scales `[outputs, inputs / 32]`.
    Q8 {
        /// −128 … 127.
        quants: Buffer<i8>,
        /// One for 32 integers.
        scales: Buffer<u16>,
    },
}

/// A matrix `[outputs, inputs]`.
#[derive(Debug)]
pub struct Matrix {
    weights: Kind,
    outputs: usize,
    inputs: usize,
}

impl Matrix {
    /// # Panics
    /// If the weights are not `outputs` × `inputs`, or `inputs` is not whole 16-byte pieces of weights (`Q8_0`: blocks of 32).
    pub fn new(weights: Kind, outputs: usize, inputs: usize) -> Self {
        let (len, piece) = match &weights {
            Kind::F32(values) => (values.len(), 4),
            Kind::Bf16(values) | Kind::F16(values) => (values.len(), 8),
            Kind::Q8 { quants, scales } => {
                assert_eq!(scales.len(), outputs * inputs / 32, "Matrix: scales");
                (quants.len(), 32)
            }
        };
        assert_eq!(len, outputs * inputs, "Matrix: not [{outputs}, {inputs}]");
        assert!(inputs.is_multiple_of(piece), "Matrix: {inputs} inputs are not a multiple of {piece}");
        Self { weights, outputs, inputs }
    }

    /// Outputs.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Inputs.
    pub fn inputs(&self) -> usize {
        self.inputs
    }
}

impl Gpu {
    /// y[r, o] = Σᵢ x[r, i]·W[o, i] + bias[o]: rows of x lie `x_stride` apart, a multiple of 4, rows of y `y_stride`.
    ///
    /// # Errors
    /// As the driver says.
    ///
    /// # Panics
    /// If the dims disagree, or x does not begin at a multiple of 16 bytes.
    pub fn matmul(
        &self,
        (x, x_stride): (View<'_, f32>, usize),
        rows: usize,
        matrix: &Matrix,
        bias: Option<View<'_, f32>>,
        (y, y_stride): (View<'_, f32>, usize),
    ) -> Result<(), GpuError> {
        let &Matrix { ref weights, outputs, inputs } = matrix;
        assert!(x_stride.is_multiple_of(4) && x.is_wide(), "matmul: x at a stride of {x_stride}");
        let grid = [outputs.div_ceil(4), if rows == 1 { 1 } else { rows.div_ceil(8) }, 1];
        let (x, x_stride) = (x.rows("matmul x", rows, x_stride, inputs), Arg::int(x_stride));
        let bias = bias.map_or(Arg::At(0), |bias| bias.rows("matmul bias", 1, outputs, outputs));
        let y = y.rows("matmul y", rows, y_stride, outputs);
        let dims = [rows, inputs, outputs, y_stride].map(Arg::int);
        let [rows_, inputs_, outputs_, stride] = dims;
        let (one, at) = match weights {
            Kind::F32(values) => (["product_f32_1", "product_f32_8"], values.view().at()),
            Kind::Bf16(values) => (["product_bf16_1", "product_bf16_8"], values.view().at()),
            Kind::F16(values) => (["product_f16_1", "product_f16_8"], values.view().at()),
            Kind::Q8 { quants, scales } => {
                let kernel = if rows == 1 { "product_q8_0_1" } else { "product_q8_0_8" };
                let (quants, scales) = (quants.view().at(), scales.view().at());
                let arguments = [x, x_stride, quants, scales, bias, y, rows_, inputs_, outputs_, stride];
                // SAFETY: the kernel's parameters, checked here and in `Matrix::new`.
                return unsafe { self.launch(kernel, grid, 128, arguments) };
            }
        };
        let [one, many] = one;
        let arguments = [x, x_stride, at, bias, y, rows_, inputs_, outputs_, stride];
        // SAFETY: as above.
        unsafe { self.launch(if rows == 1 { one } else { many }, grid, 128, arguments) }
    }

    /// x `[ids, width]`: the rows `ids` of an embedding table; zeros for [`NO_ROW`](super::NO_ROW).
    ///
    /// # Errors
    /// As the driver says; also if the table is `Q8_0`.
    ///
    /// # Panics
    /// If an id may be beyond the table, or x is too short.
    pub fn embed(&self, ids: &List, table: &Matrix, x: View<'_, f32>) -> Result<(), GpuError> {
        let &Matrix { ref weights, outputs, inputs } = table;
        assert!(ids.below() <= outputs, "embed: ids below {} of {outputs}", ids.below());
        let (kernel, at) = match weights {
            Kind::F32(values) => ("embed_f32", values.view().at()),
            Kind::Bf16(values) => ("embed_bf16", values.view().at()),
            Kind::F16(values) => ("embed_f16", values.view().at()),
            Kind::Q8 { .. } => return Err(GpuError("an embedding table in Q8_0 is not served on a GPU".into())),
        };
        let x = x.rows("embed x", ids.len(), inputs, inputs);
        let arguments = [ids.view().at(), at, x, Arg::int(inputs)];
        // SAFETY: the kernel's parameters, checked above; ids in `List`.
        unsafe { self.launch(kernel, [ids.len(), 1, 1], 256, arguments) }
    }
}
