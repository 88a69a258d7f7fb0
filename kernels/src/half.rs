//! Conversion of f16 and bf16 by their bits.

/// Widens a half-precision number; exact.
pub(crate) fn f16_to_f32(half: u16) -> f32 {
    let magnitude = u32::from(half & 0x7fff) << 13;
    let value = if half & 0x7c00 == 0x7c00 {
        f32::from_bits(magnitude | 0x7f80_0000)
    } else {
        // The exponent's bias is corrected by a product, which is exact for subnormal numbers too.
        f32::from_bits(magnitude) * f32::from_bits(0x7780_0000)
    };
    if half & 0x8000 == 0 { value } else { -value }
}

/// To the nearest half-precision number, ties to even; beyond the range an infinity.
pub(crate) fn f32_to_f16(x: f32) -> u16 {
    let sign = (x.to_bits() >> 16) as u16 & 0x8000;
    let x = x.abs();
    if x.is_nan() {
        return sign | 0x7e00;
    }
    if x >= 65_520.0 {
        return sign | 0x7c00;
    }
    let bits = if x < 6.103_515_6e-5 {
        // Subnormal: the addition rounds to a multiple of 2⁻²⁴.
        (x + 0.5).to_bits() - 0.5f32.to_bits()
    } else {
        let bits = x.to_bits() - (112 << 23);
        (bits + 0xfff + (bits >> 13 & 1)) >> 13
    };
    sign | bits as u16
}

/// To the nearest bf16, ties to even. NaN stays NaN.
pub(crate) fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((u64::from(bits) + 0x7fff + u64::from(bits >> 16 & 1)) >> 16) as u16
}
