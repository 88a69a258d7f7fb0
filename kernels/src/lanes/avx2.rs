//! Sixteen lanes in two AVX registers (AVX2 and FMA).

#[cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "intrinsics carry their own prefix"))]
use std::arch::x86_64::*;

use super::{LANES, Lanes};

#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256, __m256);

macro_rules! avx {
    ($e:expr) => {
        // SAFETY: this type is only named by `dispatch`, inside a function compiled for avx2 and fma and entered
        // after the processor reported both; loads and stores stay within references to sixteen numbers.
        unsafe { $e }
    };
}

macro_rules! both {
    ($f:ident($a:expr, $b:expr)) => {
        Self(avx!($f($a.0, $b.0)), avx!($f($a.1, $b.1)))
    };
}

/// The lower three steps of the fixed summation tree.
///
/// # Safety
/// The processor has AVX.
#[inline(always)]
pub(super) unsafe fn sum_eight(x: __m256) -> f32 {
    avx!({
        let four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
    })
}

impl Avx2 {
    #[inline(always)]
    fn ints(self) -> (__m256i, __m256i) {
        avx!((_mm256_castps_si256(self.0), _mm256_castps_si256(self.1)))
    }
    #[inline(always)]
    fn from_ints(a: __m256i, b: __m256i) -> Self {
        Self(avx!(_mm256_castsi256_ps(a)), avx!(_mm256_castsi256_ps(b)))
    }
}

impl Lanes for Avx2 {
    const WIDE: bool = false;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        let x = avx!(_mm256_set1_ps(x));
        Self(x, x)
    }
    #[inline(always)]
    fn load(x: &[f32; LANES]) -> Self {
        Self(avx!(_mm256_loadu_ps(x.as_ptr())), avx!(_mm256_loadu_ps(x.as_ptr().add(8))))
    }
    #[inline(always)]
    fn store(self, y: &mut [f32; LANES]) {
        avx!({
            _mm256_storeu_ps(y.as_mut_ptr(), self.0);
            _mm256_storeu_ps(y.as_mut_ptr().add(8), self.1);
        });
    }
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        both!(_mm256_add_ps(self, b))
    }
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        both!(_mm256_sub_ps(self, b))
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        both!(_mm256_mul_ps(self, b))
    }
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        both!(_mm256_div_ps(self, b))
    }
    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        Self(avx!(_mm256_fmadd_ps(self.0, b.0, c.0)), avx!(_mm256_fmadd_ps(self.1, b.1, c.1)))
    }
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        both!(_mm256_max_ps(self, b))
    }
    #[inline(always)]
    fn min(self, b: Self) -> Self {
        both!(_mm256_min_ps(self, b))
    }
    #[inline(always)]
    fn select_gt(self, b: Self, yes: Self, no: Self) -> Self {
        Self(
            avx!(_mm256_blendv_ps(no.0, yes.0, _mm256_cmp_ps::<_CMP_GT_OQ>(self.0, b.0))),
            avx!(_mm256_blendv_ps(no.1, yes.1, _mm256_cmp_ps::<_CMP_GT_OQ>(self.1, b.1))),
        )
    }
    #[inline(always)]
    fn mask_gt(self, b: Self) -> u32 {
        let low = avx!(_mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(self.0, b.0)));
        let high = avx!(_mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(self.1, b.1)));
        (low | high << 8).cast_unsigned()
    }
    #[inline(always)]
    fn int_add(self, k: i32) -> Self {
        let (a, b) = self.ints();
        let k = avx!(_mm256_set1_epi32(k));
        Self::from_ints(avx!(_mm256_add_epi32(a, k)), avx!(_mm256_add_epi32(b, k)))
    }
    #[inline(always)]
    fn int_sub(self, b: Self) -> Self {
        let ((a0, a1), (b0, b1)) = (self.ints(), b.ints());
        Self::from_ints(avx!(_mm256_sub_epi32(a0, b0)), avx!(_mm256_sub_epi32(a1, b1)))
    }
    #[inline(always)]
    fn int_sar<const N: u32>(self) -> Self {
        let (a, b) = self.ints();
        let n = avx!(_mm_cvtsi32_si128(N.cast_signed()));
        Self::from_ints(avx!(_mm256_sra_epi32(a, n)), avx!(_mm256_sra_epi32(b, n)))
    }
    #[inline(always)]
    fn int_shl<const N: u32>(self) -> Self {
        let (a, b) = self.ints();
        let n = avx!(_mm_cvtsi32_si128(N.cast_signed()));
        Self::from_ints(avx!(_mm256_sll_epi32(a, n)), avx!(_mm256_sll_epi32(b, n)))
    }
    #[inline(always)]
    fn int_to_float(self) -> Self {
        let (a, b) = self.ints();
        Self(avx!(_mm256_cvtepi32_ps(a)), avx!(_mm256_cvtepi32_ps(b)))
    }
    #[inline(always)]
    fn int_shr<const N: u32>(self) -> Self {
        let (a, b) = self.ints();
        let n = avx!(_mm_cvtsi32_si128(N.cast_signed()));
        Self::from_ints(avx!(_mm256_srl_epi32(a, n)), avx!(_mm256_srl_epi32(b, n)))
    }
    #[inline(always)]
    fn int_and(self, k: i32) -> Self {
        let (a, b) = self.ints();
        let k = avx!(_mm256_set1_epi32(k));
        Self::from_ints(avx!(_mm256_and_si256(a, k)), avx!(_mm256_and_si256(b, k)))
    }
    #[inline(always)]
    fn dot4(self, w: Self, x: i32) -> Self {
        // `vpmaddubsw` saturates; widened to 16 bits, even and odd bytes apart, the sums are exact.
        let ((a, b), (wa, wb)) = (self.ints(), w.ints());
        avx!({
            let x = _mm256_set1_epi32(x);
            let (even, odd) = (_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(x)), _mm256_srai_epi16::<8>(x));
            let low = _mm256_set1_epi16(0xff);
            let a = _mm256_add_epi32(a, _mm256_madd_epi16(_mm256_and_si256(wa, low), even));
            let a = _mm256_add_epi32(a, _mm256_madd_epi16(_mm256_srli_epi16::<8>(wa), odd));
            let b = _mm256_add_epi32(b, _mm256_madd_epi16(_mm256_and_si256(wb, low), even));
            let b = _mm256_add_epi32(b, _mm256_madd_epi16(_mm256_srli_epi16::<8>(wb), odd));
            Self::from_ints(a, b)
        })
    }
    #[inline(always)]
    fn load_f16(x: &[u16; LANES]) -> Self {
        let x: *const __m128i = x.as_ptr().cast();
        avx!(Self(_mm256_cvtph_ps(_mm_loadu_si128(x)), _mm256_cvtph_ps(_mm_loadu_si128(x.add(1)))))
    }
    #[inline(always)]
    fn load_u8(x: &[u8; LANES]) -> Self {
        avx!({
            let x = _mm_loadu_si128(x.as_ptr().cast());
            let (a, b) = (_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(x)));
            Self(_mm256_cvtepi32_ps(a), _mm256_cvtepi32_ps(b))
        })
    }
    #[inline(always)]
    fn sum(self) -> f32 {
        avx!(sum_eight(_mm256_add_ps(self.0, self.1)))
    }
}
