//! The scan of Mamba-2 (Dao & Gu 2024, arXiv:2405.21060): one decay per head, prefill and decode in one function.
//!
//! For each head and step, with p over the head and n over the state:
//!
//! ```text
//! Δ   = clamp(softplus(delta_raw + dt_bias), dt_limit)           (one number per head)
//! hₙₚ = exp((gain_decay·Δ)·a)·hₙₚ + ((gain_write·Δ)·xₚ)·bₙ          (one fused multiply-add)
//! yₚ  = Σₙ hₙₚ·cₙ + d·xₚ                                          (one chain over n in rising order; one more for d)
//! ```
//!
//! This is the recurrence itself, step by step. The paper's chunked form turns a chunk of steps into matrix products, but
//! adds the terms in an order that depends on the chunk length, so prefill and decode would differ in their last bits. The
//! GPU kernels, which promise only a tolerance, use the chunked form; here the recurrence is vectorised across the head. Gains as in [`selective_scan`](crate::selective_scan).

use rayon::prelude::*;

use crate::dispatch::{Kernel, Path, active_path, dispatch};
use crate::lanes::{LANES, Lanes};
use crate::math::{exp, softplus};
use crate::rows::{Columns, Rows};

/// One sequence's segment of `len` ≥ 1 steps; y has `len · heads · head_dim` numbers, which determines `len`.
#[derive(Debug, Clone, Copy)]
pub struct HeadScan<'a> {
    /// Input after the convolution, `[len, heads · head_dim]`.
    pub x: Rows<'a>,
    /// Δ before bias and softplus, [len, heads].
    pub delta_raw: Rows<'a>,
    /// [heads].
    pub dt_bias: &'a [f32],
    /// Δ is clamped to this range, after the softplus and before the gains.
    pub dt_limit: (f32, f32),
    /// −exp(`A_log`), [heads].
    pub a: &'a [f32],
    /// `[len, groups · d_state]`; heads share the groups evenly, in order.
    pub b: Rows<'a>,
    /// `[len, groups · d_state]`.
    pub c: Rows<'a>,
    /// Skip weight, [heads].
    pub d: &'a [f32],
    /// Numbers in a head.
    pub head_dim: usize,
    /// Numbers of state per number of a head.
    pub d_state: usize,
    /// Groups of heads that share b and c.
    pub groups: usize,
    /// Multiplies Δ where it decays the state; 1 is off.
    pub gain_decay: f32,
    /// Multiplies Δ where it writes to the state; 1 is off.
    pub gain_write: f32,
}

/// Fewer state updates than this run on the calling thread.
const PARALLEL_MIN: usize = 1 << 17;

/// Runs the segment: `state` `[heads, d_state, head_dim]` is advanced, y `[len, heads · head_dim]` written. Parallel over
/// heads in rayon's current pool if the work is large enough.
///
/// # Panics
/// If the dims disagree.
pub fn head_scan(scan: &HeadScan<'_>, state: &mut [f32], y: &mut [f32]) {
    head_scan_on(active_path(), scan, state, y);
}

pub(crate) fn head_scan_on(path: Path, scan: &HeadScan<'_>, state: &mut [f32], y: &mut [f32]) {
    let &HeadScan { head_dim, d_state, groups, .. } = scan;
    let heads = scan.d.len();
    assert!(heads > 0 && head_dim > 0 && d_state > 0, "head_scan: {heads} heads of {head_dim}, state {d_state}");
    let (width, one) = (heads * head_dim, d_state * head_dim);
    let len = y.len() / width;
    assert!(groups > 0 && heads.is_multiple_of(groups), "head_scan: {heads} heads in {groups} groups");
    assert_eq!(scan.a.len(), heads, "head_scan: a is not [{heads}]");
    assert_eq!(scan.dt_bias.len(), heads, "head_scan: dt_bias is not [{heads}]");
    assert_eq!(state.len(), heads * one, "head_scan: state is not [{heads}, {d_state}, {head_dim}]");
    scan.x.check("head_scan x", len, width);
    scan.delta_raw.check("head_scan delta_raw", len, heads);
    scan.b.check("head_scan b", len, groups * d_state);
    scan.c.check("head_scan c", len, groups * d_state);
    let y = Columns::new("head_scan y", y, len, width);
    let run = |(head, state): (usize, &mut [f32])| dispatch(path, OneHead { scan, head, state, y, len });
    if len * heads * one < PARALLEL_MIN {
        state.chunks_exact_mut(one).enumerate().for_each(run);
    } else {
        state.par_chunks_exact_mut(one).enumerate().for_each(run);
    }
}

struct OneHead<'a> {
    scan: &'a HeadScan<'a>,
    head: usize,
    /// `[d_state, head_dim]`
    state: &'a mut [f32],
    y: Columns<'a>,
    len: usize,
}

impl Kernel for OneHead<'_> {
    type Output = ();

    /// Sixteen steps at a time: Δ and the decay with lanes across steps, the state with lanes across the head.
    #[inline(always)]
    fn run<V: Lanes>(self) {
        let Self { scan, head, state, y, len } = self;
        let &HeadScan { head_dim, d_state, groups, .. } = scan;
        let heads = scan.d.len();
        let group = head / (heads / groups) * d_state;
        let mut from = 0;
        while from < len {
            let steps = LANES.min(len - from);
            let mut raw = [0.0; LANES];
            for i in 0..steps {
                raw[i] = scan.delta_raw.get(from + i, heads)[head];
            }
            let delta = softplus(V::load(&raw).add(V::splat(scan.dt_bias[head])));
            // In this order NaN stays NaN.
            let delta = V::splat(scan.dt_limit.1).min(V::splat(scan.dt_limit.0).max(delta));
            let (mut decay, mut write) = ([0.0; LANES], [0.0; LANES]);
            exp(V::splat(scan.gain_decay).mul(delta).mul(V::splat(scan.a[head]))).store(&mut decay);
            V::splat(scan.gain_write).mul(delta).store(&mut write);
            for i in 0..steps {
                let t = from + i;
                let step = Step {
                    x: &scan.x.get(t, heads * head_dim)[head * head_dim..][..head_dim],
                    b: &scan.b.get(t, groups * d_state)[group..][..d_state],
                    c: &scan.c.get(t, groups * d_state)[group..][..d_state],
                    decay: V::splat(decay[i]),
                    write: V::splat(write[i]),
                    skip: V::splat(scan.d[head]),
                };
                // SAFETY: these columns belong to this head, and the slice ends with the step.
                let y = unsafe { y.slice(t, head * head_dim, head_dim) };
                let mut p = 0;
                while p + 4 * LANES <= head_dim {
                    step.tile::<4>(state, p, y);
                    p += 4 * LANES;
                }
                while p + LANES <= head_dim {
                    step.tile::<1>(state, p, y);
                    p += LANES;
                }
                if p < head_dim {
                    step.rest(state, p, y);
                }
            }
            from += LANES;
        }
    }
}

struct Step<'a, V> {
    x: &'a [f32],
    b: &'a [f32],
    c: &'a [f32],
    decay: V,
    write: V,
    skip: V,
}

impl<V: Lanes> Step<'_, V> {
    /// Numbers `p .. p + 16·P` of the head.
    #[inline(always)]
    fn tile<const P: usize>(&self, state: &mut [f32], p: usize, y: &mut [f32]) {
        let head_dim = self.x.len();
        assert!(p + P * LANES <= head_dim && state.len() == self.b.len() * head_dim && self.b.len() == self.c.len());
        let (mut x, mut write, mut sums) = ([V::splat(0.0); P], [V::splat(0.0); P], [V::splat(0.0); P]);
        for i in 0..P {
            x[i] = V::load_part(&self.x[p + i * LANES..][..LANES], 0.0);
            write[i] = self.write.mul(x[i]);
        }
        for n in 0..self.b.len() {
            let (b, c) = (V::splat(self.b[n]), V::splat(self.c[n]));
            for i in 0..P {
                // SAFETY: n < d_state and p + P·16 ≤ head_dim, so this lies within d_state·head_dim, the length of
                // `state`; sixteen numbers of f32 have the alignment of f32.
                let h = unsafe { &mut *state.as_mut_ptr().add(n * head_dim + p + i * LANES).cast::<[f32; LANES]>() };
                let new = self.decay.mul_add(V::load(h), write[i].mul(b));
                new.store(h);
                sums[i] = new.mul_add(c, sums[i]);
            }
        }
        for i in 0..P {
            self.skip.mul_add(x[i], sums[i]).store_part(&mut y[p + i * LANES..][..LANES]);
        }
    }

    /// The numbers from `p` on, fewer than sixteen.
    #[inline(always)]
    fn rest(&self, state: &mut [f32], p: usize, y: &mut [f32]) {
        let x = V::load_part(&self.x[p..], 0.0);
        let (write, mut sum) = (self.write.mul(x), V::splat(0.0));
        for ((h, &b), &c) in state.chunks_exact_mut(self.x.len()).zip(self.b).zip(self.c) {
            let new = self.decay.mul_add(V::load_part(&h[p..], 0.0), write.mul(V::splat(b)));
            new.store_part(&mut h[p..]);
            sum = new.mul_add(V::splat(c), sum);
        }
        self.skip.mul_add(x, sum).store_part(&mut y[p..]);
    }
}
