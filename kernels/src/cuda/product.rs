//! Weights on the device and the products with them: few rows by kernels here, many by the library (`many.rs`); rows of
//! embedding tables.

use super::list::List;
use super::many::{Room, Task};
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
    /// If the weights are not `outputs` × `inputs`, or `inputs` is not whole pieces of them: 8 of bf16 and f16, blocks of
    /// 32 of `Q8_0`.
    pub fn new(weights: Kind, outputs: usize, inputs: usize) -> Self {
        let (len, piece) = match &weights {
            Kind::F32(values) => (values.len(), 1),
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

    pub(super) fn weights(&self) -> &Kind {
        &self.weights
    }

    /// Up to so many rows the kernels here read the weights as often as the library does, counting what it needs to
    /// widen them.
    fn few(&self) -> usize {
        match self.weights {
            Kind::F32(_) | Kind::Bf16(_) => 8,
            Kind::F16(_) | Kind::Q8 { .. } => 64,
        }
    }
}

impl Gpu {
    /// y[r, o] = Σᵢ x[r, i]·W[o, i] + bias[o]: rows of x lie `x_stride` apart, rows of y `y_stride`. With weights narrower
    /// than f32 `x_stride` is a multiple of 4.
    ///
    /// # Errors
    /// As the driver, or the library, says.
    ///
    /// # Panics
    /// If the dims disagree, or x, with weights narrower than f32, does not begin at a multiple of 16 bytes.
    pub fn matmul(
        &self,
        (x, x_stride): (View<'_, f32>, usize),
        rows: usize,
        matrix: &Matrix,
        bias: Option<View<'_, f32>>,
        (y, y_stride): (View<'_, f32>, usize),
    ) -> Result<(), GpuError> {
        let &Matrix { ref weights, outputs, inputs } = matrix;
        let wide = x_stride.is_multiple_of(4) && x.is_wide();
        let plain = matches!(weights, Kind::F32(_)) && !(wide && inputs.is_multiple_of(4));
        assert!(wide || plain, "matmul: x at a stride of {x_stride}");
        let task = Task { x, x_stride, rows, bias, y, y_stride };
        let (x, x_stride) = (x.rows("matmul x", rows, x_stride, inputs), Arg::int(x_stride));
        let bias = bias.map_or(Arg::At(0), |bias| bias.rows("matmul bias", 1, outputs, outputs));
        let y = y.rows("matmul y", rows, y_stride, outputs);
        if let Some(room) = self.for_many().filter(|_| rows > matrix.few() && Room::serves(inputs)) {
            return self.multiply_many(room, &task, matrix);
        }
        let grid = [outputs.div_ceil(4), rows.div_ceil(8), 1];
        let dims = [rows, inputs, outputs, y_stride].map(Arg::int);
        let [rows_, inputs_, outputs_, stride] = dims;
        let ([one, many], at) = match weights {
            Kind::F32(values) if plain => (["product_any"; 2], values.view().at()),
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
        let arguments = [x, x_stride, at, bias, y, rows_, inputs_, outputs_, stride];
        // SAFETY: as above.
        unsafe { self.launch(if rows == 1 { one } else { many }, grid, 128, arguments) }
    }

    /// x `[ids, width]`: the rows `ids` of an embedding table; zeros for [`NO_ROW`](super::NO_ROW).
    ///
    /// # Errors
    /// As the driver says.
    ///
    /// # Panics
    /// If an id may be beyond the table, or x is too short.
    pub fn embed(&self, ids: &List, table: &Matrix, x: View<'_, f32>) -> Result<(), GpuError> {
        let &Matrix { ref weights, outputs, inputs } = table;
        assert!(ids.below() <= outputs, "embed: ids below {} of {outputs}", ids.below());
        x.rows("embed x", ids.len(), inputs, inputs);
        // SAFETY: checked above; ids in `List`.
        unsafe { self.rows_of(weights, inputs, 0, (ids.view().at(), ids.len()), x) }
    }

    /// x `[rows, inputs]`: `rows` rows of a matrix from `first` on, widened.
    pub(super) fn widen(&self, matrix: &Matrix, first: usize, rows: usize, x: View<'_, f32>) -> Result<(), GpuError> {
        let &Matrix { ref weights, outputs, inputs } = matrix;
        assert!(first + rows <= outputs, "widen: rows {first} and {rows} more of {outputs}");
        x.rows("widen x", rows, inputs, inputs);
        // SAFETY: checked above.
        unsafe { self.rows_of(weights, inputs, first, (Arg::At(0), rows), x) }
    }

    /// # Safety
    /// The matrix has the rows that `ids` name, counted from row `first`, and x has room for as many.
    unsafe fn rows_of(
        &self,
        weights: &Kind,
        inputs: usize,
        first: usize,
        (ids, rows): (Arg, usize),
        x: View<'_, f32>,
    ) -> Result<(), GpuError> {
        let (grid, from, width) = ([rows, 1, 1], first * inputs, Arg::int(inputs));
        let (kernel, at) = match weights {
            Kind::F32(values) => ("embed_f32", values.from(from).at()),
            Kind::Bf16(values) => ("embed_bf16", values.from(from).at()),
            Kind::F16(values) => ("embed_f16", values.from(from).at()),
            Kind::Q8 { quants, scales } => {
                let arguments = [ids, quants.from(from).at(), scales.from(from / 32).at(), x.at(), width];
                // SAFETY: the kernel's parameters; the caller's promise.
                return unsafe { self.launch("embed_q8_0", grid, 256, arguments) };
            }
        };
        // SAFETY: as above.
        unsafe { self.launch(kernel, grid, 256, [ids, at, x.at(), width]) }
    }
}
