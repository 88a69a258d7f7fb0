//! Products with packed weights: y = x·Wᵀ for one row (decode) or many (prefill, batches), the same bits for all.
//!
//! Vector lanes span sixteen outputs, so the order in which an output is summed does not depend on tile size, row count or
//! thread count. The summed terms depend on the type of the weights; every sum starts at +0:
//!
//! | | y += … for rising inputs i or blocks b |
//! |---|---|
//! | f32 | xᵢ·Wᵢ, one fused multiply-add |
//! | bf16 | the same, W widened exactly (`vdpbf16ps` rounds otherwise on every processor, so it is not used) |
//! | `q8_0` | (Σ qx·qW over the block, an exact integer) · (dW·dx), one fused multiply-add |
//! | `q4_k` | (Σ qx·qW) · ((d·scale)·dx), then (dmin·min) · (−dx·Σ qx), one fused multiply-add each |
//!
//! The last two first round x to integers of −127..=127 in blocks of 32 with one scale dx each, as llama.cpp does: sums of
//! small integers are exact in any order, so every instruction set can use its own. A NaN or an infinity in x makes every
//! output of its row NaN.

use rayon::prelude::*;

use crate::blocks::{BLOCK, Quantised, SUPER, Scaled};
use crate::dispatch::{Kernel, Path, active_path, dispatch};
use crate::lanes::{LANES, Lanes};
use crate::panels::{Dtype, Line, Panels, Scales};
use crate::rows::{Columns, Rows};

/// Fewer multiply-adds than this run on the calling thread; a parallel task has at least half as many.
const PARALLEL_MIN: usize = 1 << 19;

/// y[r, o] = Σᵢ x[r, i]·W[o, i] for contiguous rows of x. Parallel in rayon's current pool if the work is large
/// enough. With `q8_0` and `q4_k` weights it allocates the rounded x, a little over one byte per number.
///
/// # Panics
/// Unless x is `rows · inputs` and y `rows · outputs` long.
pub fn matmul(x: &[f32], rows: usize, weight: &Panels, y: &mut [f32]) {
    assert_eq!(x.len(), rows * weight.inputs(), "matmul x: expected {rows} × {}", weight.inputs());
    matmul_rows(Rows::new(x, weight.inputs()), rows, weight, y);
}

/// [`matmul`] on rows of a wider buffer.
///
/// # Panics
/// If x is too short or y is not `rows · outputs` long.
pub fn matmul_rows(x: Rows<'_>, rows: usize, weight: &Panels, y: &mut [f32]) {
    matmul_on(active_path(), x, rows, weight, y);
}

pub(crate) fn matmul_on(path: Path, x: Rows<'_>, rows: usize, weight: &Panels, y: &mut [f32]) {
    x.check("matmul x", rows, weight.inputs());
    let y = Columns::new("matmul y", y, rows, weight.outputs());
    match weight.dtype() {
        Dtype::F32 => product::<Single>(path, Task { x, rows, weight, y }),
        Dtype::Bf16 => product::<Half>(path, Task { x, rows, weight, y }),
        dtype => {
            let x = &Quantised::new(path, x, rows, weight.inputs());
            match dtype {
                Dtype::Q4K => product::<Nibbles>(path, Task { x, rows, weight, y }),
                _ => product::<Bytes>(path, Task { x, rows, weight, y }),
            }
        }
    }
}

fn product<'a, F: Format>(path: Path, task: Task<'a, F::X<'a>>) {
    let panels = task.weight.outputs().div_ceil(LANES);
    let work_of_panel = (task.rows * task.weight.inputs() * LANES).max(1);
    let per_task = (PARALLEL_MIN / 2).div_ceil(work_of_panel).next_multiple_of(8);
    if panels * work_of_panel < PARALLEL_MIN || panels <= per_task {
        dispatch(path, Part::<F> { task, panels: 0..panels });
    } else {
        // Tasks small enough to balance, large enough to be efficient.
        let per_task = per_task.max((panels / (4 * rayon::current_num_threads())).next_multiple_of(8));
        (0..panels.div_ceil(per_task)).into_par_iter().for_each(|number| {
            let from = number * per_task;
            dispatch(path, Part::<F> { task, panels: from..panels.min(from + per_task) });
        });
    }
}

/// All of a product.
#[derive(Clone, Copy)]
struct Task<'a, X> {
    x: X,
    rows: usize,
    weight: &'a Panels,
    y: Columns<'a>,
}

/// A range of panels over all rows.
struct Part<'a, F: Format> {
    task: Task<'a, F::X<'a>>,
    panels: std::ops::Range<usize>,
}

impl<F: Format> Kernel for Part<'_, F> {
    type Output = ();

    /// Each group of panels is applied to all rows before the next is read, so weights are read from memory once.
    #[inline(always)]
    fn run<V: Lanes>(self) {
        let mut panel = self.panels.start;
        while panel < self.panels.end {
            panel += F::group::<V>(&self.task, panel, self.panels.end - panel);
        }
    }
}

/// A type of weights: the computation and the size of a tile of rows and panels.
trait Format: Send + Sync + Sized {
    type X<'a>: Copy + Send + Sync;

    /// Computes all rows for some of the `left` panels starting at `panel`; returns how many panels.
    fn group<V: Lanes>(task: &Task<'_, Self::X<'_>>, panel: usize, left: usize) -> usize;

    /// `R` rows × `P` panels with every sum in a register.
    fn tile<V: Lanes, const R: usize, const P: usize>(task: &Task<'_, Self::X<'_>>, row: usize, panel: usize);

    /// Computes all rows for `P` panels, `R` rows at a time, the rest in tiles of four, two and one.
    #[inline(always)]
    fn rows<V: Lanes, const R: usize, const P: usize>(task: &Task<'_, Self::X<'_>>, panel: usize) -> usize {
        let mut row = 0;
        while row + R <= task.rows {
            Self::tile::<V, R, P>(task, row, panel);
            row += R;
        }
        if R > 4 && row + 4 <= task.rows {
            Self::tile::<V, 4, P>(task, row, panel);
            row += 4;
        }
        if R > 2 && row + 2 <= task.rows {
            Self::tile::<V, 2, P>(task, row, panel);
            row += 2;
        }
        while row < task.rows {
            Self::tile::<V, 1, P>(task, row, panel);
            row += 1;
        }
        P
    }
}

/// f32 weights.
struct Single;
/// bf16 weights.
struct Half;
/// `Q8_0` weights.
struct Bytes;
/// `Q4_K` weights.
struct Nibbles;

impl Format for Single {
    type X<'a> = Rows<'a>;

    #[inline(always)]
    fn group<V: Lanes>(task: &Task<'_, Rows<'_>>, panel: usize, left: usize) -> usize {
        match (V::WIDE, task.rows == 1) {
            (true, true) if left >= 8 => Self::rows::<V, 1, 8>(task, panel),
            (true, _) if left >= 4 => Self::rows::<V, 6, 4>(task, panel),
            (true, _) if left >= 2 => Self::rows::<V, 6, 2>(task, panel),
            (false, true) if left >= 4 => Self::rows::<V, 1, 4>(task, panel),
            (false, _) if left >= 2 => Self::rows::<V, 3, 2>(task, panel),
            _ => Self::rows::<V, 6, 1>(task, panel),
        }
    }

    #[inline(always)]
    fn tile<V: Lanes, const R: usize, const P: usize>(task: &Task<'_, Rows<'_>>, row: usize, panel: usize) {
        let inputs = task.weight.inputs();
        let lines = task.lines::<P>(panel);
        let x = task.x_rows::<R>(row);
        let mut sums = [[V::splat(0.0); P]; R];
        for i in 0..inputs {
            let mut w = [V::splat(0.0); P];
            for p in 0..P {
                // SAFETY: p·inputs + i < P·inputs, the length of `lines`.
                w[p] = unsafe { load(lines, p * inputs + i) };
            }
            for r in 0..R {
                // SAFETY: every row of x is `inputs` long.
                let x = V::splat(unsafe { *x[r].get_unchecked(i) });
                for p in 0..P {
                    sums[r][p] = x.mul_add(w[p], sums[r][p]);
                }
            }
        }
        task.store(row, panel, sums);
    }
}

impl Format for Half {
    type X<'a> = Rows<'a>;

    #[inline(always)]
    fn group<V: Lanes>(task: &Task<'_, Rows<'_>>, panel: usize, left: usize) -> usize {
        match (V::WIDE, task.rows == 1) {
            (true, true) if left >= 8 => Self::rows::<V, 1, 8>(task, panel),
            (true, _) if left >= 4 => Self::rows::<V, 4, 4>(task, panel),
            (true, _) if left >= 2 => Self::rows::<V, 6, 2>(task, panel),
            (false, _) if left >= 2 => Self::rows::<V, 2, 2>(task, panel),
            _ => Self::rows::<V, 4, 1>(task, panel),
        }
    }

    #[inline(always)]
    fn tile<V: Lanes, const R: usize, const P: usize>(task: &Task<'_, Rows<'_>>, row: usize, panel: usize) {
        let inputs = task.weight.inputs();
        let per_panel = inputs.div_ceil(2);
        let lines = task.lines::<P>(panel);
        let x = task.x_rows::<R>(row);
        let mut sums = [[V::splat(0.0); P]; R];
        for pair in 0..per_panel {
            let (mut first, mut second) = ([V::splat(0.0); P], [V::splat(0.0); P]);
            for p in 0..P {
                // SAFETY: p·per_panel + pair < P·per_panel, the length of `lines`.
                let both: V = unsafe { load(lines, p * per_panel + pair) };
                first[p] = both.int_shl::<16>();
                second[p] = both.int_and(!0xffff);
            }
            for r in 0..R {
                // SAFETY: every row of x is `inputs` long, and 2·pair below that.
                let x = V::splat(unsafe { *x[r].get_unchecked(2 * pair) });
                for p in 0..P {
                    sums[r][p] = x.mul_add(first[p], sums[r][p]);
                }
            }
            if 2 * pair + 1 < inputs {
                for r in 0..R {
                    // SAFETY: as above, by the condition.
                    let x = V::splat(unsafe { *x[r].get_unchecked(2 * pair + 1) });
                    for p in 0..P {
                        sums[r][p] = x.mul_add(second[p], sums[r][p]);
                    }
                }
            }
        }
        task.store(row, panel, sums);
    }
}

impl Format for Bytes {
    type X<'a> = &'a Quantised;

    #[inline(always)]
    fn group<V: Lanes>(task: &Task<'_, &Quantised>, panel: usize, left: usize) -> usize {
        match (V::WIDE, task.rows == 1) {
            (true, true) if left >= 8 => Self::rows::<V, 1, 8>(task, panel),
            (true, _) if left >= 3 => Self::rows::<V, 4, 3>(task, panel),
            (true, _) if left >= 2 => Self::rows::<V, 6, 2>(task, panel),
            (false, true) if left >= 2 => Self::rows::<V, 1, 2>(task, panel),
            _ => Self::rows::<V, 2, 1>(task, panel),
        }
    }

    #[inline(always)]
    fn tile<V: Lanes, const R: usize, const P: usize>(task: &Task<'_, &Quantised>, row: usize, panel: usize) {
        const LINES: usize = BLOCK / 4;
        let blocks = task.weight.inputs() / BLOCK;
        let lines = task.lines::<P>(panel);
        let Scales::Blocks(scales) = &task.weight.scales else { return };
        let scales = &scales[panel * blocks..][..P * blocks];
        let x = task.quantised_rows::<R>(row);
        let mut sums = [[V::splat(0.0); P]; R];
        for block in 0..blocks {
            let mut dots = [[V::splat(0.0); P]; R];
            for r in 0..R {
                dots[r] = [V::int_splat(x[r].1[block].offset); P];
            }
            for step in 0..LINES {
                let mut w = [V::splat(0.0); P];
                for p in 0..P {
                    // SAFETY: (p·blocks + block)·8 + step < P·blocks·8, the length of `lines`.
                    w[p] = unsafe { load(lines, (p * blocks + block) * LINES + step) };
                }
                for r in 0..R {
                    // SAFETY: a row has 8 integers of four a block.
                    let x = unsafe { *x[r].0.get_unchecked(block * LINES + step) };
                    for p in 0..P {
                        dots[r][p] = dots[r][p].dot4(w[p], x);
                    }
                }
            }
            let mut scale = [V::splat(0.0); P];
            for p in 0..P {
                scale[p] = V::load_f16(&scales[p * blocks + block]);
            }
            for r in 0..R {
                let by = V::splat(x[r].1[block].scale);
                for p in 0..P {
                    sums[r][p] = dots[r][p].int_to_float().mul_add(scale[p].mul(by), sums[r][p]);
                }
            }
        }
        task.store(row, panel, sums);
    }
}

impl Format for Nibbles {
    type X<'a> = &'a Quantised;

    #[inline(always)]
    fn group<V: Lanes>(task: &Task<'_, &Quantised>, panel: usize, left: usize) -> usize {
        match (V::WIDE, task.rows == 1) {
            (true, true) if left >= 4 => Self::rows::<V, 1, 4>(task, panel),
            (true, _) if left >= 2 => Self::rows::<V, 6, 2>(task, panel),
            _ => Self::rows::<V, 2, 1>(task, panel),
        }
    }

    #[inline(always)]
    fn tile<V: Lanes, const R: usize, const P: usize>(task: &Task<'_, &Quantised>, row: usize, panel: usize) {
        const LINES: usize = BLOCK / 8;
        const SUBS: usize = SUPER / BLOCK;
        let supers = task.weight.inputs() / SUPER;
        let lines = task.lines::<P>(panel);
        let Scales::Supers(scales) = &task.weight.scales else { return };
        let scales = &scales[panel * supers..][..P * supers];
        let x = task.quantised_rows::<R>(row);
        let mut sums = [[V::splat(0.0); P]; R];
        for block in 0..supers * SUBS {
            let (whole, sub) = (block / SUBS, block % SUBS);
            let mut dots = [[V::int_splat(0); P]; R];
            for step in 0..LINES {
                let (mut first, mut second) = ([V::splat(0.0); P], [V::splat(0.0); P]);
                for p in 0..P {
                    // SAFETY: (p·supers·8 + block)·4 + step < P·supers·32, the length of `lines`.
                    let both: V = unsafe { load(lines, (p * supers * SUBS + block) * LINES + step) };
                    first[p] = both.int_and(0x0f0f_0f0f);
                    second[p] = both.int_shr::<4>().int_and(0x0f0f_0f0f);
                }
                for r in 0..R {
                    let at = 2 * (block * LINES + step);
                    // SAFETY: a row has 8 integers of four a block, two a line.
                    let (low, high) = unsafe { (*x[r].0.get_unchecked(at), *x[r].0.get_unchecked(at + 1)) };
                    for p in 0..P {
                        dots[r][p] = dots[r][p].dot4(first[p], low);
                    }
                    for p in 0..P {
                        dots[r][p] = dots[r][p].dot4(second[p], high);
                    }
                }
            }
            let (mut scale, mut minimum) = ([V::splat(0.0); P], [V::splat(0.0); P]);
            for p in 0..P {
                let scales = &scales[p * supers + whole];
                // Exact: 11 bits by 6.
                scale[p] = V::load_f16(&scales.scale).mul(V::load_u8(&scales.scales[sub]));
                minimum[p] = V::load_f16(&scales.minimum).mul(V::load_u8(&scales.minima[sub]));
            }
            for r in 0..R {
                let (by, below) = (V::splat(x[r].1[block].scale), V::splat(x[r].1[block].below));
                for p in 0..P {
                    let sum = dots[r][p].int_to_float().mul_add(scale[p].mul(by), sums[r][p]);
                    sums[r][p] = minimum[p].mul_add(below, sum);
                }
            }
        }
        task.store(row, panel, sums);
    }
}

/// Line number `at` of `lines`.
///
/// # Safety
/// There is such a line.
#[inline(always)]
unsafe fn load<V: Lanes>(lines: &[Line], at: usize) -> V {
    // SAFETY: within `lines` by the caller's promise; a line is sixteen words of 32 bits.
    unsafe { V::load_ptr(lines.as_ptr().add(at).cast()) }
}

impl<X> Task<'_, X> {
    /// The lines of `P` panels starting at `panel`.
    #[inline(always)]
    fn lines<const P: usize>(&self, panel: usize) -> &[Line] {
        let of_panel = self.weight.lines_of_panel();
        &self.weight.lines[panel * of_panel..][..P * of_panel]
    }

    #[inline(always)]
    fn store<V: Lanes, const R: usize, const P: usize>(&self, row: usize, panel: usize, sums: [[V; P]; R]) {
        for r in 0..R {
            for p in 0..P {
                let from = (panel + p) * LANES;
                let len = LANES.min(self.weight.outputs() - from);
                // SAFETY: these columns belong to this task's panels, and the slice ends with the statement.
                sums[r][p].store_part(unsafe { self.y.slice(row + r, from, len) });
            }
        }
    }
}

impl<'a> Task<'a, Rows<'a>> {
    #[inline(always)]
    fn x_rows<const R: usize>(&self, row: usize) -> [&'a [f32]; R] {
        let mut x: [&[f32]; R] = [&[]; R];
        for r in 0..R {
            x[r] = self.x.get(row + r, self.weight.inputs());
        }
        x
    }
}

impl<'a> Task<'a, &'a Quantised> {
    #[inline(always)]
    fn quantised_rows<const R: usize>(&self, row: usize) -> [(&'a [i32], &'a [Scaled]); R] {
        let mut x: [(&[i32], &[Scaled]); R] = [(&[], &[]); R];
        for r in 0..R {
            x[r] = self.x.row(row + r);
        }
        x
    }
}
