//! Root-mean-square normalisation (Zhang & Sennrich 2019) and layer normalisation (Ba et al. 2016).

use crate::dispatch::{Kernel, Path, active_path, dispatch};
use crate::lanes::{LANES, Lanes};

/// y = (x · 1/√(mean(x²) + eps)) · weight, per row of `weight.len()` numbers.
///
/// The squares are summed in sixteen lanes (element i in lane i mod 16), then over the lanes in the fixed tree. A row whose
/// squares overflow becomes NaN.
///
/// # Panics
/// Unless x and y have the same length, whole rows.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    rms_norm_on(active_path(), x, weight, eps, y);
}

pub(crate) fn rms_norm_on(path: Path, x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "rms_norm: x and y");
    if x.is_empty() {
        return;
    }
    assert!(!weight.is_empty() && x.len().is_multiple_of(weight.len()), "rms_norm: x is not rows of {}", weight.len());
    dispatch(path, Norm { x, weight, eps, y });
}

struct Norm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    y: &'a mut [f32],
}

impl Kernel for Norm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        let width = self.weight.len();
        for (x, y) in self.x.chunks_exact(width).zip(self.y.chunks_exact_mut(width)) {
            let mut squares = V::splat(0.0);
            for part in x.chunks(LANES) {
                let x = V::load_part(part, 0.0);
                squares = x.mul_add(x, squares);
            }
            let scale = V::splat(inverse(squares.sum() / width as f32 + self.eps));
            for ((x, w), y) in x.chunks(LANES).zip(self.weight.chunks(LANES)).zip(y.chunks_mut(LANES)) {
                V::load_part(x, 0.0).mul(scale).mul(V::load_part(w, 0.0)).store_part(y);
            }
        }
    }
}

/// 1/√mean. A mean that overflowed is NaN: scaling by 0 would turn a state that is out of range into plausible zeros.
#[inline(always)]
fn inverse(mean: f32) -> f32 {
    if mean == f32::INFINITY { f32::NAN } else { 1.0 / mean.sqrt() }
}

/// y = (x − mean) · 1/√(variance + eps) · weight + bias, per row of `weight.len()` numbers; the variance divides by
/// the row length n, not n − 1.
///
/// Both sums run in sixteen lanes (element i in lane i mod 16), then over the lanes in the fixed tree.
///
/// # Panics
/// Unless x and y have the same length, whole rows, and the bias is as long as the weight.
pub fn layer_norm(x: &[f32], weight: &[f32], bias: &[f32], eps: f32, y: &mut [f32]) {
    layer_norm_on(active_path(), x, weight, bias, eps, y);
}

pub(crate) fn layer_norm_on(path: Path, x: &[f32], weight: &[f32], bias: &[f32], eps: f32, y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "layer_norm: x and y");
    assert_eq!(weight.len(), bias.len(), "layer_norm: weight and bias");
    if x.is_empty() {
        return;
    }
    assert!(
        !weight.is_empty() && x.len().is_multiple_of(weight.len()),
        "layer_norm: x is not rows of {}",
        weight.len()
    );
    dispatch(path, Layer { x, weight, bias, eps, y });
}

struct Layer<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    bias: &'a [f32],
    eps: f32,
    y: &'a mut [f32],
}

impl Kernel for Layer<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        let width = self.weight.len();
        for (x, y) in self.x.chunks_exact(width).zip(self.y.chunks_exact_mut(width)) {
            let mut sum = V::splat(0.0);
            for part in x.chunks(LANES) {
                sum = sum.add(V::load_part(part, 0.0));
            }
            let mean = sum.sum() / width as f32;
            let mut squares = V::splat(0.0);
            for part in x.chunks(LANES) {
                // Lanes beyond the row contribute 0.
                let off = V::load_part(part, mean).sub(V::splat(mean));
                squares = off.mul_add(off, squares);
            }
            let scale = V::splat(inverse(squares.sum() / width as f32 + self.eps));
            let weights = self.weight.chunks(LANES).zip(self.bias.chunks(LANES));
            for ((x, (w, b)), y) in x.chunks(LANES).zip(weights).zip(y.chunks_mut(LANES)) {
                let x = V::load_part(x, 0.0).sub(V::splat(mean)).mul(scale);
                x.mul_add(V::load_part(w, 0.0), V::load_part(b, 0.0)).store_part(y);
            }
        }
    }
}
