//! Activations: the gates of `SwiGLU`, Mamba-2 and `GeGLU`, BERT's GELU, and soft caps.

use std::f32::consts::FRAC_1_SQRT_2;

use crate::dispatch::{Kernel, Path, active_path, dispatch};
use crate::lanes::{LANES, Lanes};
use crate::math::{exp, silu, tanh};
use crate::rows::Rows;

/// y[r, i] = silu(gate[r, i]) · y[r, i], for rows of `width` numbers (Shazeer 2020, arXiv:2002.05202).
///
/// # Panics
/// If y is not whole rows of `width`, or the gate has fewer rows.
pub fn silu_gate(gate: Rows<'_>, width: usize, y: &mut [f32]) {
    gate_on(active_path(), Gate::Silu, gate, width, y);
}

/// y[r, i] = gelu(gate[r, i]) · y[r, i], for rows of `width` numbers (Shazeer 2020, arXiv:2002.05202), with GELU in its
/// approximation by tanh: x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³))) (Hendrycks & Gimpel 2016, arXiv:1606.08415).
///
/// # Panics
/// If y is not whole rows of `width`, or the gate has fewer rows.
pub fn gelu_tanh_gate(gate: Rows<'_>, width: usize, y: &mut [f32]) {
    gate_on(active_path(), Gate::GeluTanh, gate, width, y);
}

/// The function of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    Silu,
    GeluTanh,
}

pub(crate) fn gate_on(path: Path, function: Gate, gate: Rows<'_>, width: usize, y: &mut [f32]) {
    if y.is_empty() {
        return;
    }
    assert!(width > 0 && y.len().is_multiple_of(width), "gate: y is not rows of {width}");
    gate.check("gate", y.len() / width, width);
    dispatch(path, Gating { function, gate, width, y });
}

struct Gating<'a> {
    function: Gate,
    gate: Rows<'a>,
    width: usize,
    y: &'a mut [f32],
}

impl Kernel for Gating<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        for (row, y) in self.y.chunks_exact_mut(self.width).enumerate() {
            for (gate, y) in self.gate.get(row, self.width).chunks(LANES).zip(y.chunks_mut(LANES)) {
                let gate = V::load_part(gate, 0.0);
                let gate = match self.function {
                    Gate::Silu => silu(gate),
                    Gate::GeluTanh => gelu_tanh(gate),
                };
                gate.mul(V::load_part(y, 0.0)).store_part(y);
            }
        }
    }
}

#[inline(always)]
fn gelu_tanh<V: Lanes>(x: V) -> V {
    /// √(2/π).
    const SCALE: f32 = 0.797_884_6;
    let inner = x.mul(x).mul(x).mul_add(V::splat(0.044_715), x).mul(V::splat(SCALE));
    x.mul(V::splat(0.5)).mul(V::splat(1.0).add(tanh(inner)))
}

/// Replaces every x by `cap` · tanh(x / `cap`) (Gemma Team 2024, arXiv:2408.00118).
pub fn soft_cap(cap: f32, x: &mut [f32]) {
    soft_cap_on(active_path(), cap, x);
}

pub(crate) fn soft_cap_on(path: Path, cap: f32, x: &mut [f32]) {
    dispatch(path, Capping { cap, x });
}

struct Capping<'a> {
    cap: f32,
    x: &'a mut [f32],
}

impl Kernel for Capping<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        for part in self.x.chunks_mut(LANES) {
            capped(V::load_part(part, 0.0), self.cap).store_part(part);
        }
    }
}

/// `cap` · tanh(x / `cap`).
#[inline(always)]
pub(crate) fn capped<V: Lanes>(x: V, cap: f32) -> V {
    tanh(x.div(V::splat(cap))).mul(V::splat(cap))
}

/// Replaces every x by x · Φ(x), the exact GELU (Hendrycks & Gimpel 2016, arXiv:1606.08415), with Φ by formula 7.1.26 of
/// Abramowitz & Stegun: within 2e-7 · max(1, |x|).
pub fn gelu(x: &mut [f32]) {
    gelu_on(active_path(), x);
}

pub(crate) fn gelu_on(path: Path, x: &mut [f32]) {
    dispatch(path, Gelu(x));
}

struct Gelu<'a>(&'a mut [f32]);

impl Kernel for Gelu<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        /// erfc z = (a₁t + … + a₅t⁵)·e^(−z²), t = 1/(1 + p·z), highest power first.
        const A: [f32; 5] = [1.061_405_4, -1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6];
        const P: f32 = 0.327_591_1;
        for part in self.0.chunks_mut(LANES) {
            let x = V::load_part(part, 0.0);
            let zero = V::splat(0.0);
            let z = x.max(zero.sub(x)).mul(V::splat(FRAC_1_SQRT_2));
            let t = V::splat(1.0).div(V::splat(P).mul_add(z, V::splat(1.0)));
            let mut sum = V::splat(A[0]);
            for &a in &A[1..] {
                sum = sum.mul_add(t, V::splat(a));
            }
            // Φ(−|x|).
            let tail = sum.mul(t).mul(exp(zero.sub(z.mul(z)))).mul(V::splat(0.5));
            let phi = zero.select_gt(x, tail, V::splat(1.0).sub(tail));
            x.mul(phi).store_part(part);
        }
    }
}
