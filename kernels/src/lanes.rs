//! Sixteen `f32` lanes: the one vector type that every kernel is written in.
//!
//! Each kernel exists once, generic over [`Lanes`], and is compiled for each instruction set by [`crate::dispatch`].
//! Every operation here is defined to the bit (IEEE 754 single rounding, or integer), so that all paths agree.
//! NaN stays NaN everywhere; its sign and payload are not defined.
//!
//! Soundness: the types of an instruction set may only be named in `dispatch`, which uses them after checking the processor.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod portable;

/// Number of lanes, and outputs of a packed panel.
pub(crate) const LANES: usize = 16;

/// 1.5·2²³: adding it to a small number leaves the nearest integer in the low bits.
pub(crate) const ROUND: f32 = 12_582_912.0;

/// Sixteen single-precision numbers, or the same bits as `i32`.
pub(crate) trait Lanes: Copy {
    /// Whether there are 32 registers of sixteen lanes (else 16 of eight). Affects tile sizes, never results.
    const WIDE: bool;

    fn splat(x: f32) -> Self;
    fn load(x: &[f32; LANES]) -> Self;
    fn store(self, y: &mut [f32; LANES]);

    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    fn div(self, b: Self) -> Self;
    /// `self · b + c`, rounded once.
    fn mul_add(self, b: Self, c: Self) -> Self;
    /// `self > b ? self : b`: the second operand where either is NaN.
    fn max(self, b: Self) -> Self;
    /// `self < b ? self : b`: the second operand where either is NaN.
    fn min(self, b: Self) -> Self;
    /// `self > b ? yes : no`; `no` where either is NaN.
    fn select_gt(self, b: Self, yes: Self, no: Self) -> Self;
    /// One bit per lane, lane 0 lowest: `self > b`.
    fn mask_gt(self, b: Self) -> u32;

    /// Lanes as integers: wrapping addition of one constant.
    fn int_add(self, k: i32) -> Self;
    /// Lanes as integers: wrapping subtraction.
    fn int_sub(self, b: Self) -> Self;
    /// Lanes as integers: arithmetic shift right.
    fn int_sar<const N: u32>(self) -> Self;
    /// Lanes as integers: shift left.
    fn int_shl<const N: u32>(self) -> Self;
    /// Lanes as integers: shift right, zeros from the left.
    fn int_shr<const N: u32>(self) -> Self;
    /// Lanes as integers: bitwise and with `k`.
    fn int_and(self, k: i32) -> Self;
    /// Lanes as integers, to the floats of those values, rounded once (exact below 2²⁴).
    fn int_to_float(self) -> Self;
    /// Lanes as integers: `self` + Σ w·x over four bytes each, those of `w` unsigned, those of `x` signed. Exact.
    fn dot4(self, w: Self, x: i32) -> Self;
    /// Sixteen half-precision numbers.
    fn load_f16(x: &[u16; LANES]) -> Self;
    /// Sixteen small integers as floats.
    fn load_u8(x: &[u8; LANES]) -> Self;

    /// `self · 2ⁿ` for n integral within ±150 and `self` within a factor of two of 1, rounded once. `self` NaN gives NaN.
    #[inline(always)]
    fn scale(self, n: Self) -> Self {
        // Two factors: the first product is exact, the second rounds, so subnormal results round once.
        let n = n.add(Self::splat(ROUND)).int_add(-ROUND.to_bits().cast_signed());
        let half = n.int_sar::<1>();
        let rest = n.int_sub(half);
        self.mul(half.int_add(127).int_shl::<23>()).mul(rest.int_add(127).int_shl::<23>())
    }

    /// Sum of the lanes in the fixed tree: i + (i+8), then i + (i+4), i + (i+2), 0 + 1.
    fn sum(self) -> f32;

    /// [`sum`](Self::sum) of each of sixteen.
    #[inline(always)]
    fn sum_each(each: [Self; LANES]) -> Self {
        Self::load(&each.map(Self::sum))
    }

    /// The largest lane, if none is NaN.
    #[inline(always)]
    fn largest(self) -> f32 {
        let mut all = [0.0; LANES];
        self.store(&mut all);
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                all[i] = if all[i] > all[i + half] { all[i] } else { all[i + half] };
            }
            half /= 2;
        }
        all[0]
    }

    /// Lanes as integers: one value in all lanes.
    #[inline(always)]
    fn int_splat(x: i32) -> Self {
        Self::splat(f32::from_bits(x.cast_unsigned()))
    }

    /// Sixteen numbers at `x`.
    ///
    /// # Safety
    /// `x` is valid for reading sixteen `f32`.
    #[inline(always)]
    unsafe fn load_ptr(x: *const f32) -> Self {
        // SAFETY: the caller promises sixteen readable numbers; `[f32; 16]` has the alignment of `f32`.
        Self::load(unsafe { &*x.cast::<[f32; LANES]>() })
    }

    /// Up to sixteen numbers, `fill` in the lanes beyond.
    #[inline(always)]
    fn load_part(x: &[f32], fill: f32) -> Self {
        if let Some(whole) = x.first_chunk::<LANES>() {
            return Self::load(whole);
        }
        let mut padded = [fill; LANES];
        padded[..x.len()].copy_from_slice(x);
        Self::load(&padded)
    }

    /// Writes the first `y.len()` lanes, at most sixteen.
    #[inline(always)]
    fn store_part(self, y: &mut [f32]) {
        if let Some(whole) = y.first_chunk_mut::<LANES>() {
            self.store(whole);
        } else {
            let mut all = [0.0; LANES];
            self.store(&mut all);
            let len = y.len();
            y.copy_from_slice(&all[..len]);
        }
    }
}
