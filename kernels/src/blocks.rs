//! Block formats: GGML's `Q8_0` and `Q4_K` (ggml-common.h) to the byte, and the activations of integer products.

use rayon::prelude::*;

use crate::dispatch::{Kernel, Path, dispatch};
use crate::half::{f16_to_f32, f32_to_f16};
use crate::lanes::{LANES, Lanes, ROUND};
use crate::rows::Rows;

/// Numbers that share a scale in `Q8_0`, and a scale and a minimum within `Q4_K`.
pub(crate) const BLOCK: usize = 32;
/// Numbers of a `Q4_K` superblock.
pub(crate) const SUPER: usize = 256;
/// Bytes of a `Q8_0` block: an f16 scale, 32 × i8.
pub(crate) const Q8_0_BYTES: usize = 2 + BLOCK;
/// Bytes of a `Q4_K` superblock: f16 scale and minimum, 8 × (6 + 6) bits, 256 × 4 bits.
pub(crate) const Q4_K_BYTES: usize = 4 + 12 + SUPER / 2;

fn nearest(x: f32) -> f32 {
    x.round_ties_even()
}

/// One `Q8_0` block: the scale is the largest magnitude over 127.
pub(crate) fn to_q8_0(x: &[f32], block: &mut [u8]) {
    let scale = x.iter().fold(0.0f32, |max, x| max.max(x.abs())) / 127.0;
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    block[..2].copy_from_slice(&f32_to_f16(scale).to_le_bytes());
    for (byte, x) in block[2..].iter_mut().zip(x) {
        *byte = (nearest(x * inverse) as i8).cast_unsigned();
    }
}

/// One `Q4_K` superblock. For each block of 32 the scale and minimum with the least squared error are searched: several
/// initial guesses, each refined by least squares on its levels.
pub(crate) fn to_q4_k(x: &[f32], block: &mut [u8]) {
    let fits: Vec<_> = x.chunks_exact(BLOCK).map(fit).collect();
    let largest = |of: fn(&(f32, f32)) -> f32| fits.iter().map(of).fold(0.0, f32::max);
    let (scale, minimum) = (f32_to_f16(largest(|f| f.0) / 63.0), f32_to_f16(largest(|f| f.1) / 63.0));
    block[..2].copy_from_slice(&scale.to_le_bytes());
    block[2..4].copy_from_slice(&minimum.to_le_bytes());
    let (scale, minimum) = (f16_to_f32(scale), f16_to_f32(minimum));
    let share = |part: f32, whole: f32| if whole > 0.0 { nearest(part / whole).clamp(0.0, 63.0) } else { 0.0 };
    let (mut scales, mut minima) = ([0u8; 8], [0u8; 8]);
    let quants = &mut block[16..];
    quants.fill(0);
    for (at, (&(s, m), x)) in fits.iter().zip(x.chunks_exact(BLOCK)).enumerate() {
        let (s, m) = (share(s, scale), share(m, minimum));
        (scales[at], minima[at]) = (s as u8, m as u8);
        let (step, low) = (scale * s, minimum * m);
        for (byte, x) in quants[at / 2 * BLOCK..].iter_mut().zip(x) {
            let level = if step > 0.0 { nearest((x + low) / step).clamp(0.0, 15.0) } else { 0.0 };
            *byte |= (level as u8) << (at % 2 * 4);
        }
    }
    for at in 0..4 {
        block[4 + at] = scales[at] | scales[at + 4] >> 4 << 6;
        block[8 + at] = minima[at] | minima[at + 4] >> 4 << 6;
        block[12 + at] = scales[at + 4] & 15 | minima[at + 4] << 4;
    }
}

/// The scale s and minimum m ≥ 0 with x ≈ s·level − m for levels 0..=15.
fn fit(x: &[f32]) -> (f32, f32) {
    let (low, high) = x.iter().fold((0.0f32, 0.0f32), |(low, high), &x| (low.min(x), high.max(x)));
    if high <= low {
        return (0.0, -low);
    }
    let mut best = (f32::INFINITY, 0.0, 0.0);
    for guess in 0..12 {
        let inverse = (13.9 + 0.2 * guess as f32) / (high - low);
        let (mut l1, mut l2, mut lx, mut sx) = (0.0f32, 0.0f32, 0.0f32, 0.0f32);
        for &x in x {
            let level = nearest((x - low) * inverse).clamp(0.0, 15.0);
            l1 += level;
            l2 += level * level;
            lx += level * x;
            sx += x;
        }
        // The least squares of x ≈ s·level − m, constrained to m ≥ 0.
        let n = BLOCK as f32;
        let determinant = n * l2 - l1 * l1;
        if determinant <= 0.0 {
            continue;
        }
        let (mut s, mut m) = ((n * lx - l1 * sx) / determinant, (l1 * lx - l2 * sx) / determinant);
        if m < 0.0 {
            (s, m) = (lx / l2, 0.0);
        }
        if s <= 0.0 {
            continue;
        }
        let off = |x: f32| s * nearest((x + m) / s).clamp(0.0, 15.0) - m - x;
        let error = x.iter().map(|&x| off(x) * off(x)).sum();
        if error < best.0 {
            best = (error, s, m);
        }
    }
    if best.0.is_finite() { (best.1, best.2) } else { ((high - low) / 15.0, -low) }
}

/// Scale and minimum number `at` of a superblock's twelve bytes: 6 bits each.
pub(crate) fn scale_and_minimum(bytes: &[u8], at: usize) -> (u8, u8) {
    if at < 4 {
        (bytes[at] & 63, bytes[at + 4] & 63)
    } else {
        let (low, high) = (bytes[at + 4], at - 4);
        (low & 15 | bytes[high] >> 6 << 4, low >> 4 | bytes[high + 4] >> 6 << 4)
    }
}

/// Rows of activations in blocks of 32: integers of −127..=127 times a scale, the largest magnitude over 127.
pub(crate) struct Quantised {
    /// Four 8-bit integers per i32, the first in the lowest byte.
    quants: Vec<i32>,
    blocks: Vec<Scaled>,
    inputs: usize,
}

/// Scale and offsets of a block of activations.
#[derive(Clone, Copy, Default)]
pub(crate) struct Scaled {
    /// NaN if the block contains a NaN or an infinity.
    pub(crate) scale: f32,
    /// −128·Σ of the integers: cancels the offset that makes `Q8_0` weights unsigned.
    pub(crate) offset: i32,
    /// −scale·Σ of the integers, for `Q4_K`'s minima.
    pub(crate) below: f32,
}

impl Quantised {
    /// Quantises rows; a block whose scale would be subnormal becomes zero. `inputs` is a multiple of 32. Allocates.
    pub(crate) fn new(path: Path, x: Rows<'_>, rows: usize, inputs: usize) -> Self {
        let mut all =
            Self { quants: vec![0; rows * inputs / 4], blocks: vec![Scaled::default(); rows * inputs / BLOCK], inputs };
        if inputs == 0 {
            return all;
        }
        let one = |(row, (quants, blocks)): (usize, (&mut [i32], &mut [Scaled]))| {
            dispatch(path, QuantiseRow { x: x.get(row, inputs), quants, blocks });
        };
        let (quants, blocks) = (&mut all.quants, &mut all.blocks);
        if rows >= 16 {
            let pairs = quants.par_chunks_exact_mut(inputs / 4).zip(blocks.par_chunks_exact_mut(inputs / BLOCK));
            pairs.enumerate().with_min_len(8).for_each(one);
        } else {
            let pairs = quants.chunks_exact_mut(inputs / 4).zip(blocks.chunks_exact_mut(inputs / BLOCK));
            pairs.enumerate().for_each(one);
        }
        all
    }

    /// A row's integers and scales.
    #[inline(always)]
    pub(crate) fn row(&self, row: usize) -> (&[i32], &[Scaled]) {
        let (quants, blocks) = (self.inputs / 4, self.inputs / BLOCK);
        (&self.quants[row * quants..][..quants], &self.blocks[row * blocks..][..blocks])
    }
}

struct QuantiseRow<'a> {
    x: &'a [f32],
    quants: &'a mut [i32],
    blocks: &'a mut [Scaled],
}

impl Kernel for QuantiseRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        for ((x, quants), block) in
            self.x.chunks_exact(BLOCK).zip(self.quants.chunks_exact_mut(BLOCK / 4)).zip(self.blocks)
        {
            let (a, b) = (V::load_part(&x[..LANES], 0.0), V::load_part(&x[LANES..], 0.0));
            let largest = a.int_and(i32::MAX).max(b.int_and(i32::MAX)).largest();
            // 0 for finite numbers, else NaN.
            let odd = a.mul(V::splat(0.0)).add(b.mul(V::splat(0.0))).sum();
            let mut scale = largest / 127.0;
            if scale < f32::MIN_POSITIVE {
                scale = 0.0;
            }
            let inverse = V::splat(if scale > 0.0 { 127.0 / largest } else { 0.0 });
            let (mut low, mut high) = ([0.0; LANES], [0.0; LANES]);
            // The low byte of x + 1.5·2²³ is the nearest integer to x.
            a.mul_add(inverse, V::splat(ROUND)).store(&mut low);
            b.mul_add(inverse, V::splat(ROUND)).store(&mut high);
            let mut sum = 0;
            for (four, quant) in quants.iter_mut().enumerate() {
                let from = if four < LANES / 4 { &low } else { &high };
                let mut bytes = [0; 4];
                for at in 0..4 {
                    bytes[at] = from[four % (LANES / 4) * 4 + at].to_bits() as u8;
                    sum += i32::from(bytes[at].cast_signed());
                }
                *quant = i32::from_le_bytes(bytes);
            }
            scale += odd;
            *block = Scaled { scale, offset: -128 * sum, below: -(scale * sum as f32) };
        }
    }
}
