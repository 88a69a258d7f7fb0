//! Products with packed weights: y = x·Wᵀ for one row (decode) or many (prefill, batches), the same bits for all.
//!
//! Each output is one chain of fused multiply-adds over the inputs in rising order, begun at +0. Vector lanes lie
//! across sixteen outputs, so neither the tile, the row count nor the thread count touches that order. The inner
//! tile is the place for other weight types (`bf16`, `q8_0`, `q4_k`): a panel of sixteen outputs that widens as it is read.

use rayon::prelude::*;

use crate::dispatch::{Kernel, Path, active_path, dispatch};
use crate::lanes::{LANES, Lanes};
use crate::rows::{Columns, Rows};

/// Weights W[outputs, inputs] packed for [`matmul`]: `[panel][input][16 outputs]`, the last panel padded with zeros.
#[derive(Debug, Clone)]
pub struct Panels {
    data: Vec<f32>,
    outputs: usize,
    inputs: usize,
}

impl Panels {
    /// Packs a row-major weight as `Linear` layers store it. Allocates; done once, at loading.
    ///
    /// # Panics
    /// Unless `weight` holds `outputs · inputs` numbers.
    pub fn pack(weight: &[f32], outputs: usize, inputs: usize) -> Self {
        assert_eq!(weight.len(), outputs * inputs, "Panels::pack: expected {outputs} × {inputs} weights");
        let mut data = vec![0.0; outputs.div_ceil(LANES) * inputs * LANES];
        if inputs > 0 {
            for (output, row) in weight.chunks_exact(inputs).enumerate() {
                let panel = &mut data[output / LANES * inputs * LANES..];
                for (slot, &w) in panel.iter_mut().skip(output % LANES).step_by(LANES).zip(row) {
                    *slot = w;
                }
            }
        }
        Self { data, outputs, inputs }
    }

    /// Length of a row of y.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Length of a row of x.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Copies one row of W (an output's weights) to `row`: an embedding tied to the output layer needs no second copy.
    ///
    /// # Panics
    /// If there is no such output, or `row` is not `inputs` long.
    pub fn unpack_row(&self, output: usize, row: &mut [f32]) {
        assert!(output < self.outputs, "output {output} of {}", self.outputs);
        assert_eq!(row.len(), self.inputs, "row length");
        let panel = &self.data[output / LANES * self.inputs * LANES..];
        for (slot, &w) in row.iter_mut().zip(panel.iter().skip(output % LANES).step_by(LANES)) {
            *slot = w;
        }
    }
}

/// Fewer multiply-adds than this run on the calling thread; a parallel task has at least half as many.
const PARALLEL_MIN: usize = 1 << 19;

/// y[r, o] = Σᵢ x[r, i]·W[o, i] for contiguous rows of x. Parallel in rayon's current pool when that pays.
///
/// # Panics
/// Unless x is `rows · inputs` and y `rows · outputs` long.
pub fn matmul(x: &[f32], rows: usize, weight: &Panels, y: &mut [f32]) {
    assert_eq!(x.len(), rows * weight.inputs, "matmul x: expected {rows} × {}", weight.inputs);
    matmul_rows(Rows::new(x, weight.inputs), rows, weight, y);
}

/// [`matmul`] on rows that lie in a wider buffer.
///
/// # Panics
/// If x is too short or y is not `rows · outputs` long.
pub fn matmul_rows(x: Rows<'_>, rows: usize, weight: &Panels, y: &mut [f32]) {
    matmul_on(active_path(), x, rows, weight, y);
}

pub(crate) fn matmul_on(path: Path, x: Rows<'_>, rows: usize, weight: &Panels, y: &mut [f32]) {
    x.check("matmul x", rows, weight.inputs);
    let y = Columns::new("matmul y", y, rows, weight.outputs);
    let panels = weight.outputs.div_ceil(LANES);
    let work_of_panel = (rows * weight.inputs * LANES).max(1);
    let per_task = (PARALLEL_MIN / 2).div_ceil(work_of_panel).next_multiple_of(8);
    if panels * work_of_panel < PARALLEL_MIN || panels <= per_task {
        dispatch(path, Task { x, rows, weight, y, panels: 0..panels });
    } else {
        // Small enough tasks to even out, large enough to be worth taking.
        let per_task = per_task.max((panels / (4 * rayon::current_num_threads())).next_multiple_of(8));
        (0..panels.div_ceil(per_task)).into_par_iter().for_each(|task| {
            let from = task * per_task;
            dispatch(path, Task { x, rows, weight, y, panels: from..panels.min(from + per_task) });
        });
    }
}

/// A range of panels over all rows.
struct Task<'a> {
    x: Rows<'a>,
    rows: usize,
    weight: &'a Panels,
    y: Columns<'a>,
    panels: std::ops::Range<usize>,
}

impl Kernel for Task<'_> {
    type Output = ();

    /// A group of panels serves all rows before the next is read: weights come from memory once, then from cache.
    #[inline(always)]
    fn run<V: Lanes>(self) {
        let mut panel = self.panels.start;
        while panel < self.panels.end {
            let left = self.panels.end - panel;
            let one = self.rows == 1;
            panel += match (V::WIDE, one) {
                (true, true) if left >= 8 => self.group::<V, 1, 8>(panel),
                (true, _) if left >= 4 => self.group::<V, 6, 4>(panel),
                (true, _) if left >= 2 => self.group::<V, 6, 2>(panel),
                (false, true) if left >= 4 => self.group::<V, 1, 4>(panel),
                (false, _) if left >= 2 => self.group::<V, 3, 2>(panel),
                _ => self.group::<V, 6, 1>(panel),
            };
        }
    }
}

impl Task<'_> {
    /// All rows through `P` panels, `R` rows at a time, the rest in tiles of four, two and one.
    #[inline(always)]
    fn group<V: Lanes, const R: usize, const P: usize>(&self, panel: usize) -> usize {
        let mut row = 0;
        while row + R <= self.rows {
            self.tile::<V, R, P>(row, panel);
            row += R;
        }
        if R > 4 && row + 4 <= self.rows {
            self.tile::<V, 4, P>(row, panel);
            row += 4;
        }
        if R > 2 && row + 2 <= self.rows {
            self.tile::<V, 2, P>(row, panel);
            row += 2;
        }
        while row < self.rows {
            self.tile::<V, 1, P>(row, panel);
            row += 1;
        }
        P
    }

    /// `R` rows × `P` panels with every sum in a register.
    #[inline(always)]
    fn tile<V: Lanes, const R: usize, const P: usize>(&self, row: usize, panel: usize) {
        let inputs = self.weight.inputs;
        let weights = &self.weight.data[panel * inputs * LANES..][..P * inputs * LANES];
        let mut x: [&[f32]; R] = [&[]; R];
        for r in 0..R {
            x[r] = self.x.get(row + r, inputs);
        }
        let mut sums = [[V::splat(0.0); P]; R];
        for i in 0..inputs {
            let mut w = [V::splat(0.0); P];
            for p in 0..P {
                // SAFETY: (p·inputs + i)·16 + 16 ≤ P·inputs·16, the length of `weights`.
                w[p] = unsafe { V::load_ptr(weights.as_ptr().add((p * inputs + i) * LANES)) };
            }
            for r in 0..R {
                // SAFETY: every row of x was taken `inputs` long.
                let x = V::splat(unsafe { *x[r].get_unchecked(i) });
                for p in 0..P {
                    sums[r][p] = x.mul_add(w[p], sums[r][p]);
                }
            }
        }
        for r in 0..R {
            for p in 0..P {
                let from = (panel + p) * LANES;
                let len = LANES.min(self.weight.outputs - from);
                // SAFETY: these columns belong to this task's panels, and the slice ends with the statement.
                sums[r][p].store_part(unsafe { self.y.slice(row + r, from, len) });
            }
        }
    }
}
