//! Sixteen lanes in four NEON registers (Armv8.2 with dot products: Apple M, Neoverse, Cortex-A76 and later).

#[cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "intrinsics carry their own prefix"))]
use std::arch::aarch64::*;
use std::arch::asm;

use super::{LANES, Lanes};

#[derive(Clone, Copy)]
pub(crate) struct Neon([float32x4_t; 4]);

macro_rules! neon {
    ($e:expr) => {
        // SAFETY: this type is only named by `dispatch`, inside a function compiled for NEON and dot products and
        // entered after the processor reported both; loads and stores stay within references to sixteen numbers.
        unsafe { $e }
    };
}

/// The same for each register; inside, `$i` is its number.
macro_rules! each {
    ($i:ident => $e:expr) => {{
        let one = |$i: usize| neon!($e);
        Self([one(0), one(1), one(2), one(3)])
    }};
}

/// The same for each register as integers.
macro_rules! each_int {
    ($i:ident => $e:expr) => {
        each!($i => vreinterpretq_f32_s32($e))
    };
}

/// `sum` + Σ w·x over four signed bytes each (`SDOT`, whose intrinsic is not stable).
///
/// # Safety
/// The processor has dot products.
#[inline(always)]
unsafe fn sdot(mut sum: int32x4_t, w: int32x4_t, x: int32x4_t) -> int32x4_t {
    // SAFETY: registers in, one register out; the caller promises the instruction.
    unsafe {
        asm!("sdot {sum:v}.4s, {w:v}.16b, {x:v}.16b", sum = inout(vreg) sum, w = in(vreg) w, x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

impl Neon {
    #[inline(always)]
    fn int(self, i: usize) -> int32x4_t {
        neon!(vreinterpretq_s32_f32(self.0[i]))
    }
}

impl Lanes for Neon {
    const WIDE: bool = false;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Self([neon!(vdupq_n_f32(x)); 4])
    }
    #[inline(always)]
    fn load(x: &[f32; LANES]) -> Self {
        each!(i => vld1q_f32(x.as_ptr().add(4 * i)))
    }
    #[inline(always)]
    fn store(self, y: &mut [f32; LANES]) {
        for i in 0..4 {
            neon!(vst1q_f32(y.as_mut_ptr().add(4 * i), self.0[i]));
        }
    }
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        each!(i => vaddq_f32(self.0[i], b.0[i]))
    }
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        each!(i => vsubq_f32(self.0[i], b.0[i]))
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        each!(i => vmulq_f32(self.0[i], b.0[i]))
    }
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        each!(i => vdivq_f32(self.0[i], b.0[i]))
    }
    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        each!(i => vfmaq_f32(c.0[i], self.0[i], b.0[i]))
    }
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        self.select_gt(b, self, b)
    }
    #[inline(always)]
    fn min(self, b: Self) -> Self {
        b.select_gt(self, self, b)
    }
    #[inline(always)]
    fn select_gt(self, b: Self, yes: Self, no: Self) -> Self {
        each!(i => vbslq_f32(vcgtq_f32(self.0[i], b.0[i]), yes.0[i], no.0[i]))
    }
    #[inline(always)]
    fn mask_gt(self, b: Self) -> u32 {
        let mut mask = 0;
        for i in 0..4 {
            let bits = neon!(vandq_u32(vcgtq_f32(self.0[i], b.0[i]), vld1q_u32([1, 2, 4, 8].as_ptr())));
            mask |= neon!(vaddvq_u32(bits)) << (4 * i);
        }
        mask
    }
    #[inline(always)]
    fn int_add(self, k: i32) -> Self {
        each_int!(i => vaddq_s32(self.int(i), vdupq_n_s32(k)))
    }
    #[inline(always)]
    fn int_sub(self, b: Self) -> Self {
        each_int!(i => vsubq_s32(self.int(i), b.int(i)))
    }
    #[inline(always)]
    fn int_sar<const N: u32>(self) -> Self {
        each_int!(i => vshlq_s32(self.int(i), vdupq_n_s32(-N.cast_signed())))
    }
    #[inline(always)]
    fn int_shl<const N: u32>(self) -> Self {
        each_int!(i => vshlq_s32(self.int(i), vdupq_n_s32(N.cast_signed())))
    }
    #[inline(always)]
    fn int_to_float(self) -> Self {
        each!(i => vcvtq_f32_s32(self.int(i)))
    }
    #[inline(always)]
    fn int_shr<const N: u32>(self) -> Self {
        each!(i => vreinterpretq_f32_u32(vshlq_u32(vreinterpretq_u32_f32(self.0[i]), vdupq_n_s32(-N.cast_signed()))))
    }
    #[inline(always)]
    fn int_and(self, k: i32) -> Self {
        each_int!(i => vandq_s32(self.int(i), vdupq_n_s32(k)))
    }
    #[inline(always)]
    fn dot4(self, w: Self, x: i32) -> Self {
        // Less 128, w's bytes are signed: Σ w·x = Σ (w − 128)·x + 128·Σ x.
        let sum: i32 = x.to_le_bytes().into_iter().map(|x| i32::from(x.cast_signed())).sum();
        let signed = i32::from_le_bytes([0x80; 4]);
        each_int!(i => {
            let from = vaddq_s32(self.int(i), vdupq_n_s32(128 * sum));
            sdot(from, veorq_s32(w.int(i), vdupq_n_s32(signed)), vdupq_n_s32(x))
        })
    }
    #[inline(always)]
    fn load_f16(x: &[u16; LANES]) -> Self {
        each!(i => vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x.as_ptr().add(4 * i)))))
    }
    #[inline(always)]
    fn load_u8(x: &[u8; LANES]) -> Self {
        let x = neon!(vld1q_u8(x.as_ptr()));
        let halves = neon!([vmovl_u8(vget_low_u8(x)), vmovl_u8(vget_high_u8(x))]);
        each!(i => {
            let half = halves[i / 2];
            let four = if i % 2 == 0 { vget_low_u16(half) } else { vget_high_u16(half) };
            vcvtq_f32_u32(vmovl_u16(four))
        })
    }
    #[inline(always)]
    fn sum(self) -> f32 {
        let [a, b, c, d] = self.0;
        neon!({
            let four = vaddq_f32(vaddq_f32(a, c), vaddq_f32(b, d));
            let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
            vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
        })
    }
}
