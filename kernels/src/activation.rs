//! Activations: `SiLU` gate of `SwiGLU` and of Mamba-2, and BERT's GELU.

use std::f32::consts::FRAC_1_SQRT_2;

use crate::dispatch::{Kernel, Path, active_path, dispatch};
use crate::lanes::{LANES, Lanes};
use crate::math::{exp, silu};
use crate::rows::Rows;

/// y[r, i] = silu(gate[r, i]) · y[r, i], for rows of `width` numbers (Shazeer 2020, arXiv:2002.05202).
///
/// # Panics
/// If y is not whole rows of `width`, or the gate has fewer rows.
pub fn silu_gate(gate: Rows<'_>, width: usize, y: &mut [f32]) {
    silu_gate_on(active_path(), gate, width, y);
}

pub(crate) fn silu_gate_on(path: Path, gate: Rows<'_>, width: usize, y: &mut [f32]) {
    if y.is_empty() {
        return;
    }
    assert!(width > 0 && y.len().is_multiple_of(width), "silu_gate: y is not rows of {width}");
    gate.check("silu_gate", y.len() / width, width);
    dispatch(path, Gating { gate, width, y });
}

struct Gating<'a> {
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
                silu(V::load_part(gate, 0.0)).mul(V::load_part(y, 0.0)).store_part(y);
            }
        }
    }
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
