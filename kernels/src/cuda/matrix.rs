//! Weights on the device, and reading their rows: embedding lookup, and widening to f32.

use super::list::RowList;
use super::memory::{Buffer, View};
use super::{Arg, Gpu, GpuError};

/// Weights of a matrix by storage type.
#[derive(Debug)]
pub enum MatrixWeights {
    /// f32.
    F32(Buffer<f32>),
    /// The upper half of an f32.
    Bf16(Buffer<u16>),
    /// IEEE half precision.
    F16(Buffer<u16>),
    /// GGML's `Q8_0`, with separate integers `[outputs, inputs]` and f16 scales `[outputs, inputs / 32]`.
    Q8 {
        /// −128 … 127.
        quants: Buffer<i8>,
        /// One per 32 integers.
        scales: Buffer<u16>,
    },
}

/// A matrix `[outputs, inputs]`.
#[derive(Debug)]
pub struct Matrix {
    weights: MatrixWeights,
    outputs: usize,
    inputs: usize,
}

impl Matrix {
    /// # Panics
    /// If the weights are not `outputs` × `inputs`, or `inputs` is not a multiple of 8 for bf16 and f16, or of 32 for
    /// `Q8_0`.
    pub fn new(weights: MatrixWeights, outputs: usize, inputs: usize) -> Self {
        let (len, piece) = match &weights {
            MatrixWeights::F32(values) => (values.len(), 1),
            MatrixWeights::Bf16(values) | MatrixWeights::F16(values) => (values.len(), 8),
            MatrixWeights::Q8 { quants, scales } => {
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

    pub(super) fn weights(&self) -> &MatrixWeights {
        &self.weights
    }
}

impl Gpu {
    /// x `[ids, width]`: rows `ids` of an embedding table; zeros for [`NO_ROW`](super::NO_ROW).
    ///
    /// # Errors
    /// An error of the driver.
    ///
    /// # Panics
    /// If the bound of the ids exceeds the table, or x is too short.
    pub fn embed(&self, ids: &RowList, table: &Matrix, x: View<'_, f32>) -> Result<(), GpuError> {
        let &Matrix { ref weights, outputs, inputs } = table;
        assert!(ids.below() <= outputs, "embed: ids below {} of {outputs}", ids.below());
        x.rows("embed x", ids.len(), inputs, inputs);
        // SAFETY: checked above; ids in `RowList`.
        unsafe { self.rows_of(weights, inputs, 0, (ids.view().at(), ids.len()), x) }
    }

    /// x `[rows, inputs]`: `rows` rows of a matrix starting at `first`, widened to f32.
    pub(super) fn widen(&self, matrix: &Matrix, first: usize, rows: usize, x: View<'_, f32>) -> Result<(), GpuError> {
        let &Matrix { ref weights, outputs, inputs } = matrix;
        assert!(first + rows <= outputs, "widen: rows {first} and {rows} more of {outputs}");
        x.rows("widen x", rows, inputs, inputs);
        // SAFETY: checked above.
        unsafe { self.rows_of(weights, inputs, first, (Arg::At(0), rows), x) }
    }

    /// # Safety
    /// The matrix has the rows `ids`, counted from row `first`, and x is large enough for them.
    unsafe fn rows_of(
        &self,
        weights: &MatrixWeights,
        inputs: usize,
        first: usize,
        (ids, rows): (Arg, usize),
        x: View<'_, f32>,
    ) -> Result<(), GpuError> {
        let (grid, from, width) = ([rows, 1, 1], first * inputs, Arg::int(inputs));
        let (kernel, at) = match weights {
            MatrixWeights::F32(values) => ("embed_f32", values.from(from).at()),
            MatrixWeights::Bf16(values) => ("embed_bf16", values.from(from).at()),
            MatrixWeights::F16(values) => ("embed_f16", values.from(from).at()),
            MatrixWeights::Q8 { quants, scales } => {
                let arguments = [ids, quants.from(from).at(), scales.from(from / 32).at(), x.at(), width];
                // SAFETY: the kernel's parameters; the caller's promise.
                return unsafe { self.launch("embed_q8_0", grid, 256, arguments) };
            }
        };
        // SAFETY: as above.
        unsafe { self.launch(kernel, grid, 256, [ids, at, x.at(), width]) }
    }
}
