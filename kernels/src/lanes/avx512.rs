//! Sixteen lanes in one AVX-512 register.

#[cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "intrinsics carry their own prefix"))]
use std::arch::x86_64::*;

use super::{LANES, Lanes};

#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512);

macro_rules! avx {
    ($e:expr) => {
        // SAFETY: this type is only named by `dispatch`, inside a function compiled for AVX-512 and entered after
        // the processor reported it; loads and stores go through references to sixteen numbers.
        unsafe { $e }
    };
}

impl Avx512 {
    #[inline(always)]
    fn int(self) -> __m512i {
        avx!(_mm512_castps_si512(self.0))
    }
    #[inline(always)]
    fn from_int(x: __m512i) -> Self {
        Self(avx!(_mm512_castsi512_ps(x)))
    }
}

impl Lanes for Avx512 {
    const WIDE: bool = true;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Self(avx!(_mm512_set1_ps(x)))
    }
    #[inline(always)]
    fn load(x: &[f32; LANES]) -> Self {
        Self(avx!(_mm512_loadu_ps(x.as_ptr())))
    }
    #[inline(always)]
    fn store(self, y: &mut [f32; LANES]) {
        avx!(_mm512_storeu_ps(y.as_mut_ptr(), self.0));
    }
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        Self(avx!(_mm512_add_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        Self(avx!(_mm512_sub_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        Self(avx!(_mm512_mul_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        Self(avx!(_mm512_div_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        Self(avx!(_mm512_fmadd_ps(self.0, b.0, c.0)))
    }
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        Self(avx!(_mm512_max_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn min(self, b: Self) -> Self {
        Self(avx!(_mm512_min_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn select_gt(self, b: Self, yes: Self, no: Self) -> Self {
        Self(avx!(_mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(self.0, b.0), no.0, yes.0)))
    }
    #[inline(always)]
    fn mask_gt(self, b: Self) -> u32 {
        u32::from(avx!(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(self.0, b.0)))
    }
    #[inline(always)]
    fn int_add(self, k: i32) -> Self {
        Self::from_int(avx!(_mm512_add_epi32(self.int(), _mm512_set1_epi32(k))))
    }
    #[inline(always)]
    fn int_sub(self, b: Self) -> Self {
        Self::from_int(avx!(_mm512_sub_epi32(self.int(), b.int())))
    }
    #[inline(always)]
    fn int_sar<const N: u32>(self) -> Self {
        Self::from_int(avx!(_mm512_srai_epi32::<N>(self.int())))
    }
    #[inline(always)]
    fn int_shl<const N: u32>(self) -> Self {
        Self::from_int(avx!(_mm512_slli_epi32::<N>(self.int())))
    }
    #[inline(always)]
    fn int_to_float(self) -> Self {
        Self(avx!(_mm512_cvtepi32_ps(self.int())))
    }
    #[inline(always)]
    fn int_shr<const N: u32>(self) -> Self {
        Self::from_int(avx!(_mm512_srli_epi32::<N>(self.int())))
    }
    #[inline(always)]
    fn int_and(self, k: i32) -> Self {
        Self::from_int(avx!(_mm512_and_si512(self.int(), _mm512_set1_epi32(k))))
    }
    #[inline(always)]
    fn dot4(self, w: Self, x: i32) -> Self {
        Self::from_int(avx!(_mm512_dpbusd_epi32(self.int(), w.int(), _mm512_set1_epi32(x))))
    }
    #[inline(always)]
    fn load_f16(x: &[u16; LANES]) -> Self {
        Self(avx!(_mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast()))))
    }
    #[inline(always)]
    fn load_u8(x: &[u8; LANES]) -> Self {
        Self(avx!(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(x.as_ptr().cast())))))
    }
    #[inline(always)]
    fn scale(self, n: Self) -> Self {
        Self(avx!(_mm512_scalef_ps(self.0, n.0)))
    }
    #[inline(always)]
    fn sum(self) -> f32 {
        avx!({
            let high = _mm512_castpd_ps(_mm512_castpd256_pd512(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(self.0))));
            let eight = _mm256_add_ps(_mm512_castps512_ps256(self.0), _mm512_castps512_ps256(high));
            super::avx2::sum_eight(eight)
        })
    }
    /// The halves of one are added by the same instruction as those of another: the same tree with no lane idle.
    #[inline(always)]
    fn sum_each(x: [Self; LANES]) -> Self {
        // What ends in the first lanes of the four blocks of four, in the second ones, and so on.
        let first = fours(eights(x[0], x[4]), eights(x[8], x[12]));
        let second = fours(eights(x[1], x[5]), eights(x[9], x[13]));
        let third = fours(eights(x[2], x[6]), eights(x[10], x[14]));
        let fourth = fours(eights(x[3], x[7]), eights(x[11], x[15]));
        ones(twos(first, second), twos(third, fourth))
    }
}

/// i + (i+8) of two: eight lanes of the one, eight of the other.
#[inline(always)]
fn eights(a: Avx512, b: Avx512) -> Avx512 {
    Avx512(avx!(_mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a.0, b.0), _mm512_shuffle_f32x4::<0xee>(a.0, b.0))))
}

/// i + (i+4) of two pairs: a block of four lanes of each.
#[inline(always)]
fn fours(a: Avx512, b: Avx512) -> Avx512 {
    Avx512(avx!(_mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(a.0, b.0), _mm512_shuffle_f32x4::<0xdd>(a.0, b.0))))
}

/// i + (i+2) in each block: two lanes of the one's, two of the other's.
#[inline(always)]
fn twos(a: Avx512, b: Avx512) -> Avx512 {
    Avx512(avx!(_mm512_add_ps(_mm512_shuffle_ps::<0x44>(a.0, b.0), _mm512_shuffle_ps::<0xee>(a.0, b.0))))
}

/// 0 + 1 of each two lanes.
#[inline(always)]
fn ones(a: Avx512, b: Avx512) -> Avx512 {
    Avx512(avx!(_mm512_add_ps(_mm512_shuffle_ps::<0x88>(a.0, b.0), _mm512_shuffle_ps::<0xdd>(a.0, b.0))))
}
