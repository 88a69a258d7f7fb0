//! The reference: plain Rust on arrays. It defines the bits that every other path must give.
//!
//! On x86 without FMA, `mul_add` is a library call: slow, and right.

use super::{LANES, Lanes};
use crate::half::f16_to_f32;

#[derive(Clone, Copy)]
pub(crate) struct Portable([f32; LANES]);

macro_rules! lanewise {
    ($f:expr) => {{
        let mut out = [0.0; LANES];
        for i in 0..LANES {
            out[i] = $f(i);
        }
        Self(out)
    }};
}

impl Portable {
    #[inline(always)]
    fn int(self, i: usize) -> i32 {
        self.0[i].to_bits().cast_signed()
    }
}

#[inline(always)]
fn bits(x: i32) -> f32 {
    f32::from_bits(x.cast_unsigned())
}

#[inline(always)]
fn unsigned_bytes(x: f32) -> [i32; 4] {
    x.to_bits().to_le_bytes().map(i32::from)
}

impl Lanes for Portable {
    const WIDE: bool = false;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Self([x; LANES])
    }
    #[inline(always)]
    fn load(x: &[f32; LANES]) -> Self {
        Self(*x)
    }
    #[inline(always)]
    fn store(self, y: &mut [f32; LANES]) {
        *y = self.0;
    }
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        lanewise!(|i: usize| self.0[i] + b.0[i])
    }
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        lanewise!(|i: usize| self.0[i] - b.0[i])
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        lanewise!(|i: usize| self.0[i] * b.0[i])
    }
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        lanewise!(|i: usize| self.0[i] / b.0[i])
    }
    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        lanewise!(|i: usize| self.0[i].mul_add(b.0[i], c.0[i]))
    }
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        lanewise!(|i: usize| if self.0[i] > b.0[i] { self.0[i] } else { b.0[i] })
    }
    #[inline(always)]
    fn min(self, b: Self) -> Self {
        lanewise!(|i: usize| if self.0[i] < b.0[i] { self.0[i] } else { b.0[i] })
    }
    #[inline(always)]
    fn select_gt(self, b: Self, yes: Self, no: Self) -> Self {
        lanewise!(|i: usize| if self.0[i] > b.0[i] { yes.0[i] } else { no.0[i] })
    }
    #[inline(always)]
    fn mask_gt(self, b: Self) -> u32 {
        let mut mask = 0;
        for i in 0..LANES {
            mask |= u32::from(self.0[i] > b.0[i]) << i;
        }
        mask
    }
    #[inline(always)]
    fn int_add(self, k: i32) -> Self {
        lanewise!(|i: usize| bits(self.int(i).wrapping_add(k)))
    }
    #[inline(always)]
    fn int_sub(self, b: Self) -> Self {
        lanewise!(|i: usize| bits(self.int(i).wrapping_sub(b.int(i))))
    }
    #[inline(always)]
    fn int_sar<const N: u32>(self) -> Self {
        lanewise!(|i: usize| bits(self.int(i) >> N))
    }
    #[inline(always)]
    fn int_shl<const N: u32>(self) -> Self {
        lanewise!(|i: usize| bits(self.int(i) << N))
    }
    #[inline(always)]
    fn int_to_float(self) -> Self {
        lanewise!(|i: usize| self.int(i) as f32)
    }
    #[inline(always)]
    fn int_shr<const N: u32>(self) -> Self {
        lanewise!(|i: usize| f32::from_bits(self.0[i].to_bits() >> N))
    }
    #[inline(always)]
    fn int_and(self, k: i32) -> Self {
        lanewise!(|i: usize| bits(self.int(i) & k))
    }
    #[inline(always)]
    fn dot4(self, w: Self, x: i32) -> Self {
        let x = x.to_le_bytes().map(|x| i32::from(x.cast_signed()));
        lanewise!(|i: usize| {
            let w = unsigned_bytes(w.0[i]);
            let sum = w[0] * x[0] + w[1] * x[1] + w[2] * x[2] + w[3] * x[3];
            bits(self.int(i).wrapping_add(sum))
        })
    }
    #[inline(always)]
    fn load_f16(x: &[u16; LANES]) -> Self {
        lanewise!(|i: usize| f16_to_f32(x[i]))
    }
    #[inline(always)]
    fn load_u8(x: &[u8; LANES]) -> Self {
        lanewise!(|i: usize| f32::from(x[i]))
    }
    #[inline(always)]
    fn sum(self) -> f32 {
        let mut x = self.0;
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                x[i] += x[i + half];
            }
            half /= 2;
        }
        x[0]
    }
}
