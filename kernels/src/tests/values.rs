//! The reference against double precision, and the meaning of special values.

use super::bits::bits;
use crate::dispatch::{Kernel, dispatch};
use crate::lanes::{LANES, Lanes};
use crate::math::{exp, ln_f64, silu, softplus, tanh};
use crate::{Panels, Path, Rows, Scan, causal_conv_silu, matmul, rms_norm, selective_scan};

#[derive(Clone, Copy, Debug)]
enum Function {
    Exp,
    Softplus,
    Silu,
    Tanh,
}

struct Map<'a>(Function, &'a mut [f32]);

impl Kernel for Map<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        for part in self.1.chunks_mut(LANES) {
            let x = V::load_part(part, 0.0);
            match self.0 {
                Function::Exp => exp(x).store_part(part),
                Function::Softplus => softplus(x).store_part(part),
                Function::Silu => silu(x).store_part(part),
                Function::Tanh => tanh(x).store_part(part),
            }
        }
    }
}

fn map(path: Path, function: Function, x: &[f32]) -> Vec<f32> {
    let mut y = x.to_vec();
    dispatch(path, Map(function, &mut y));
    y
}

fn fastest() -> Path {
    *Path::available().last().unwrap()
}

/// Every 499th bit pattern: all signs, exponents, subnormals, infinities, NaN.
fn all_floats() -> Vec<f32> {
    (0..=u32::MAX).step_by(499).map(f32::from_bits).collect()
}

#[test]
fn functions_agree_on_every_path() {
    let x: Vec<f32> = (0..=u32::MAX).step_by(4999).map(f32::from_bits).collect();
    for function in [Function::Exp, Function::Softplus, Function::Silu, Function::Tanh] {
        let want = bits(&map(Path::Portable, function, &x));
        for path in Path::available() {
            assert!(want == bits(&map(path, function, &x)), "{function:?} on {path}");
        }
    }
}

/// Largest error in units in the last place of the exact value, over the sweep.
fn worst_ulp(function: Function, exact: impl Fn(f64) -> f64) -> (f64, f32) {
    let x = all_floats();
    let mut worst = (0.0, 0.0);
    for (&x, y) in x.iter().zip(map(fastest(), function, &x)) {
        let want = exact(f64::from(x));
        if want.is_nan() {
            assert!(y.is_nan(), "{function:?}({x}) is {y}, not NaN");
            continue;
        }
        let nearest = want as f32;
        if nearest.is_infinite() || y.is_infinite() {
            // The exact value lies between the largest number and infinity, so one step is allowed.
            assert!(nearest == y || want.abs() / f64::from(f32::MAX) < 1.000_000_2, "{function:?}({x}) is {y}");
            continue;
        }
        let ulp = 2f64.powi(want.abs().log2().floor().max(-126.0) as i32 - 23);
        let error = (f64::from(y) - want).abs() / ulp;
        if error > worst.0 {
            worst = (error, x);
        }
    }
    worst
}

#[test]
fn exp_is_within_its_stated_error() {
    let (error, at) = worst_ulp(Function::Exp, f64::exp);
    assert!(error < 0.96, "{error} ulp at {at}");
}

#[test]
fn softplus_is_within_its_stated_error() {
    let (error, at) = worst_ulp(Function::Softplus, |x| if x > 20.0 { x } else { x.exp().ln_1p() });
    assert!(error < 1.8, "{error} ulp at {at}");
}

#[test]
fn tanh_is_within_its_stated_error() {
    let (error, at) = worst_ulp(Function::Tanh, f64::tanh);
    assert!(error < 1.3, "{error} ulp at {at}");
}

#[test]
fn silu_is_within_its_stated_error() {
    // Below −87, e⁻ˣ leaves the normal range of 1/(1 + e⁻ˣ): compare absolutely there.
    let x = all_floats();
    let mut worst = 0.0f64;
    for (&x, y) in x.iter().zip(map(fastest(), Function::Silu, &x)) {
        let want = f64::from(x) / (1.0 + (-f64::from(x)).exp());
        if want.is_nan() {
            assert!(y.is_nan(), "silu({x}) is {y}");
        } else if x < -87.0 {
            assert!((f64::from(y) - want).abs() < 1e-36, "silu({x}) is {y}, not {want}");
        } else if want != 0.0 && x.abs() > 1e-37 {
            worst = worst.max((f64::from(y) / want - 1.0).abs() * 2f64.powi(24));
        }
    }
    assert!(worst < 3.0, "{worst}");
}

#[test]
fn special_values() {
    let check = |function, x: f32, want: f32| {
        let got = map(fastest(), function, &[x])[0];
        assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{function:?}({x}) = {got}");
    };
    check(Function::Exp, 0.0, 1.0);
    check(Function::Exp, -0.0, 1.0);
    check(Function::Exp, f32::INFINITY, f32::INFINITY);
    check(Function::Exp, f32::NEG_INFINITY, 0.0);
    check(Function::Exp, f32::NAN, f32::NAN);
    check(Function::Exp, -103.2, f32::from_bits(1));
    check(Function::Softplus, 1e30, 1e30);
    check(Function::Softplus, f32::INFINITY, f32::INFINITY);
    check(Function::Softplus, f32::NEG_INFINITY, 0.0);
    check(Function::Softplus, f32::NAN, f32::NAN);
    check(Function::Silu, 0.0, 0.0);
    check(Function::Silu, f32::INFINITY, f32::INFINITY);
}

#[test]
fn ln_in_double_precision() {
    let mut x = 1e-300f64;
    while x < 1e300 {
        assert!((ln_f64(x) - x.ln()).abs() <= 4e-16 * x.ln().abs().max(1.0), "ln {x}: {} {}", ln_f64(x), x.ln());
        x *= 1.013;
    }
    assert_eq!(ln_f64(1.0), 0.0);
}

/// Numbers in ±1, the same on every machine (a linear congruential generator, high bits).
pub(super) fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / 8_388_608.0 - 1.0
        })
        .collect()
}

pub(super) fn close(got: f32, want: f64, tolerance: f64) {
    assert!((f64::from(got) - want).abs() <= tolerance * want.abs().max(1.0), "{got} is not {want}");
}

pub(super) fn wide(x: f32) -> f64 {
    f64::from(x)
}

fn silu_wide(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

#[test]
fn matmul_is_the_product() {
    let (rows, outputs, inputs) = (7, 53, 301);
    let (x, w) = (noise(1, rows * inputs), noise(2, outputs * inputs));
    let panels = Panels::pack(&w, outputs, inputs);
    let mut y = vec![0.0; rows * outputs];
    matmul(&x, rows, &panels, &mut y);
    for r in 0..rows {
        for o in 0..outputs {
            let want: f64 = (0..inputs).map(|i| wide(x[r * inputs + i]) * wide(w[o * inputs + i])).sum();
            // 301 roundings of sums below 20.
            close(y[r * outputs + o], want, 3e-5);
        }
    }
    let mut row = vec![0.0; inputs];
    panels.unpack_row(52, &mut row);
    assert_eq!(row, w[52 * inputs..]);
}

#[test]
fn a_row_whose_squares_overflow_has_no_norm() {
    let mut y = vec![0.0; 2 * 77];
    let x: Vec<f32> = (0..2 * 77).map(|i| if i < 77 { 1e20 } else { 1e15 }).collect();
    rms_norm(&x, &[1.0; 77], 1e-5, &mut y);
    assert!(y[..77].iter().all(|y| y.is_nan()) && y[77..].iter().all(|y| (y - 1.0).abs() < 1e-6), "{y:?}");
}

#[test]
fn rms_norm_has_unit_mean_square() {
    let (x, w) = (noise(3, 2 * 77), noise(4, 77));
    let mut y = vec![0.0; 2 * 77];
    rms_norm(&x, &w, 1e-5, &mut y);
    for r in 0..2 {
        let x = &x[r * 77..][..77];
        let mean = x.iter().map(|&x| wide(x) * wide(x)).sum::<f64>() / 77.0;
        for i in 0..77 {
            close(y[r * 77 + i], wide(x[i]) / (mean + 1e-5).sqrt() * wide(w[i]), 1e-6);
        }
    }
}

#[test]
fn conv_looks_back_over_the_tail() {
    let (channels, taps, len) = (21, 4, 5);
    let (u, w, b) = (noise(5, len * channels), noise(6, channels * taps), noise(7, channels));
    let before = noise(8, channels * (taps - 1));
    let (mut tail, mut y) = (before.clone(), vec![0.0; len * channels]);
    causal_conv_silu(Rows::new(&u, channels), &w, Some(&b), taps, &mut tail, &mut y);
    let input = |c: usize, t: usize| if t < 3 { before[t * channels + c] } else { u[(t - 3) * channels + c] };
    for c in 0..channels {
        for t in 0..len {
            let sum: f64 = (0..taps).map(|j| wide(w[j * channels + c]) * wide(input(c, t + j))).sum();
            close(y[t * channels + c], silu_wide(sum + wide(b[c])), 1e-6);
        }
        for j in 0..3 {
            assert_eq!(tail[j * channels + c].to_bits(), input(c, len + j).to_bits());
        }
    }
}

/// The buffers of a scan with plausible values.
struct Case {
    channels: usize,
    d_state: usize,
    len: usize,
    u: Vec<f32>,
    raw: Vec<f32>,
    bias: Vec<f32>,
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
    d: Vec<f32>,
    z: Vec<f32>,
}

impl Case {
    fn new(channels: usize, d_state: usize, len: usize) -> Self {
        let a = (0..channels * d_state).map(|i| -((i % d_state + 1) as f32)).collect();
        Self {
            channels,
            d_state,
            len,
            u: noise(11, len * channels),
            raw: noise(12, len * channels),
            bias: noise(13, channels).iter().map(|x| x * 2.0 - 4.0).collect(),
            a,
            b: noise(14, len * d_state),
            c: noise(15, len * d_state),
            d: noise(16, channels),
            z: noise(17, len * channels),
        }
    }

    fn run(&self, gains: (f32, f32), state: &mut [f32]) -> Vec<f32> {
        let mut y = vec![0.0; self.len * self.channels];
        let scan = Scan {
            u: Rows::new(&self.u, self.channels),
            delta_raw: Rows::new(&self.raw, self.channels),
            dt_bias: &self.bias,
            a: &self.a,
            b: Rows::new(&self.b, self.d_state),
            c: Rows::new(&self.c, self.d_state),
            d: &self.d,
            z: Some(Rows::new(&self.z, self.channels)),
            gain_decay: gains.0,
            gain_write: gains.1,
        };
        selective_scan(&scan, state, &mut y);
        y
    }
}

#[test]
fn scan_is_the_recurrence() {
    for d_state in [5, 16, 33] {
        let case = Case::new(37, d_state, 50);
        let start = noise(18, 37 * d_state);
        for gains in [(1.0, 1.0), (0.5, 2.0)] {
            let mut state = start.clone();
            let y = case.run(gains, &mut state);
            for ch in 0..37 {
                let mut h: Vec<f64> = start[ch * d_state..][..d_state].iter().copied().map(wide).collect();
                for t in 0..50 {
                    let at = t * 37 + ch;
                    let (delta, u) = ((wide(case.raw[at]) + wide(case.bias[ch])).exp().ln_1p(), wide(case.u[at]));
                    let mut sum = wide(case.d[ch]) * u;
                    for n in 0..d_state {
                        let decay = (wide(gains.0) * delta * wide(case.a[ch * d_state + n])).exp();
                        h[n] = decay * h[n] + wide(gains.1) * delta * u * wide(case.b[t * d_state + n]);
                        sum += h[n] * wide(case.c[t * d_state + n]);
                    }
                    close(y[at], sum * silu_wide(wide(case.z[at])), 3e-6);
                }
                for n in 0..d_state {
                    close(state[ch * d_state + n], h[n], 3e-6);
                }
            }
        }
    }
}

#[test]
fn no_gain_freezes_the_state() {
    let case = Case::new(20, 16, 9);
    let start = noise(19, 20 * 16);
    let mut state = start.clone();
    case.run((0.0, 0.0), &mut state);
    assert_eq!(start, state);
}

#[test]
fn both_gains_together_scale_delta() {
    let (mut case, mut scaled) = (Case::new(20, 16, 9), Case::new(20, 16, 9));
    // Above the threshold softplus is the identity, so Δ can be scaled from outside.
    case.bias.fill(0.0);
    scaled.bias.fill(0.0);
    case.raw.fill(24.0);
    scaled.raw.fill(60.0);
    let (mut state, mut other) = (vec![1.0; 320], vec![1.0; 320]);
    assert_eq!(case.run((2.5, 2.5), &mut state), scaled.run((1.0, 1.0), &mut other));
    assert_eq!(state, other);
}

#[test]
fn threads_change_no_bit() {
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let work = || {
        let (x, w) = (noise(21, 5 * 700), noise(22, 1003 * 700));
        let mut product = vec![0.0; 5 * 1003];
        matmul(&x, 5, &Panels::pack(&w, 1003, 700), &mut product);
        let case = Case::new(200, 16, 64);
        let mut state = vec![0.5; 200 * 16];
        let y = case.run((1.0, 1.0), &mut state);
        (bits(&product), bits(&y), bits(&state))
    };
    let want = pool(1).install(work);
    for threads in [2, 3, 5] {
        assert!(want == pool(threads).install(work), "{threads} threads");
    }
}
