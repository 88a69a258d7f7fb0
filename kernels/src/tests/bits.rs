//! Bit equality across instruction sets, row counts and thread counts.

use proptest::prelude::*;

use crate::conv::causal_conv_silu_on;
use crate::logits::read_logits_on;
use crate::matmul::matmul_on;
use crate::norm::rms_norm_on;
use crate::sample::sample_on;
use crate::scan::selective_scan_on;
use crate::steps::add_steps_on;
use crate::{Panels, Path, Rows, SampleParams, SampleScratch, Scan, read_logits};

/// Bits, with all NaNs equal.
pub(super) fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect()
}

/// Mostly ordinary numbers, now and then an extreme one.
fn number() -> impl Strategy<Value = f32> {
    prop_oneof![
        30 => -4.0f32..4.0,
        1 => Just(0.0), 1 => Just(-0.0), 1 => Just(1e30), 1 => Just(-1e-42),
        1 => -200.0f32..200.0,
    ]
}

/// Ordinary numbers with NaN and infinities among them.
fn wild() -> impl Strategy<Value = f32> {
    prop_oneof![20 => number(), 1 => Just(f32::NAN), 1 => Just(f32::INFINITY), 1 => Just(f32::NEG_INFINITY)]
}

fn numbers(len: usize) -> impl Strategy<Value = Vec<f32>> {
    prop_oneof![4 => proptest::collection::vec(number(), len), 1 => proptest::collection::vec(wild(), len)]
}

fn other_paths() -> Vec<Path> {
    Path::available().into_iter().filter(|&path| path != Path::Portable).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn matmul_agrees_on_every_path_and_row_by_row(
        (rows, outputs, inputs, x, w) in (1usize..15, 0usize..150, 0usize..40).prop_flat_map(|(r, o, i)|
            (Just(r), Just(o), Just(i), numbers(r * (i + 3)), numbers(o * i)))
    ) {
        let panels = Panels::pack(&w, outputs, inputs);
        let view = Rows::new(&x, inputs + 3);
        // By definition: one chain per output.
        let mut want = Vec::new();
        for r in 0..rows {
            for o in 0..outputs {
                want.push((0..inputs).fold(0.0f32, |sum, i| x[r * (inputs + 3) + i].mul_add(w[o * inputs + i], sum)));
            }
        }
        for path in Path::available() {
            let mut all = vec![9.0; rows * outputs];
            matmul_on(path, view, rows, &panels, &mut all);
            prop_assert_eq!(bits(&want), bits(&all), "{}", path);
            for r in 0..rows {
                let mut one = vec![9.0; outputs];
                matmul_on(path, Rows::new(&x[r * (inputs + 3)..], inputs), 1, &panels, &mut one);
                prop_assert_eq!(bits(&want[r * outputs..][..outputs]), bits(&one), "{} row {}", path, r);
            }
        }
    }

    #[test]
    fn rms_norm_agrees(
        (width, x, w) in (1usize..70).prop_flat_map(|n| (Just(n), numbers(3 * n), numbers(n)))
    ) {
        let mut want = vec![0.0; 3 * width];
        rms_norm_on(Path::Portable, &x, &w, 1e-5, &mut want);
        for path in other_paths() {
            let mut y = vec![0.0; 3 * width];
            rms_norm_on(path, &x, &w, 1e-5, &mut y);
            prop_assert_eq!(bits(&want), bits(&y), "{}", path);
        }
    }

    #[test]
    fn conv_agrees_on_every_path_and_split(
        (channels, taps, len, cut, u, w, b, tail) in (1usize..40, 1usize..6, 1usize..9).prop_flat_map(|(c, k, l)|
            (Just(c), Just(k), Just(l), 0..=l, numbers(l * 2 * c), numbers(c * k), numbers(c), numbers(c * (k - 1))))
    ) {
        let run = |path, cuts: &[std::ops::Range<usize>]| {
            let (mut tail, mut y) = (tail.clone(), vec![0.0; len * channels]);
            for part in cuts {
                let u = Rows::new(&u[(part.start * 2 * channels).min(u.len())..], 2 * channels);
                let y = &mut y[part.start * channels..part.end * channels];
                causal_conv_silu_on(path, u, &w, Some(&b), taps, &mut tail, y);
            }
            (bits(&y), bits(&tail))
        };
        let want = run(Path::Portable, &[0..len]);
        for path in Path::available() {
            prop_assert_eq!(&want, &run(path, &[0..len]), "{}", path);
            prop_assert_eq!(&want, &run(path, &[0..cut, cut..len]), "{} cut at {}", path, cut);
        }
    }

    #[test]
    fn scan_agrees_on_every_path_and_split(
        (channels, d_state, len, cut) in (1usize..40, prop_oneof![Just(16usize), 1usize..40], 1usize..7)
            .prop_flat_map(|(c, n, l)| (Just(c), Just(n), Just(l), 0..=l)),
        seed in proptest::collection::vec(number(), 997),
        gains in (0.0f32..3.0, 0.0f32..3.0),
    ) {
        let mut next = 0;
        let mut take = |count: usize| -> Vec<f32> {
            (0..count).map(|_| { next += 1; seed[next * 31 % seed.len()] }).collect()
        };
        let (u, raw, z) = (take(len * channels), take(len * channels), take(len * channels));
        let (bias, d) = (take(channels), take(channels));
        let (b, c) = (take(len * d_state), take(len * d_state));
        let a: Vec<f32> = take(channels * d_state).iter().map(|x| -x.abs()).collect();
        let start = take(channels * d_state);
        let run = |path, cuts: &[std::ops::Range<usize>]| {
            let (mut state, mut y) = (start.clone(), vec![0.0; len * channels]);
            for part in cuts {
                let rows = Rows::new;
                let at = part.start;
                let scan = Scan {
                    u: rows(&u[at * channels..], channels), delta_raw: rows(&raw[at * channels..], channels),
                    dt_bias: &bias, a: &a, b: rows(&b[at * d_state..], d_state), c: rows(&c[at * d_state..], d_state),
                    d: &d, z: Some(rows(&z[at * channels..], channels)), gain_decay: gains.0, gain_write: gains.1,
                };
                selective_scan_on(path, &scan, &mut state, &mut y[at * channels..part.end * channels]);
            }
            (bits(&y), bits(&state))
        };
        let want = run(Path::Portable, &[0..len]);
        for path in Path::available() {
            prop_assert_eq!(&want, &run(path, &[0..len]), "{}", path);
            prop_assert_eq!(&want, &run(path, &[0..cut, cut..len]), "{} cut at {}", path, cut);
        }
    }

    #[test]
    fn add_steps_sums_the_deltas_of_the_scan_for_every_split(
        (len, channels, cut, raw, bias) in (1usize..9, 1usize..40).prop_flat_map(|(len, channels)|
            (Just(len), Just(channels), 0..len, proptest::collection::vec(number(), len * channels),
                proptest::collection::vec(number(), channels)))
    ) {
        let limit = (0.0, f32::INFINITY);
        // With no decay, and ones for what is written, a scan's state after one step is Δ itself.
        let (zeros, ones) = (vec![0.0; channels], vec![1.0; channels]);
        let mut want = vec![0.0f64; channels];
        for row in raw.chunks(channels) {
            let scan = Scan {
                u: Rows::new(&ones, channels),
                delta_raw: Rows::new(row, channels),
                dt_bias: &bias,
                a: &zeros,
                b: Rows::new(&ones, 1),
                c: Rows::new(&ones, 1),
                d: &zeros,
                z: None,
                gain_decay: 0.0,
                gain_write: 1.0,
            };
            let mut state = vec![0.0; channels];
            selective_scan_on(Path::Portable, &scan, &mut state, &mut vec![0.0; channels]);
            want.iter_mut().zip(&state).for_each(|(sum, delta)| *sum += f64::from(*delta));
        }
        let exact = |sums: &[f64]| sums.iter().map(|x| if x.is_nan() { u64::MAX } else { x.to_bits() }).collect::<Vec<_>>();
        for path in Path::available() {
            let mut sums = vec![0.0; channels];
            let (first, rest) = raw.split_at(cut * channels);
            add_steps_on(path, Rows::new(first, channels), &bias, limit, cut, &mut sums);
            add_steps_on(path, Rows::new(rest, channels), &bias, limit, len - cut, &mut sums);
            prop_assert_eq!(exact(&want), exact(&sums), "{}", path);
        }
    }

    #[test]
    fn the_top_entries_are_a_prefix_of_the_full_order(logits in (0usize..600).prop_flat_map(numbers), top in 0usize..40) {
        let bare = |top| read_logits(&logits, top).1.into_iter().map(|(id, x)| (id, bits(&[x]))).collect::<Vec<_>>();
        let all = bare(logits.len());
        prop_assert_eq!(&bare(top)[..], &all[..top.min(all.len())]);
    }

    #[test]
    fn logit_statistics_and_samples_agree_on_every_path(
        logits in (0usize..3000).prop_flat_map(numbers), top in 0usize..40, uniform in 0.0f64..1.0,
        temperature in prop_oneof![Just(0.0f32), 0.05f32..3.0], k in proptest::option::of(0usize..60),
        top_p in prop_oneof![Just(1.0f32), 0.0f32..1.0], min_p in prop_oneof![Just(0.0f32), 0.0f32..1.0],
    ) {
        let params = SampleParams { temperature, top_k: k, top_p, min_p };
        let read = |path| {
            let (summary, top) = read_logits_on(path, &logits, top);
            let numbers = bits(&[summary.max, summary.log_z, summary.entropy]);
            let top: Vec<_> = top.iter().map(|&(id, x)| (id, bits(&[x]))).collect();
            (numbers, top, sample_on(path, &logits, &params, uniform, &mut SampleScratch::default()))
        };
        let want = read(Path::Portable);
        for path in other_paths() {
            prop_assert_eq!(&want, &read(path), "{}", path);
        }
    }
}
