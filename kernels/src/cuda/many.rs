//! Products of many rows, which are bound by arithmetic: computed by cuBLAS if available.
//!
//! Activations are f32. With bf16 weights each activation is split into the sum of two bf16 (`split_halves`), so that tensor
//! cores compute two products without losing precision; f32 weights are used directly, and f16 and `Q8_0` are widened to
//! f32 in pieces.

use std::sync::{Mutex, PoisonError};

use super::matrix::{Matrix, MatrixWeights};
use super::memory::{Buffer, View};
use super::{Arg, Gpu, GpuError, backend};

/// C ← Aᵀ·B, or C ← Aᵀ·B + C, as in BLAS, column-major: A `[k, m]`, B `[k, n]`, C `[m, n]`.
/// Each matrix is given by its address and the distance between columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gemm {
    /// A and B are bf16, else f32. C is f32, and so are the sums.
    pub(crate) narrow: bool,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: (u64, usize),
    pub(crate) b: (u64, usize),
    pub(crate) c: (u64, usize),
    pub(crate) add: bool,
}

/// Scratch memory of a product, for one product at a time.
pub(super) struct ProductScratch(Mutex<Parts>);

struct Parts {
    /// The halves of x in bf16, or widened weights.
    operand: Buffer<f32>,
    /// The products of both halves.
    sums: Buffer<f32>,
}

impl ProductScratch {
    pub(super) fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        Ok(Self(Mutex::new(Parts { operand: gpu.uninit(backend::OPERAND)?, sums: gpu.uninit(backend::SUMS)? })))
    }

    /// Bytes.
    pub(super) const BYTES: usize = size_of::<f32>() * (backend::OPERAND + backend::SUMS);

    /// Whether a row with this many inputs fits.
    pub(super) fn fits(inputs: usize) -> bool {
        inputs <= backend::OPERAND
    }
}

/// The checked arguments of [`Gpu::matmul`].
pub(super) struct Task<'a> {
    pub(super) x: View<'a, f32>,
    pub(super) x_stride: usize,
    pub(super) rows: usize,
    pub(super) bias: Option<View<'a, f32>>,
    pub(super) y: View<'a, f32>,
    pub(super) y_stride: usize,
}

impl Task<'_> {
    /// `rows` rows starting at `first`.
    fn part(&self, first: usize, rows: usize) -> Self {
        Self { x: self.x.from(first * self.x_stride), y: self.y.from(first * self.y_stride), rows, ..*self }
    }

    fn x(&self) -> (u64, usize) {
        (self.x.address(), self.x_stride)
    }

    fn y(&self) -> (u64, usize) {
        (self.y.address(), self.y_stride)
    }
}

impl Gpu {
    pub(super) fn multiply_many(
        &self,
        scratch: &ProductScratch,
        task: &Task<'_>,
        matrix: &Matrix,
    ) -> Result<(), GpuError> {
        let scratch = scratch.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (outputs, inputs) = (matrix.outputs(), matrix.inputs());
        match matrix.weights() {
            MatrixWeights::F32(weight) => {
                self.put_bias(task, outputs)?;
                self.gemm(
                    false,
                    (task.x(), task.rows),
                    (weight.view().address(), outputs, inputs),
                    task.y(),
                    task.bias.is_some(),
                )
            }
            MatrixWeights::Bf16(weight) => {
                let most = scratch.operand.len() / inputs;
                (0..task.rows).step_by(most).try_for_each(|first| {
                    let task = task.part(first, most.min(task.rows - first));
                    self.in_halves(&scratch, &task, weight.view().address(), [outputs, inputs])
                })
            }
            MatrixWeights::F16(_) | MatrixWeights::Q8 { .. } => {
                self.put_bias(task, outputs)?;
                let most = scratch.operand.len() / inputs;
                (0..outputs).step_by(most).try_for_each(|first| {
                    let some = most.min(outputs - first);
                    self.widen(matrix, first, some, scratch.operand.view())?;
                    let weight = (scratch.operand.view().address(), some, inputs);
                    let y = (task.y.from(first).address(), task.y_stride);
                    self.gemm(false, (task.x(), task.rows), weight, y, task.bias.is_some())
                })
            }
        }
    }

    /// Product with bf16 weights. For few rows both halves are multiplied at once, so that the weights are read once; for many
    /// one after the other.
    fn in_halves(
        &self,
        scratch: &Parts,
        task: &Task<'_>,
        weight: u64,
        [outputs, inputs]: [usize; 2],
    ) -> Result<(), GpuError> {
        let &Task { x, x_stride, rows, bias, y, y_stride } = task;
        let halves = scratch.operand.view().address();
        let arguments = [x.at(), Arg::int(x_stride), Arg::At(halves), Arg::int(inputs)];
        let columns = |width: usize| [width.div_ceil(256), rows, 1];
        // SAFETY: the kernel's parameters; `rows` rows of two halves fit into the operand buffer.
        unsafe { self.launch("split_halves", columns(inputs), 256, arguments)? };
        let weight = (weight, outputs, inputs);
        if 2 * rows * outputs <= scratch.sums.len() {
            let sums = scratch.sums.view().address();
            self.gemm(true, ((halves, inputs), 2 * rows), weight, (sums, outputs), false)?;
            let bias = bias.map_or(Arg::At(0), View::at);
            let arguments = [Arg::At(sums), bias, y.at(), Arg::int(outputs), Arg::int(y_stride)];
            // SAFETY: the kernel's parameters; y was checked.
            return unsafe { self.launch("join_halves", columns(outputs), 256, arguments) };
        }
        self.put_bias(task, outputs)?;
        let lower = halves + (rows * inputs * size_of::<u16>()) as u64;
        self.gemm(true, ((halves, inputs), rows), weight, task.y(), bias.is_some())?;
        self.gemm(true, ((lower, inputs), rows), weight, task.y(), true)
    }

    /// y = bias, if there is one; the product is then added.
    fn put_bias(&self, task: &Task<'_>, outputs: usize) -> Result<(), GpuError> {
        let Some(bias) = task.bias else { return Ok(()) };
        let arguments = [bias.at(), task.y.at(), Arg::int(outputs), Arg::int(task.y_stride)];
        // SAFETY: the kernel's parameters; y was checked.
        unsafe { self.launch("bias_rows", [outputs.div_ceil(256), task.rows, 1], 256, arguments) }
    }

    /// y ← x·Wᵀ (+ y), row-major, which is column-major for BLAS after transposition.
    fn gemm(
        &self,
        narrow: bool,
        (x, rows): ((u64, usize), usize),
        (weight, outputs, inputs): (u64, usize, usize),
        y: (u64, usize),
        add: bool,
    ) -> Result<(), GpuError> {
        let gemm = Gemm { narrow, m: outputs, n: rows, k: inputs, a: (weight, inputs), b: x, c: y, add };
        // SAFETY: `matmul` checked x and y, `Matrix::new` the weight; the scratch buffers are large enough.
        unsafe { self.backend().gemm(&gemm) }
    }
}
