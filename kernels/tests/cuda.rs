//! The CUDA kernels, run on the CPU thread by thread (`cuda/simt.hpp`), against the Rust kernels on random inputs: odd
//! sizes, long sequences, ragged batches, separate source and destination slots, extreme Δ, poisoned outputs.
//!
//! `cargo test -p loom-kernels --features cuda-emulation --test cuda`

#![allow(clippy::pedantic, reason = "tests")]

use std::ffi::c_void;

use loom_kernels::{
    Panels, Rows, SampleParams, Scan, causal_conv_silu, matmul, penalise, rank_of, read_logits, rms_norm, sample,
    selective_scan,
};

/// `Sequence` of `cuda/mamba.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Sequence {
    row: i32,
    len: i32,
    from: i32,
    to: i32,
    gain_decay: f32,
    gain_write: f32,
}

/// `Ask` of `cuda/logits.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Ask {
    temperature: f32,
    top_p: f32,
    min_p: f32,
    penalty: f32,
    top_k: u32,
    top: u32,
    uniform: f64,
    from: u32,
    count: u32,
    given: u32,
}

const TOP_MAX: usize = 20;

#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    id: u32,
    logprob: f32,
}

/// `Reading` of `cuda/logits.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Reading {
    id: u32,
    logprob: f32,
    entropy: f32,
    rank: u32,
    top: [Entry; TOP_MAX],
}

unsafe extern "C" {
    fn emulate_rms_norm(x: *mut f32, added: *const f32, weight: *const f32, eps: f32, y: *mut f32, width: i32, rows: i32);
    fn emulate_conv_silu(
        u: *const f32, stride: i32, weight: *const f32, bias: *const f32, tails: *mut f32, sequences: *const Sequence,
        count: i32, channels: i32, taps: i32, y: *mut f32,
    );
    fn emulate_scan_step16(
        u: *const f32, delta: *const f32, dt_bias: *const f32, a: *const f32, bc: *const f32, bc_stride: i32,
        d: *const f32, z: *const f32, z_stride: i32, states: *mut f32, sequences: *const Sequence, count: i32,
        channels: i32, y: *mut f32,
    );
    fn emulate_scan_segments(
        u: *const f32, delta: *const f32, dt_bias: *const f32, a: *const f32, bc: *const f32, bc_stride: i32,
        d: *const f32, z: *const f32, z_stride: i32, states: *mut f32, sequences: *const Sequence, count: i32,
        channels: i32, d_state: i32, y: *mut f32,
    );
    fn emulate_product(
        kind: i32, x: *const f32, weight: *const c_void, bias: *const f32, y: *mut f32, rows: i32, inputs: i32,
        outputs: i32, y_stride: i32,
    );
    fn emulate_product_q8_0(
        x: *const f32, quants: *const i8, scales: *const u16, y: *mut f32, rows: i32, inputs: i32, outputs: i32,
    );
    fn emulate_read_logits(
        logits: *const f32, weights: *mut f32, asks: *const Ask, penalised: *const u32, out: *mut Reading, rows: i32,
        vocabulary: i32,
    );
}

/// The emulator is one machine: tests take turns.
static MACHINE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn machine() -> std::sync::MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Numbers from a counter (SplitMix64, Steele et al. 2014), uniform in [−1, 1).
struct Draw(u64);

impl Draw {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn floats(&mut self, count: usize, scale: f32) -> Vec<f32> {
        (0..count).map(|_| (2.0 * self.unit() - 1.0) as f32 * scale).collect()
    }
}

const POISON: f32 = f32::NAN;

#[track_caller]
fn close(what: &str, ours: &[f32], theirs: &[f32], relative: f32, absolute: f32) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (at, (a, b)) in ours.iter().zip(theirs).enumerate() {
        assert!((a - b).abs() <= absolute + relative * b.abs(), "{what}[{at}]: {a} on the device, {b} here");
    }
}

#[test]
fn rms_norm_adds_to_the_residual_stream() {
    let _turn = machine();
    let mut draw = Draw(1);
    for (rows, width) in [(1, 1), (3, 31), (2, 256), (5, 777), (1, 2560)] {
        let mut x = draw.floats(rows * width, 3.0);
        let (added, weight) = (draw.floats(rows * width, 1.0), draw.floats(width, 2.0));
        let sum: Vec<f32> = x.iter().zip(&added).map(|(x, y)| x + y).collect();
        let (mut y, mut expected) = (vec![POISON; rows * width], vec![POISON; rows * width]);
        rms_norm(&sum, &weight, 1e-5, &mut expected);
        unsafe {
            let at = weight.as_ptr();
            emulate_rms_norm(x.as_mut_ptr(), added.as_ptr(), at, 1e-5, y.as_mut_ptr(), width as i32, rows as i32);
        }
        assert_eq!(x, sum, "the residual stream");
        close("norm", &y, &expected, 3e-6, 1e-7);
    }
}

/// Ragged sequences over `slots` slots: lengths, where they read from, where they write to.
fn ragged(lens: &[usize], separate: bool, draw: &mut Draw) -> Vec<Sequence> {
    let mut row = 0;
    let sequence = |(index, &len): (usize, &usize)| {
        let begun = row;
        row += len as i32;
        let from = index as i32;
        let to = if separate { from + lens.len() as i32 } else { from };
        let mut gain = || (0.25 + 1.5 * draw.unit()) as f32;
        Sequence { row: begun, len: len as i32, from, to, gain_decay: gain(), gain_write: gain() }
    };
    lens.iter().enumerate().map(sequence).collect()
}

#[test]
fn convolution_walks_ragged_sequences_from_their_tails() {
    let _turn = machine();
    let mut draw = Draw(2);
    for (channels, taps, lens, separate) in
        [(5, 4, vec![1, 7, 2], true), (129, 4, vec![3, 1], false), (64, 2, vec![9], true), (33, 8, vec![4, 4, 1, 1], false)]
    {
        let sequences = ragged(&lens, separate, &mut draw);
        let rows: usize = lens.iter().sum();
        let (stride, past) = (2 * channels + 3, taps - 1);
        let u = draw.floats(rows * stride, 2.0);
        let (weight, bias) = (draw.floats(channels * taps, 1.0), draw.floats(channels, 1.0));
        let slots = lens.len() * 2;
        let before = draw.floats(slots * channels * past, 1.0);
        let mut tails = before.clone();
        let mut y = vec![POISON; rows * channels];
        unsafe {
            emulate_conv_silu(
                u.as_ptr(), stride as i32, weight.as_ptr(), bias.as_ptr(), tails.as_mut_ptr(), sequences.as_ptr(),
                lens.len() as i32, channels as i32, taps as i32, y.as_mut_ptr(),
            );
        }
        for sequence in &sequences {
            let (row, len) = (sequence.row as usize, sequence.len as usize);
            let slot = |index: i32| index as usize * channels * past..(index as usize + 1) * channels * past;
            let mut tail = before[slot(sequence.from)].to_vec();
            let mut expected = vec![POISON; len * channels];
            causal_conv_silu(Rows::new(&u[row * stride..], stride), &weight, Some(&bias), taps, &mut tail, &mut expected);
            close("conv", &y[row * channels..][..len * channels], &expected, 4e-6, 1e-6);
            assert_eq!(tails[slot(sequence.to)], tail, "the tail");
            if separate {
                assert_eq!(tails[slot(sequence.from)], before[slot(sequence.from)], "the source stays as it was");
            }
        }
    }
}

struct Case {
    channels: usize,
    d_state: usize,
    lens: Vec<usize>,
    separate: bool,
    /// Scale of Δ before the softplus: above 20 it passes through.
    delta: f32,
    gated: bool,
    step: bool,
}

fn check_scan(case: &Case, seed: u64) {
    let mut draw = Draw(seed);
    let Case { channels, d_state, lens, separate, delta, gated, step } = case;
    let (channels, d_state) = (*channels, *d_state);
    let sequences = ragged(lens, *separate, &mut draw);
    let rows: usize = lens.iter().sum();
    let u = draw.floats(rows * channels, 1.0);
    let raw = draw.floats(rows * channels, *delta);
    let bias: Vec<f32> = draw.floats(channels, 1.0).iter().map(|x| x - 3.0).collect();
    let a: Vec<f32> = draw.floats(channels * d_state, 8.0).iter().map(|x| -x.abs() - 0.01).collect();
    let stride = 2 * d_state + 5;
    let bc = draw.floats(rows * stride, 1.0);
    let d = draw.floats(channels, 1.0);
    let z_stride = channels + 7;
    let z = draw.floats(rows * z_stride, 2.0);
    let before = draw.floats(2 * lens.len() * channels * d_state, 1.0);
    let mut states = before.clone();
    let mut y = vec![POISON; rows * channels];
    let gate = if *gated { z.as_ptr() } else { std::ptr::null() };
    let (count, wide) = (lens.len() as i32, channels as i32);
    unsafe {
        if *step {
            emulate_scan_step16(
                u.as_ptr(), raw.as_ptr(), bias.as_ptr(), a.as_ptr(), bc.as_ptr(), stride as i32, d.as_ptr(), gate,
                z_stride as i32, states.as_mut_ptr(), sequences.as_ptr(), count, wide, y.as_mut_ptr(),
            );
        } else {
            emulate_scan_segments(
                u.as_ptr(), raw.as_ptr(), bias.as_ptr(), a.as_ptr(), bc.as_ptr(), stride as i32, d.as_ptr(), gate,
                z_stride as i32, states.as_mut_ptr(), sequences.as_ptr(), count, wide, d_state as i32, y.as_mut_ptr(),
            );
        }
    }
    for sequence in &sequences {
        let (row, len) = (sequence.row as usize, sequence.len as usize);
        let slot = |index: i32| index as usize * channels * d_state..(index as usize + 1) * channels * d_state;
        let mut state = before[slot(sequence.from)].to_vec();
        let mut expected = vec![POISON; len * channels];
        let scan = Scan {
            u: Rows::new(&u[row * channels..], channels),
            delta_raw: Rows::new(&raw[row * channels..], channels),
            dt_bias: &bias,
            a: &a,
            b: Rows::new(&bc[row * stride..], stride),
            c: Rows::new(&bc[row * stride + d_state..], stride),
            d: &d,
            z: gated.then(|| Rows::new(&z[row * z_stride..], z_stride)),
            gain_decay: sequence.gain_decay,
            gain_write: sequence.gain_write,
        };
        selective_scan(&scan, &mut state, &mut expected);
        let size = expected.iter().fold(1.0f32, |size, x| size.max(x.abs()));
        close("scan", &y[row * channels..][..len * channels], &expected, 2e-5, 4e-6 * size);
        close("state", &states[slot(sequence.to)], &state, 2e-5, 4e-6 * size);
        if *separate {
            assert_eq!(states[slot(sequence.from)], before[slot(sequence.from)], "the source stays as it was");
        }
    }
}

#[test]
fn a_segment_is_scanned_from_its_slot() {
    let _turn = machine();
    let plain = |channels, d_state, lens: &[usize]| Case {
        channels, d_state, lens: lens.to_vec(), separate: true, delta: 2.0, gated: true, step: false,
    };
    check_scan(&plain(3, 16, &[1]), 3);
    check_scan(&plain(2, 16, &[5, 130, 1]), 4);
    check_scan(&plain(2, 7, &[513, 512, 511]), 5);
    check_scan(&plain(1, 16, &[2_000]), 6);
    check_scan(&plain(2, 64, &[37]), 7);
    check_scan(&Case { separate: false, gated: false, ..plain(3, 16, &[33, 2]) }, 8);
    check_scan(&Case { delta: 60.0, ..plain(2, 16, &[300]) }, 9);
    check_scan(&Case { delta: 1e-3, ..plain(2, 16, &[300]) }, 10);
}

#[test]
fn a_step_is_a_segment_of_one() {
    let _turn = machine();
    for (seed, channels, count) in [(11, 1, 1), (12, 9, 3), (13, 24, 2), (14, 40, 5)] {
        let case = Case {
            channels, d_state: 16, lens: vec![1; count], separate: seed % 2 == 1, delta: 5.0, gated: seed != 12, step: true,
        };
        check_scan(&case, seed);
    }
}

fn bf16_bits(x: f32) -> u16 {
    (x.to_bits() >> 16) as u16
}

#[test]
fn products_read_every_type_of_weight() {
    let _turn = machine();
    let mut draw = Draw(15);
    for (rows, inputs, outputs) in [(1, 32, 5), (1, 1536, 7), (8, 256, 3), (11, 512, 6), (3, 2560, 2)] {
        let x = draw.floats(rows * inputs, 1.0);
        let bias = draw.floats(outputs, 1.0);
        let weight = draw.floats(outputs * inputs, 1.0);
        let narrow: Vec<u16> = weight.iter().map(|&w| bf16_bits(w)).collect();
        let widened: Vec<f32> = narrow.iter().map(|&bits| f32::from_bits(u32::from(bits) << 16)).collect();
        // Multiples of 1/64 below 2 are whole in f16: sign, exponent 15 + e, mantissa.
        let halves: Vec<f32> = weight.iter().map(|w| (w * 64.0).round() / 64.0).collect();
        let half_bits: Vec<u16> = halves.iter().map(|&w| f16_bits(w)).collect();
        let sources: [(i32, *const c_void, &[f32]); 3] = [
            (0, weight.as_ptr().cast(), &weight),
            (1, narrow.as_ptr().cast(), &widened),
            (2, half_bits.as_ptr().cast(), &halves),
        ];
        for (kind, at, values) in sources {
            let mut expected = vec![POISON; rows * outputs];
            matmul(&x, rows, &Panels::pack(values, outputs, inputs), &mut expected);
            let stride = outputs + 2;
            let mut y = vec![POISON; rows * stride];
            let (rows_, inputs_, outputs_) = (rows as i32, inputs as i32, outputs as i32);
            unsafe {
                emulate_product(kind, x.as_ptr(), at, bias.as_ptr(), y.as_mut_ptr(), rows_, inputs_, outputs_, stride as i32);
            }
            for r in 0..rows {
                let with_bias: Vec<f32> = (0..outputs).map(|o| expected[r * outputs + o] + bias[o]).collect();
                close("product", &y[r * stride..][..outputs], &with_bias, 1e-5, 2e-6 * (inputs as f32).sqrt());
                assert!(y[r * stride + outputs..][..2].iter().all(|y| y.is_nan()), "nothing beyond the outputs");
            }
        }
    }
}

/// A number that f16 holds exactly.
fn f16_bits(x: f32) -> u16 {
    if x == 0.0 {
        return 0;
    }
    let bits = x.to_bits();
    let exponent = (bits >> 23 & 0xff) as i32 - 127 + 15;
    assert!((1..31).contains(&exponent) && bits & 0x1fff == 0, "{x} is no f16");
    ((bits >> 16 & 0x8000) | (exponent as u32) << 10 | (bits >> 13 & 0x3ff)) as u16
}

#[test]
fn q8_0_products_scale_each_block() {
    let _turn = machine();
    let mut draw = Draw(16);
    for (rows, inputs, outputs) in [(1, 32, 3), (1, 768, 5), (9, 544, 4)] {
        let x = draw.floats(rows * inputs, 1.0);
        let quants: Vec<i8> = (0..outputs * inputs).map(|_| (draw.word() % 255) as i8).collect();
        let scales: Vec<f32> =
            (0..outputs * inputs / 32).map(|_| ((draw.word() % 63 + 1) as f32) / 1024.0).collect();
        let weight: Vec<f32> = quants.iter().enumerate().map(|(at, &q)| f32::from(q) * scales[at / 32]).collect();
        let bits: Vec<u16> = scales.iter().map(|&scale| f16_bits(scale)).collect();
        let (mut y, mut expected) = (vec![POISON; rows * outputs], vec![POISON; rows * outputs]);
        matmul(&x, rows, &Panels::pack(&weight, outputs, inputs), &mut expected);
        unsafe {
            let (rows, inputs, outputs) = (rows as i32, inputs as i32, outputs as i32);
            emulate_product_q8_0(x.as_ptr(), quants.as_ptr(), bits.as_ptr(), y.as_mut_ptr(), rows, inputs, outputs);
        }
        close("q8_0", &y, &expected, 1e-5, 1e-4);
    }
}

fn ask(uniform: f64) -> Ask {
    Ask {
        temperature: 1.0, top_p: 1.0, min_p: 0.0, penalty: 1.0, top_k: 0, top: 0, uniform, from: 0, count: 0, given: u32::MAX,
    }
}

fn read(logits: &[f32], ask: Ask, penalised: &[u32]) -> Reading {
    let mut weights = vec![POISON; logits.len()];
    let nothing = Entry { id: u32::MAX, logprob: POISON };
    let mut out = Reading { id: 7, logprob: POISON, entropy: POISON, rank: 7, top: [nothing; TOP_MAX] };
    unsafe {
        let asks = [ask];
        let wide = logits.len() as i32;
        emulate_read_logits(logits.as_ptr(), weights.as_mut_ptr(), asks.as_ptr(), penalised.as_ptr(), &mut out, 1, wide);
    }
    out
}

#[test]
fn a_row_is_read_as_on_the_cpu() {
    let _turn = machine();
    let mut draw = Draw(17);
    for (vocabulary, scale) in [(1, 1.0), (40, 3.0), (513, 10.0), (4_000, 6.0)] {
        let mut logits = draw.floats(vocabulary, scale);
        if vocabulary > 500 {
            // A tie at the top, and a masked entry.
            (logits[17], logits[400], logits[3]) = (scale + 1.0, scale + 1.0, f32::NEG_INFINITY);
        }
        let (summary, top) = read_logits(&logits, TOP_MAX);
        let given = (vocabulary / 2) as u32;
        let reading = read(&logits, Ask { given, top: TOP_MAX as u32, ..ask(0.0) }, &[]);
        assert_eq!(reading.id, given);
        close("logprob", &[reading.logprob], &[summary.logprob(logits[given as usize])], 2e-6, 2e-6);
        close("entropy", &[reading.entropy], &[summary.entropy], 2e-5, 2e-6);
        assert_eq!(Some(reading.rank), rank_of(&logits, given));
        let ids: Vec<u32> = reading.top[..top.len()].iter().map(|entry| entry.id).collect();
        assert_eq!(ids, top.iter().map(|(id, _)| *id).collect::<Vec<_>>());
        for (entry, (_, logprob)) in reading.top.iter().zip(&top) {
            close("top", &[entry.logprob], &[*logprob], 2e-6, 2e-6);
        }
    }
    for bad in [vec![f32::NEG_INFINITY; 9], vec![1.0, f32::NAN, 2.0], vec![1.0, f32::INFINITY]] {
        let reading = read(&bad, ask(0.5), &[]);
        assert!(reading.id == u32::MAX && reading.logprob.is_nan() && reading.entropy.is_nan());
    }
}

#[test]
fn draws_are_the_cpu_s_draws() {
    let _turn = machine();
    let mut draw = Draw(18);
    let mut scratch = Vec::new();
    let mut same = 0;
    let mut all = 0;
    for round in 0..24 {
        let vocabulary = [7, 300, 1_111][round % 3];
        let logits = draw.floats(vocabulary, 6.0);
        let penalised: Vec<u32> = (0..round as u32 % 5).map(|i| i * 3).collect();
        let params = SampleParams {
            temperature: [1.0, 0.7, 0.0, 1.6][round % 4],
            top_k: [None, Some(5), Some(1), Some(40)][round / 4 % 4],
            top_p: [1.0, 0.9, 0.5][round / 2 % 3],
            min_p: [0.0, 0.05][round / 7 % 2],
        };
        let asked = Ask {
            temperature: params.temperature,
            top_p: params.top_p,
            min_p: params.min_p,
            penalty: 1.3,
            top_k: params.top_k.unwrap_or(0) as u32,
            count: penalised.len() as u32,
            ..ask(0.0)
        };
        for uniform in [0.0, 0.999_999, draw.unit()] {
            let mut row = logits.clone();
            penalise(&mut row, &penalised, 1.3);
            let expected = sample(&row, &params, uniform, &mut scratch).unwrap();
            let reading = read(&logits, Ask { uniform, ..asked }, &penalised);
            all += 1;
            same += usize::from(reading.id == expected);
            // What it says of the drawn entry is of the logits as they came.
            let (summary, _) = read_logits(&logits, 0);
            close("logprob", &[reading.logprob], &[summary.logprob(logits[reading.id as usize])], 2e-6, 2e-6);
        }
    }
    // Two exponentials that differ in the last place may part where a draw falls on the edge between two entries.
    assert!(same + 1 >= all, "{same} of {all} draws agree");
}
