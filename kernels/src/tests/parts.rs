//! Attention, the scan of Mamba-2, layer norm and activations: bit equality on every path and split, and comparison with
//! plain loops in f64.

use proptest::prelude::*;

use super::bits::bits;
use super::values::{close, noise, wide};
use crate::activation::{Gate, gate_on, gelu_on, soft_cap_on};
use crate::attention::attend_on;
use crate::head_scan::head_scan_on;
use crate::norm::layer_norm_on;
use crate::{Attention, AttentionMask, HeadScan, KvPage, PAGE_LEN, Path, Rows};

/// The positions that a row sees.
#[derive(Debug, Clone, Copy)]
enum Sees {
    /// Up to its own.
    Before,
    /// So many, up to its own.
    Last(usize),
    All,
}

fn sees() -> impl Strategy<Value = Sees> {
    prop_oneof![Just(Sees::Before), (1usize..200).prop_map(Sees::Last), Just(Sees::All)]
}

/// A sequence of keys and values, and queries for its last rows.
struct Talk {
    kv_heads: usize,
    heads: usize,
    dim: usize,
    keys: Vec<f32>,
    values: Vec<f32>,
    q: Vec<f32>,
    pages: Vec<KvPage>,
    cap: Option<f32>,
}

impl Talk {
    fn new(kv_heads: usize, group: usize, dim: usize, len: usize) -> Self {
        let width = kv_heads * dim;
        let (keys, values) = (noise(31, len * width), noise(32, len * width));
        let q = noise(33, len * group * width);
        let mut pages = vec![KvPage::new(kv_heads, dim); len.div_ceil(PAGE_LEN)];
        for (at, (key, value)) in keys.chunks(width).zip(values.chunks(width)).enumerate() {
            pages[at / PAGE_LEN].write(at % PAGE_LEN, key, value);
        }
        Self { kv_heads, heads: kv_heads * group, dim, keys, values, q, pages, cap: None }
    }

    fn len(&self) -> usize {
        self.keys.len() / (self.kv_heads * self.dim)
    }

    /// Rows `rows` of the result.
    fn attend(&self, path: Path, rows: std::ops::Range<usize>, sees: Sees) -> Vec<f32> {
        let pages: Vec<_> = self.pages.iter().collect();
        let mask = match sees {
            Sees::Before => AttentionMask::Causal { before: rows.start },
            Sees::Last(window) => AttentionMask::Sliding { before: rows.start, window },
            Sees::All => AttentionMask::All(self.len()),
        };
        let attention = Attention { pages: &pages, heads: self.heads, scale: 0.7, cap: self.cap, mask };
        let row = self.heads * self.dim;
        let mut y = vec![9.0; rows.len() * row];
        attend_on(path, &attention, &self.q[rows.start * row..rows.end * row], &mut y);
        y
    }

    /// y[row, head, ·] from plain loops.
    fn exactly(&self, row: usize, head: usize, sees: Sees) -> Vec<f64> {
        let (dim, kv) = (self.dim, head / (self.heads / self.kv_heads));
        let seen = match sees {
            Sees::Before => 0..row + 1,
            Sees::Last(window) => (row + 1).saturating_sub(window)..row + 1,
            Sees::All => 0..self.len(),
        };
        let q = &self.q[(row * self.heads + head) * dim..][..dim];
        let of = |data: &[f32], at: usize, d: usize| wide(data[(at * self.kv_heads + kv) * dim + d]);
        let capped = |score: f64| self.cap.map(wide).map_or(score, |cap| cap * (score / cap).tanh());
        let product = |at: usize| (0..dim).map(|d| wide(q[d]) * of(&self.keys, at, d)).sum::<f64>();
        let scores = seen.clone().map(|at| capped(0.7 * product(at)));
        let e: Vec<f64> = scores.map(f64::exp).collect();
        let sum: f64 = e.iter().sum();
        (0..dim).map(|d| seen.clone().zip(&e).map(|(at, e)| e * of(&self.values, at, d)).sum::<f64>() / sum).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn attention_agrees_on_every_path_and_row_by_row(
        kv_heads in 1usize..4, group in 1usize..4, dim in prop_oneof![Just(64usize), 1usize..90], len in 1usize..150,
        cut in 0.0f64..1.0, sees in sees(), cap in prop::option::of(0.5f32..60.0),
    ) {
        let talk = Talk { cap, ..Talk::new(kv_heads, group, dim, len) };
        let want = bits(&talk.attend(Path::Portable, 0..len, sees));
        let cut = (cut * len as f64) as usize;
        let row = talk.heads * dim;
        for path in Path::available() {
            prop_assert!(want == bits(&talk.attend(path, 0..len, sees)), "{}", path);
            let parts = [talk.attend(path, 0..cut, sees), talk.attend(path, cut..len, sees)].concat();
            prop_assert!(want == bits(&parts), "{} cut at {}", path, cut);
            let last = bits(&talk.attend(path, len - 1..len, sees));
            prop_assert!(want[(len - 1) * row..] == last, "{} the last row alone", path);
        }
    }

    #[test]
    fn head_scan_agrees_on_every_path_and_split(
        (groups, per_group, len, cut) in (1usize..4, 1usize..4, 1usize..40)
            .prop_flat_map(|(g, h, l)| (Just(g), Just(h), Just(l), 0..=l)),
        head_dim in prop_oneof![Just(64usize), Just(16usize), 1usize..90], d_state in 1usize..40,
        gains in (0.0f32..3.0, 0.0f32..3.0),
    ) {
        let case = Case::new(groups, per_group, head_dim, d_state, len);
        let start = noise(48, case.heads() * d_state * head_dim);
        let run = |path, cuts: &[std::ops::Range<usize>]| {
            let (mut state, mut y) = (start.clone(), Vec::new());
            for part in cuts {
                y.extend(case.run(path, part.clone(), gains, &mut state));
            }
            (bits(&y), bits(&state))
        };
        let want = run(Path::Portable, &[0..len]);
        for path in Path::available() {
            prop_assert!(want == run(path, &[0..len]), "{}", path);
            prop_assert!(want == run(path, &[0..cut, cut..len]), "{} cut at {}", path, cut);
        }
    }

    #[test]
    fn norm_and_activations_agree(
        (width, x, w, b) in (1usize..70).prop_flat_map(|n| {
            let row = || proptest::collection::vec(-9.0f32..9.0, n);
            (Just(n), proptest::collection::vec(-9.0f32..9.0, 3 * n), row(), row())
        })
    ) {
        let run = |path| {
            let (mut normed, mut gated, mut bent) = (vec![0.0; 3 * width], x.clone(), x.clone());
            layer_norm_on(path, &x, &w, &b, 1e-5, &mut normed);
            gate_on(path, Gate::Silu, Rows::new(&normed, width), width, &mut gated);
            gate_on(path, Gate::GeluTanh, Rows::new(&normed, width), width, &mut gated);
            gelu_on(path, &mut bent);
            soft_cap_on(path, 3.0, &mut bent);
            (bits(&normed), bits(&gated), bits(&bent))
        };
        let want = run(Path::Portable);
        for path in Path::available() {
            prop_assert!(want == run(path), "{}", path);
        }
    }
}

#[test]
fn attention_is_the_formula() {
    for (kv_heads, group, dim, len) in [(2, 3, 64, 130), (1, 1, 5, 17), (3, 1, 24, 64)] {
        for (sees, cap) in [
            (Sees::Before, None),
            (Sees::Before, Some(1.5)),
            (Sees::Last(9), None),
            (Sees::Last(70), Some(0.4)),
            (Sees::All, None),
        ] {
            let talk = Talk { cap, ..Talk::new(kv_heads, group, dim, len) };
            let y = talk.attend(*Path::available().last().unwrap(), 0..len, sees);
            for row in [0, len / 2, len - 1] {
                for head in 0..talk.heads {
                    let y = &y[(row * talk.heads + head) * dim..][..dim];
                    y.iter().zip(talk.exactly(row, head, sees)).for_each(|(&y, want)| close(y, want, 2e-6));
                }
            }
        }
    }
}

#[test]
fn a_row_does_not_see_later_positions() {
    let mut talk = Talk::new(2, 2, 16, 100);
    let rows = 0..40;
    let before = talk.attend(Path::Portable, rows.clone(), Sees::Before);
    for at in 40..100 {
        talk.pages[at / PAGE_LEN].write(at % PAGE_LEN, &[f32::NAN; 32], &[f32::INFINITY; 32]);
    }
    assert_eq!(before, talk.attend(Path::Portable, rows, Sees::Before));
}

#[test]
fn a_row_does_not_see_what_its_window_has_passed() {
    let mut talk = Talk::new(2, 2, 16, 150);
    let rows = 140..150;
    let before = talk.attend(Path::Portable, rows.clone(), Sees::Last(20));
    // The first row sees from 121 on, in the same page as these.
    for at in 0..121 {
        talk.pages[at / PAGE_LEN].write(at % PAGE_LEN, &[f32::NAN; 32], &[f32::INFINITY; 32]);
    }
    assert_eq!(before, talk.attend(Path::Portable, rows, Sees::Last(20)));
}

/// The buffers of a Mamba-2 scan with plausible values.
struct Case {
    groups: usize,
    head_dim: usize,
    d_state: usize,
    x: Vec<f32>,
    raw: Vec<f32>,
    bias: Vec<f32>,
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
    d: Vec<f32>,
}

impl Case {
    fn new(groups: usize, per_group: usize, head_dim: usize, d_state: usize, len: usize) -> Self {
        let heads = groups * per_group;
        Self {
            groups,
            head_dim,
            d_state,
            x: noise(41, len * heads * head_dim),
            raw: noise(42, len * heads),
            bias: noise(43, heads).iter().map(|x| x * 2.0 - 3.0).collect(),
            a: noise(44, heads).iter().map(|x| -(x * 1.5).exp()).collect(),
            b: noise(45, len * groups * d_state),
            c: noise(46, len * groups * d_state),
            d: noise(47, heads),
        }
    }

    fn heads(&self) -> usize {
        self.d.len()
    }

    fn run(&self, path: Path, steps: std::ops::Range<usize>, gains: (f32, f32), state: &mut [f32]) -> Vec<f32> {
        let (heads, width) = (self.heads(), self.heads() * self.head_dim);
        let group = self.groups * self.d_state;
        let scan = HeadScan {
            x: Rows::new(&self.x[steps.start * width..], width),
            delta_raw: Rows::new(&self.raw[steps.start * heads..], heads),
            dt_bias: &self.bias,
            dt_limit: (0.01, 0.9),
            a: &self.a,
            b: Rows::new(&self.b[steps.start * group..], group),
            c: Rows::new(&self.c[steps.start * group..], group),
            d: &self.d,
            head_dim: self.head_dim,
            d_state: self.d_state,
            groups: self.groups,
            gain_decay: gains.0,
            gain_write: gains.1,
        };
        let mut y = vec![9.0; steps.len() * width];
        head_scan_on(path, &scan, state, &mut y);
        y
    }
}

#[test]
fn the_scan_over_heads_is_the_recurrence() {
    let (groups, per_group, head_dim, d_state, len) = (2, 3, 70, 9, 40);
    let case = Case::new(groups, per_group, head_dim, d_state, len);
    let heads = case.heads();
    for gains in [(1.0, 1.0), (0.5, 2.0)] {
        let start = noise(49, heads * d_state * head_dim);
        let mut state = start.clone();
        let y = case.run(*Path::available().last().unwrap(), 0..len, gains, &mut state);
        for head in 0..heads {
            for p in 0..head_dim {
                let at = |n: usize| (head * d_state + n) * head_dim + p;
                let mut h: Vec<f64> = (0..d_state).map(|n| wide(start[at(n)])).collect();
                for t in 0..len {
                    let raw = wide(case.raw[t * heads + head]) + wide(case.bias[head]);
                    let delta = raw.exp().ln_1p().clamp(wide(0.01), wide(0.9));
                    let x = wide(case.x[(t * heads + head) * head_dim + p]);
                    let mut sum = wide(case.d[head]) * x;
                    for n in 0..d_state {
                        let bc = (t * groups + head / per_group) * d_state + n;
                        let decay = (wide(gains.0) * delta * wide(case.a[head])).exp();
                        h[n] = decay * h[n] + wide(gains.1) * delta * x * wide(case.b[bc]);
                        sum += h[n] * wide(case.c[bc]);
                    }
                    close(y[(t * heads + head) * head_dim + p], sum, 3e-6);
                }
                (0..d_state).for_each(|n| close(state[at(n)], h[n], 3e-6));
            }
        }
        let mut frozen = start.clone();
        case.run(Path::Portable, 0..len, (0.0, 0.0), &mut frozen);
        assert_eq!(frozen, start);
    }
}

#[test]
fn layer_norm_and_gate_are_the_formulas() {
    let (x, w, b) = (noise(51, 4 * 37), noise(52, 37), noise(53, 37));
    let mut y = vec![0.0; 4 * 37];
    layer_norm_on(*Path::available().last().unwrap(), &x, &w, &b, 1e-5, &mut y);
    for (x, y) in x.chunks(37).zip(y.chunks(37)) {
        let mean = x.iter().copied().map(wide).sum::<f64>() / 37.0;
        let variance = x.iter().map(|&x| (wide(x) - mean).powi(2)).sum::<f64>() / 37.0;
        for i in 0..37 {
            close(y[i], (wide(x[i]) - mean) / (variance + 1e-5).sqrt() * wide(w[i]) + wide(b[i]), 2e-6);
        }
    }
    let gelu = |x: f64| x / 2.0 * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x.powi(3))).tanh());
    let silu = |x: f64| x / (1.0 + (-x).exp());
    for (function, exact) in [(Gate::Silu, &silu as &dyn Fn(f64) -> f64), (Gate::GeluTanh, &gelu)] {
        let (gate, mut y) = (noise(54, 2 * 50), noise(55, 2 * 20));
        let before = y.clone();
        gate_on(Path::Portable, function, Rows::new(&gate[30..], 50), 20, &mut y);
        for (i, (&y, before)) in y.iter().zip(before).enumerate() {
            close(y, exact(wide(gate[30 + i / 20 * 50 + i % 20])) * wide(before), 1e-6);
        }
    }
    let x = noise(56, 37);
    let mut capped = x.clone();
    soft_cap_on(Path::Portable, 0.3, &mut capped);
    x.iter().zip(&capped).for_each(|(&x, &y)| close(y, 0.3 * (wide(x) / f64::from(0.3f32)).tanh(), 1e-6));
}

#[test]
fn gelu_is_within_its_stated_error() {
    let x: Vec<f32> = (-120_000..=120_000).map(|i| i as f32 * 1e-4).collect();
    for path in Path::available() {
        let mut y = x.clone();
        gelu_on(path, &mut y);
        for (&x, &y) in x.iter().zip(&y) {
            let want = wide(x) * 0.5 * libm::erfc(-wide(x) * std::f64::consts::FRAC_1_SQRT_2);
            assert!((wide(y) - want).abs() <= 2e-7 * wide(x).abs().max(1.0), "gelu({x}) is {y}, not {want}");
        }
    }
    let mut special = [f32::NAN, f32::INFINITY, -200.0, 0.0];
    gelu_on(Path::Portable, &mut special);
    assert!(special[0].is_nan() && special[1..] == [f32::INFINITY, 0.0, 0.0]);
}
