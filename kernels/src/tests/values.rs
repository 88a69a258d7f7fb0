//! The reference against double precision, and the meaning of special values.

use proptest::prelude::*;

use super::bits::bits;
use crate::dispatch::{Kernel, dispatch};
use crate::lanes::{LANES, Lanes};
use crate::math::{exp, ln_f64, silu, softplus};
use crate::{
    Panels, Path, Rows, SampleParams, Scan, causal_conv_silu, matmul, penalise, rank_of, read_logits, read_token,
    rms_norm, sample, selective_scan,
};

#[derive(Clone, Copy, Debug)]
enum Function {
    Exp,
    Softplus,
    Silu,
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
    for function in [Function::Exp, Function::Softplus, Function::Silu] {
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
            // One step off where the exact value lies between the largest number and infinity.
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

#[test]
fn reading_a_vocabulary_of_150_thousand() {
    for (scale, shift) in [(1.0, 0.0), (8.0, 300.0), (0.001, -5.0)] {
        // Rising, so that the running maximum moves often.
        let logits: Vec<f32> =
            noise(23, 150_001).iter().enumerate().map(|(i, x)| x * scale + shift + i as f32 * 1e-5).collect();
        let (summary, _) = read_logits(&logits, 5);
        let max = logits.iter().copied().map(wide).fold(f64::MIN, f64::max);
        let s: f64 = logits.iter().map(|&x| (wide(x) - max).exp()).sum();
        let log_z = max + s.ln();
        let entropy: f64 = logits.iter().map(|&x| wide(x) - log_z).map(|logp| -logp * logp.exp()).sum();
        close(summary.log_z, log_z, 2e-7);
        close(summary.entropy, entropy, 1e-6);
    }
}

#[test]
fn the_likeliest_entries_with_ties_to_the_lower_id() {
    let check = |logits: &[f32], top: usize, want: &[u32]| {
        let ids: Vec<u32> = read_logits(logits, top).1.iter().map(|&(id, _)| id).collect();
        assert_eq!(ids, want);
    };
    check(&[1.0, 3.0, 2.0, 3.0, 3.0], 3, &[1, 3, 4]);
    check(&[1.0, 3.0, 2.0, 3.0, 3.0], 2, &[1, 3]);
    check(&[1.0, 2.0], 9, &[1, 0]);
    check(&[1.0, 2.0], 0, &[]);
    check(&[f32::NEG_INFINITY, 2.0], 2, &[1, 0]);
    let logits = noise(24, 5000);
    let mut order: Vec<u32> = (0..5000).collect();
    order.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
    check(&logits, 100, &order[..100]);
    for rank in [0, 1, 77, 4999] {
        assert_eq!(rank_of(&logits, order[rank]), Some(rank as u32));
    }
}

#[test]
fn rows_that_are_no_distribution_say_so() {
    let check = |logits: &[f32], valid: bool| {
        assert_eq!(read_logits(logits, 2).0.is_valid(), valid, "{logits:?}");
        let params = SampleParams { temperature: 1.0, top_k: None, top_p: 0.9, min_p: 0.0 };
        assert_eq!(sample(logits, &params, 0.5, &mut Vec::new()).is_some(), valid, "{logits:?}");
    };
    check(&[], false);
    check(&[f32::NAN, 1.0], false);
    check(&[1.0, f32::NAN], false);
    check(&[f32::INFINITY, 1.0], false);
    check(&[f32::NEG_INFINITY, f32::NEG_INFINITY], false);
    check(&[f32::NEG_INFINITY, 1.0], true);
    check(&[1.0], true);
    check(&[f32::MAX, f32::MIN], true);
    let reading = read_token(&[f32::NEG_INFINITY, 1.0, 1.0], 2, 1).unwrap();
    assert_eq!((reading.rank, reading.top[0].0), (0, 1));
    close(reading.logprob, 0.5f64.ln(), 1e-7);
    close(reading.entropy, 2f64.ln(), 1e-7);
    assert_eq!(read_token(&[1.0], 1, 1), None);
}

/// The kept distribution in double precision: ids in order with weights, or nothing where a filter's edge is too
/// close to call in single precision.
fn kept_distribution(logits: &[f32], params: &SampleParams) -> Option<Vec<(u32, f64)>> {
    let max = logits.iter().copied().fold(f32::MIN, f32::max);
    let weight = |x: f32| (wide(x - max) / wide(params.temperature)).exp();
    let mut kept: Vec<(u32, f64)> = logits.iter().enumerate().map(|(id, &x)| (id as u32, weight(x))).collect();
    kept.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    kept.truncate(params.top_k.unwrap_or(usize::MAX).max(1));
    let total: f64 = kept.iter().map(|x| x.1).sum();
    let mut before = 0.0;
    let mut within = 0;
    while within < kept.len() && (within == 0 || params.top_p >= 1.0 || before / total < wide(params.top_p)) {
        before += kept[within].1;
        within += 1;
        if params.top_p < 1.0 && (before / total - wide(params.top_p)).abs() < 1e-5 {
            return None;
        }
    }
    kept.truncate(within);
    if kept.iter().any(|x| (x.1 - wide(params.min_p)).abs() < 1e-5 && x.1 < 1.0) {
        return None;
    }
    kept.retain(|x| x.1 >= wide(params.min_p));
    kept.sort_by_key(|x| x.0);
    Some(kept)
}

proptest! {
    #[test]
    fn drawing_inverts_the_kept_distribution(
        logits in proptest::collection::vec(-8.0f32..8.0, 1..400), uniform in 0.0f64..1.0,
        temperature in 0.2f32..3.0, top_k in proptest::option::of(1usize..60),
        top_p in prop_oneof![Just(1.0f32), 0.01f32..1.0], min_p in prop_oneof![Just(0.0f32), 0.0f32..0.5],
    ) {
        let params = SampleParams { temperature, top_k, top_p, min_p };
        let kept = kept_distribution(&logits, &params);
        prop_assume!(kept.is_some());
        let kept = kept.unwrap();
        let total: f64 = kept.iter().map(|x| x.1).sum();
        let id = sample(&logits, &params, uniform, &mut Vec::new()).unwrap();
        let before: f64 = kept.iter().filter(|x| x.0 < id).map(|x| x.1).sum();
        let own = kept.iter().find(|x| x.0 == id).map(|x| x.1);
        prop_assert!(own.is_some(), "drew {}, which is not kept", id);
        prop_assert!(before / total < uniform + 1e-5, "drawn too early");
        prop_assert!((before + own.unwrap()) / total > uniform - 1e-5, "drawn too late");
    }
}

#[test]
fn edges_of_drawing() {
    let check = |logits: &[f32], params: SampleParams, uniform: f64, want: u32| {
        assert_eq!(sample(logits, &params, uniform, &mut Vec::new()), Some(want), "{params:?} at {uniform}");
    };
    let all = SampleParams { temperature: 1.0, top_k: None, top_p: 1.0, min_p: 0.0 };
    let logits = [0.0, 2.0, 2.0, 1.0];
    check(&logits, SampleParams { temperature: 0.0, ..all }, 0.99, 1);
    check(&logits, SampleParams { top_k: Some(1), ..all }, 0.99, 1);
    check(&logits, SampleParams { top_k: Some(0), ..all }, 0.99, 1);
    check(&logits, SampleParams { top_p: 0.0, ..all }, 0.99, 1);
    check(&logits, SampleParams { min_p: 1.0, ..all }, 0.49, 1);
    check(&logits, SampleParams { min_p: 1.0, ..all }, 0.51, 2);
    check(&logits, all, 0.0, 0);
    check(&logits, all, 1.0 - 1e-12, 3);
    check(&[f32::NEG_INFINITY, 0.0], all, 0.0, 1);
    check(&[0.0, f32::NEG_INFINITY], all, 1.0 - 1e-12, 0);
}

#[test]
fn a_penalty_falls_once_on_each_entry() {
    let mut logits = [2.0, -2.0, 3.0];
    penalise(&mut logits, &[0, 1, 0, 99], 2.0);
    assert_eq!(logits, [1.0, -4.0, 3.0]);
}

#[test]
fn a_masked_beginning_is_worth_nothing() {
    let mut logits = vec![f32::NEG_INFINITY; 3_000];
    (logits[1_500], logits[2_900]) = (2.0, 2.0);
    let (summary, top) = read_logits(&logits, 3);
    close(summary.log_z, 2.0 + 2f64.ln(), 1e-6);
    close(summary.entropy, 2f64.ln(), 1e-6);
    assert_eq!(top[..2].iter().map(|&(id, _)| id).collect::<Vec<_>>(), [1_500, 2_900]);
    logits[7] = f32::NAN;
    assert!(!read_logits(&logits, 3).0.is_valid());
}

#[test]
fn a_probability_near_one_keeps_its_digits() {
    // ln Σ is near 24, where one f32 step is 1.9e-6; the log-probability of the first entry is −1.1e-6.
    let logits = [24.0, 24.0 - 13.7];
    let want = -(-13.7f64).exp().ln_1p();
    let got = f64::from(read_logits(&logits, 1).1[0].1);
    assert!((got - want).abs() < 1e-9, "{got} against {want}");
}
