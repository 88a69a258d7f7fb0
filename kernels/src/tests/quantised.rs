//! Quantised weights: bit equality with the definition on every path, and rounding errors.

use proptest::prelude::*;

use super::bits::bits;
use crate::blocks::{BLOCK, Q4_K_BYTES, Q8_0_BYTES, Quantised, SUPER};
use crate::dispatch::{Kernel, dispatch};
use crate::half::{f16_to_f32, f32_to_bf16, f32_to_f16};
use crate::lanes::{LANES, Lanes};
use crate::matmul::matmul_on;
use crate::{Dtype, Panels, Path, Rows};

/// Numbers around 0 with occasional large ones, like weights.
fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / 16_777_216.0 - 0.5
    };
    (0..len).map(|_| (next() + next() + next()) * if next() > 0.47 { 4.0 } else { 1.0 }).collect()
}

/// Activations by the definition: integers and scale of each block of 32.
fn rounded(x: &[f32]) -> Vec<(Vec<i32>, f32)> {
    let one = |x: &[f32]| {
        let largest = x.iter().fold(0.0f32, |max, x| max.max(x.abs()));
        if !x.iter().all(|x| x.is_finite()) {
            return (vec![0; BLOCK], f32::NAN);
        }
        let scale = if largest / 127.0 < f32::MIN_POSITIVE { 0.0 } else { largest / 127.0 };
        let inverse = if scale > 0.0 { 127.0 / largest } else { 0.0 };
        // One rounding of the exact product, which f64 holds.
        (x.iter().map(|&x| (f64::from(x) * f64::from(inverse)).round_ties_even() as i32).collect(), scale)
    };
    x.chunks(BLOCK).map(one).collect()
}

/// One output by the definition, straight from a file's blocks.
fn output(dtype: Dtype, x: &[f32], row: &[u8]) -> f32 {
    match dtype {
        Dtype::F32 => {
            let w = row.chunks(4).map(|w| f32::from_le_bytes(w.try_into().unwrap()));
            x.iter().zip(w).fold(0.0, |sum: f32, (x, w)| x.mul_add(w, sum))
        }
        Dtype::Bf16 => {
            let w = row.chunks(2).map(|w| f32::from_bits(u32::from(u16::from_le_bytes([w[0], w[1]])) << 16));
            x.iter().zip(w).fold(0.0, |sum: f32, (x, w)| x.mul_add(w, sum))
        }
        Dtype::Q8_0 => {
            let mut sum = 0.0f32;
            for ((quants, scale), block) in rounded(x).iter().zip(row.chunks(Q8_0_BYTES)) {
                let dot: i32 = quants.iter().zip(&block[2..]).map(|(x, &w)| x * i32::from(w.cast_signed())).sum();
                let by = f16_to_f32(u16::from_le_bytes([block[0], block[1]])) * scale;
                sum = (dot as f32).mul_add(by, sum);
            }
            sum
        }
        Dtype::Q4K => {
            let mut sum = 0.0f32;
            let x = rounded(x);
            for (x, block) in x.chunks(8).zip(row.chunks(Q4_K_BYTES)) {
                let d = f16_to_f32(u16::from_le_bytes([block[0], block[1]]));
                let dmin = f16_to_f32(u16::from_le_bytes([block[2], block[3]]));
                // The twelve bytes as GGML describes them.
                let s = &block[4..16];
                for (sub, (quants, scale)) in x.iter().enumerate() {
                    let (sc, m) = match sub {
                        0..4 => (s[sub] & 63, s[sub + 4] & 63),
                        _ => (s[sub + 4] % 16 + s[sub - 4] / 64 * 16, s[sub + 4] / 16 + s[sub] / 64 * 16),
                    };
                    let nibbles = block[16 + sub / 2 * 32..][..32].iter().map(|q| q >> (sub % 2 * 4) & 15);
                    let dot: i32 = quants.iter().zip(nibbles).map(|(x, w)| x * i32::from(w)).sum();
                    sum = (dot as f32).mul_add(d * f32::from(sc) * scale, sum);
                    let below = -(scale * quants.iter().sum::<i32>() as f32);
                    sum = (dmin * f32::from(m)).mul_add(below, sum);
                }
            }
            sum
        }
    }
}

/// Random blocks: any bytes, but scales that are finite.
fn blocks(dtype: Dtype, seed: u64, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, x) in noise(seed, count * dtype.block()).chunks(dtype.block()).enumerate() {
        let half = |x: f32| f32_to_f16(x / 64.0).to_le_bytes();
        match dtype {
            Dtype::F32 => bytes.extend(x[0].to_le_bytes()),
            Dtype::Bf16 => bytes.extend(f32_to_bf16(x[0]).to_le_bytes()),
            Dtype::Q8_0 | Dtype::Q4K => {
                bytes.extend(half(x[0]));
                let mut rest = if dtype == Dtype::Q8_0 { BLOCK } else { SUPER / 2 + 12 };
                if dtype == Dtype::Q4K {
                    bytes.extend(half(x[1]));
                }
                let mut state = seed.wrapping_add(at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                while rest > 0 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    bytes.push((state >> 56) as u8);
                    rest -= 1;
                }
            }
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_dtype_gives_its_definition_on_every_path(
        dtype in proptest::sample::select(&Dtype::ALL[..]),
        rows in 1usize..15, outputs in 0usize..150, blocks_of_row in 0usize..5, seed in any::<u64>(),
        odd in prop_oneof![9 => Just(None), 1 => (0usize..9999, prop_oneof![
            Just(f32::NAN), Just(f32::INFINITY), Just(3e38f32), Just(1e-40f32)]).prop_map(Some)],
    ) {
        let inputs = blocks_of_row * dtype.block() * if dtype.block() == 1 { 9 } else { 1 };
        let width = inputs + 3;
        let mut x = noise(seed ^ 1, rows * width);
        if let Some((at, value)) = odd {
            let len = x.len();
            x[at % len] = value;
        }
        let view = Rows::new(&x, width);
        let weight = blocks(dtype, seed, outputs * inputs / dtype.block());
        let panels = Panels::from_blocks(dtype, &weight, outputs, inputs);
        let per_row = inputs / dtype.block() * match dtype { Dtype::F32 => 4, Dtype::Bf16 => 2, Dtype::Q8_0 => 34, Dtype::Q4K => 144 };
        let mut want = Vec::new();
        for r in 0..rows {
            for o in 0..outputs {
                want.push(output(dtype, &x[r * width..][..inputs], &weight[o * per_row..][..per_row]));
            }
        }
        for path in Path::available() {
            let mut all = vec![9.0; rows * outputs];
            matmul_on(path, view, rows, &panels, &mut all);
            prop_assert_eq!(bits(&want), bits(&all), "{} {}", dtype, path);
            for r in 0..rows {
                let mut one = vec![9.0; outputs];
                matmul_on(path, Rows::new(&x[r * width..], inputs), 1, &panels, &mut one);
                prop_assert_eq!(bits(&want[r * outputs..][..outputs]), bits(&one), "{} {} row {}", dtype, path, r);
            }
        }
    }
}

#[test]
fn large_products_do_not_depend_on_threads() {
    let (rows, outputs, inputs) = (40, 1000, 512);
    let x = noise(5, rows * inputs);
    for dtype in Dtype::ALL {
        let panels = Panels::pack_as(dtype, &noise(6, outputs * inputs), outputs, inputs);
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut y = vec![0.0; rows * outputs];
            pool.install(|| crate::matmul(&x, rows, &panels, &mut y));
            bits(&y)
        };
        assert_eq!(run(1), run(3), "{dtype}");
    }
}

#[test]
fn half_precision_matches_the_processor() {
    struct Widen([u16; LANES]);
    impl Kernel for Widen {
        type Output = [f32; LANES];
        #[inline(always)]
        fn run<V: Lanes>(self) -> [f32; LANES] {
            let mut y = [0.0; LANES];
            V::load_f16(&self.0).store(&mut y);
            y
        }
    }
    for from in (0..=u16::MAX).step_by(LANES) {
        let halves: [u16; LANES] = std::array::from_fn(|i| from + i as u16);
        let want = halves.map(f16_to_f32);
        for path in Path::available() {
            assert_eq!(bits(&want), bits(&dispatch(path, Widen(halves))), "{path} from {from}");
        }
        for (half, wide) in halves.into_iter().zip(want) {
            assert!(wide.is_nan() || f32_to_f16(wide) == half, "{half:#x}");
        }
    }
    // Ties go to even, half a unit more goes up.
    for (x, half) in
        [(1.0 + 1.0 / 2048.0, 0x3c00), (1.0 + 3.0 / 2048.0, 0x3c02), (65_519.0, 0x7bff), (65_520.0, 0x7c00)]
    {
        assert_eq!(f32_to_f16(x), half, "{x}");
    }
    assert_eq!(f32_to_f16(2.0f32.powi(-25)), 0);
    assert_eq!(f32_to_f16(2.0f32.powi(-25) * 1.01), 1);
    for (x, narrow) in [(1.0f32, 0x3f80), (f32::from_bits(0x3f80_8000), 0x3f80), (f32::from_bits(0x3f81_8000), 0x3f82)]
    {
        assert_eq!(f32_to_bf16(x), narrow);
    }
}

/// Root of the mean squared difference over that of the weights.
fn relative_error(dtype: Dtype, weight: &[f32], inputs: usize) -> f64 {
    let outputs = weight.len() / inputs;
    let panels = Panels::pack_as(dtype, weight, outputs, inputs);
    assert_eq!(panels.dtype(), dtype);
    let (mut off, mut all) = (0.0, 0.0);
    let mut row = vec![0.0; inputs];
    for (output, want) in weight.chunks(inputs).enumerate() {
        panels.unpack_row(output, &mut row);
        for (&got, &want) in row.iter().zip(want) {
            off += f64::from(got - want).powi(2);
            all += f64::from(want).powi(2);
        }
    }
    (off / all).sqrt()
}

#[test]
fn rounding_errors_of_weights_match_the_type() {
    let weight = noise(3, 40 * 1024);
    assert!(relative_error(Dtype::F32, &weight, 1024) == 0.0);
    for (dtype, most) in [(Dtype::Bf16, 0.0019), (Dtype::Q8_0, 0.008), (Dtype::Q4K, 0.1)] {
        let error = relative_error(dtype, &weight, 1024);
        assert!(error < most, "{dtype}: {error}");
        // And not smaller than the type implies: the weights were rounded.
        assert!(error > most / 3.0, "{dtype}: {error}");
    }
    // Constant and empty blocks.
    assert!(relative_error(Dtype::Q4K, &vec![-0.25; 512], 256) < 1e-2);
    let zeros = Panels::pack_as(Dtype::Q4K, &[0.0; 512], 2, 256);
    let mut row = [9.0; 256];
    zeros.unpack_row(1, &mut row);
    assert_eq!(row, [0.0; 256]);
}

#[test]
fn inputs_that_are_not_whole_blocks_fall_back_to_a_wider_type() {
    for (requested, inputs, got) in [
        (Dtype::Q4K, 512, Dtype::Q4K),
        (Dtype::Q4K, 896, Dtype::Q8_0),
        (Dtype::Q4K, 48, Dtype::F32),
        (Dtype::Q8_0, 48, Dtype::F32),
        (Dtype::Bf16, 7, Dtype::Bf16),
    ] {
        assert_eq!(requested.for_inputs(inputs), got);
        assert_eq!(Panels::pack_as(requested, &vec![0.5; 3 * inputs], 3, inputs).dtype(), got);
    }
}

#[test]
fn activations_keep_seven_bits() {
    let x = noise(9, 64 * 32);
    let all = Quantised::new(Path::Portable, Rows::new(&x, x.len()), 1, x.len());
    let (quants, blocks) = all.row(0);
    for (at, &x) in x.iter().enumerate() {
        let scale = blocks[at / 32].scale;
        let q = quants[at / 4].to_le_bytes()[at % 4].cast_signed();
        assert!((f32::from(q) * scale - x).abs() <= 0.5001 * scale, "{at}");
    }
}
