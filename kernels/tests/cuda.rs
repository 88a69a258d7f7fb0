//! The CUDA kernels against the Rust kernels on random inputs: odd sizes, long sequences, ragged batches, separate source
//! and destination slots, extreme Δ, poisoned outputs. On the CPU thread by thread (`cuda/simt.hpp`), or on a GPU:
//!
//! `cargo test -p loom-kernels --features cuda-emulation --test cuda`
//! `cargo test -p loom-kernels --features cuda --test cuda`
#![cfg(any(feature = "cuda", feature = "cuda-emulation"))]
#![allow(clippy::pedantic, reason = "tests")]

use loom_kernels::cuda::{
    Ask, Attend, Batch, Buffer, Gpu, GpuConv, GpuHeadScan, GpuScan, Heads, Kind, Matrix, NO_ENTRY, PAGE, Place,
    Reading, Sequence, TOP_MAX,
};
use loom_kernels::{
    Attention, HeadScan, KvPage, PAGE_LEN, Panels, Rows, SampleParams, Scan, Sight, attend, causal_conv_silu,
    head_scan, matmul, penalise, rank_of, read_logits, rms_norm, sample, selective_scan, silu_gate,
};

/// The GPU, or the CPU that plays one.
fn gpu() -> Gpu {
    Gpu::open(0).expect("a GPU; the feature cuda-emulation plays one on the CPU")
}

fn up(gpu: &Gpu, values: &[f32]) -> Buffer<f32> {
    gpu.upload(values).unwrap()
}

fn poisoned(gpu: &Gpu, len: usize) -> Buffer<f32> {
    up(gpu, &vec![POISON; len])
}

fn down(buffer: &Buffer<f32>) -> Vec<f32> {
    let mut values = vec![0.0; buffer.len()];
    buffer.read(&mut values).unwrap();
    values
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
fn norms_add_the_residual_first() {
    let (gpu, mut draw) = (gpu(), Draw(1));
    for (rows, width) in [(1, 1), (3, 31), (2, 256), (5, 777), (1, 2560)] {
        let (x, added, weight) =
            (draw.floats(rows * width, 3.0), draw.floats(rows * width, 1.0), draw.floats(width, 2.0));
        let sum: Vec<f32> = x.iter().zip(&added).map(|(x, y)| x + y).collect();
        let mut expected = vec![POISON; rows * width];
        let (x, y) = (up(&gpu, &x), poisoned(&gpu, rows * width));
        let (added, held) = (up(&gpu, &added), up(&gpu, &weight));
        gpu.rms_norm(x.view(), Some(added.view()), held.view(), 1e-5, y.view(), [rows, width]).unwrap();
        rms_norm(&sum, &weight, 1e-5, &mut expected);
        assert_eq!(down(&x), sum, "the residual stream");
        close("norm", &down(&y), &expected, 3e-6, 1e-7);
        // Without anything to add, the stream stays.
        gpu.rms_norm(x.view(), None, held.view(), 1e-5, y.view(), [rows, width]).unwrap();
        assert_eq!(down(&x), sum);
        close("norm", &down(&y), &expected, 3e-6, 1e-7);
        gpu.add_to(x.view(), added.view(), rows * width).unwrap();
        let twice: Vec<f32> = sum.iter().zip(down(&added)).map(|(x, y)| x + y).collect();
        assert_eq!(down(&x), twice);
    }
}

#[test]
fn rows_are_gathered_and_scattered() {
    let (gpu, mut draw) = (gpu(), Draw(22));
    let width = 300;
    let from = draw.floats(5 * width, 1.0);
    let (held, to) = (up(&gpu, &from), poisoned(&gpu, 6 * width));
    gpu.copy_rows((held.view(), &[4, 0, 4]), (to.view(), Some(&[5, 1, 2])), width).unwrap();
    gpu.copy_rows((held.view(), &[3]), (to.view(), None), width).unwrap();
    let to = down(&to);
    for (row, source) in [(0, Some(3)), (1, Some(0)), (2, Some(4)), (3, None), (4, None), (5, Some(4))] {
        let got = &to[row * width..][..width];
        match source {
            Some(source) => assert_eq!(got, &from[source * width..][..width]),
            None => assert!(got.iter().all(|x| x.is_nan()), "row {row} was not asked for"),
        }
    }
}

#[test]
fn gated_norms_take_each_group_by_itself() {
    let (gpu, mut draw) = (gpu(), Draw(21));
    for (rows, width, groups) in [(1, 8, 1), (3, 96, 2), (2, 1_536, 1), (4, 24, 8)] {
        let z_stride = width + 5;
        let (mut y, z, weight) =
            (draw.floats(rows * width, 2.0), draw.floats(rows * z_stride, 4.0), draw.floats(width, 1.0));
        let (held, out) = ([up(&gpu, &y), up(&gpu, &z), up(&gpu, &weight)], poisoned(&gpu, rows * width));
        let [y_, z_, weight_] = held.each_ref().map(Buffer::view);
        gpu.gated_rms_norm(y_, (z_, z_stride), weight_, 1e-5, out.view(), [rows, width, groups]).unwrap();
        silu_gate(Rows::new(&z, z_stride), width, &mut y);
        let part = width / groups;
        let mut expected = vec![POISON; rows * width];
        for ((y, expected), weight) in y.chunks(part).zip(expected.chunks_mut(part)).zip(weight.chunks(part).cycle()) {
            rms_norm(y, weight, 1e-5, expected);
        }
        close("gated norm", &down(&out), &expected, 5e-6, 1e-6);
        let (gate, mut plain) = (draw.floats(rows * width, 5.0), draw.floats(rows * width, 2.0));
        let ups = up(&gpu, &plain);
        gpu.silu_gate(up(&gpu, &gate).view(), ups.view(), rows * width).unwrap();
        silu_gate(Rows::new(&gate, width), width, &mut plain);
        close("gate", &down(&ups), &plain, 3e-6, 1e-7);
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

/// Rows of `width` as columns: the device has the taps of a channel side by side, the CPU the channels of a tap.
fn transposed(x: &[f32], width: usize) -> Vec<f32> {
    (0..width).flat_map(|column| x.iter().skip(column).step_by(width)).copied().collect()
}

#[test]
fn convolution_walks_ragged_sequences_from_their_tails() {
    let (gpu, mut draw) = (gpu(), Draw(2));
    for (channels, taps, lens, separate) in [
        (5, 4, vec![1, 7, 2], true),
        (129, 4, vec![3, 1], false),
        (64, 2, vec![9], true),
        (33, 8, vec![4, 4, 1, 1], false),
    ] {
        let sequences = ragged(&lens, separate, &mut draw);
        let rows: usize = lens.iter().sum();
        let (stride, past, slots) = (2 * channels + 3, taps - 1, lens.len() * 2);
        let u = draw.floats(rows * stride, 2.0);
        let (weight, bias) = (draw.floats(channels * taps, 1.0), draw.floats(channels, 1.0));
        let before = draw.floats(slots * channels * past, 1.0);
        let (u_, weight_, bias_, tails) = (up(&gpu, &u), up(&gpu, &weight), up(&gpu, &bias), up(&gpu, &before));
        let y = poisoned(&gpu, rows * channels);
        let batch = Batch::new(&gpu, &sequences, slots).unwrap();
        let conv = GpuConv { weight: weight_.view(), bias: Some(bias_.view()), channels, taps };
        gpu.conv_silu(&batch, &conv, (u_.view(), stride), tails.view(), y.view()).unwrap();
        let (y, tails) = (down(&y), down(&tails));
        for sequence in &sequences {
            let (row, len) = (sequence.row as usize, sequence.len as usize);
            let slot = |index: i32| index as usize * channels * past..(index as usize + 1) * channels * past;
            let mut tail = transposed(&before[slot(sequence.from)], past);
            let mut expected = vec![POISON; len * channels];
            causal_conv_silu(
                Rows::new(&u[row * stride..], stride),
                &transposed(&weight, taps),
                Some(&bias),
                taps,
                &mut tail,
                &mut expected,
            );
            close("conv", &y[row * channels..][..len * channels], &expected, 4e-6, 1e-6);
            assert_eq!(transposed(&tails[slot(sequence.to)], past), tail, "the tail");
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
}

fn check_scan(case: &Case, seed: u64) {
    let (gpu, mut draw) = (gpu(), Draw(seed));
    let Case { channels, d_state, lens, separate, delta, gated } = case;
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
    let (states, y) = (up(&gpu, &before), poisoned(&gpu, rows * channels));
    let held = [&u, &raw, &bias, &a, &bc, &d, &z].map(|values| up(&gpu, values));
    let [u_, delta_raw, dt_bias, a_, bc_, d_, z_] = held.each_ref().map(Buffer::view);
    let scan = GpuScan {
        u: u_,
        delta_raw,
        dt_bias,
        a: a_,
        bc: bc_,
        bc_stride: stride,
        d: d_,
        z: gated.then_some((z_, z_stride)),
        channels,
        d_state,
    };
    let batch = Batch::new(&gpu, &sequences, 2 * lens.len()).unwrap();
    gpu.selective_scan(&batch, &scan, states.view(), y.view()).unwrap();
    let (states, y) = (down(&states), down(&y));
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
    let plain = |channels, d_state, lens: &[usize]| Case {
        channels,
        d_state,
        lens: lens.to_vec(),
        separate: true,
        delta: 2.0,
        gated: true,
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
    for (seed, channels, count) in [(11, 1, 1), (12, 9, 3), (13, 24, 2), (14, 40, 5)] {
        let case = Case {
            channels,
            d_state: 16,
            lens: vec![1; count],
            separate: seed % 2 == 1,
            delta: 5.0,
            gated: seed != 12,
        };
        check_scan(&case, seed);
    }
}

struct Mamba2 {
    dims: [usize; 4],
    lens: Vec<usize>,
    separate: bool,
    delta: f32,
    limit: (f32, f32),
}

fn check_heads(case: &Mamba2, seed: u64) {
    let (gpu, mut draw) = (gpu(), Draw(seed));
    let Mamba2 { dims: [heads, head_dim, d_state, groups], lens, separate, delta, limit } = case;
    let (heads, head_dim, d_state, groups) = (*heads, *head_dim, *d_state, *groups);
    let sequences = ragged(lens, *separate, &mut draw);
    let rows: usize = lens.iter().sum();
    let (width, shared) = (heads * head_dim, groups * d_state);
    let (stride, delta_stride, state) = (width + 2 * shared, heads + 3, width * d_state);
    let xbc = draw.floats(rows * stride, 1.0);
    let raw = draw.floats(rows * delta_stride, *delta);
    let bias: Vec<f32> = draw.floats(heads, 1.0).iter().map(|x| x - 3.0).collect();
    let a: Vec<f32> = draw.floats(heads, 12.0).iter().map(|x| -x.abs() - 0.01).collect();
    let d = draw.floats(heads, 1.0);
    let before = draw.floats(2 * lens.len() * state, 1.0);
    let (states, y) = (up(&gpu, &before), poisoned(&gpu, rows * width));
    let held = [&xbc, &raw, &bias, &a, &d].map(|values| up(&gpu, values));
    let [xbc_, delta_raw, dt_bias, a_, d_] = held.each_ref().map(Buffer::view);
    let [h, p, n, g] = [heads, head_dim, d_state, groups].map(|n| n as i32);
    let dims = Heads { heads: h, head_dim: p, d_state: n, groups: g, least: limit.0, most: limit.1 };
    let scan = GpuHeadScan { xbc: xbc_, delta_raw, delta_stride, dt_bias, a: a_, d: d_, dims };
    let batch = Batch::new(&gpu, &sequences, 2 * lens.len()).unwrap();
    gpu.head_scan(&batch, &scan, states.view(), y.view()).unwrap();
    let (states, y) = (down(&states), down(&y));
    for sequence in &sequences {
        let (row, len) = (sequence.row as usize, sequence.len as usize);
        let slot = |index: i32| index as usize * state..(index as usize + 1) * state;
        let mut own = before[slot(sequence.from)].to_vec();
        let mut expected = vec![POISON; len * width];
        let part = |from: usize| Rows::new(&xbc[row * stride + from..], stride);
        let scan = HeadScan {
            x: part(0),
            delta_raw: Rows::new(&raw[row * delta_stride..], delta_stride),
            dt_bias: &bias,
            dt_limit: *limit,
            a: &a,
            b: part(width),
            c: part(width + shared),
            d: &d,
            head_dim,
            d_state,
            groups,
            gain_decay: sequence.gain_decay,
            gain_write: sequence.gain_write,
        };
        head_scan(&scan, &mut own, &mut expected);
        let size = |values: &[f32]| values.iter().fold(1.0f32, |size, x| size.max(x.abs()));
        close("head scan", &y[row * width..][..len * width], &expected, 2e-5, 4e-6 * size(&expected));
        close("state", &states[slot(sequence.to)], &own, 2e-5, 4e-6 * size(&own));
        if *separate {
            assert_eq!(states[slot(sequence.from)], before[slot(sequence.from)], "the source stays as it was");
        }
    }
}

#[test]
fn chunks_of_mamba_2_are_its_recurrence() {
    let open = (0.0, f32::INFINITY);
    let plain = |dims, lens: &[usize]| Mamba2 { dims, lens: lens.to_vec(), separate: true, delta: 2.0, limit: open };
    check_heads(&plain([2, 8, 16, 1], &[5, 1, 64]), 31);
    check_heads(&plain([4, 7, 33, 2], &[65, 130]), 32);
    check_heads(&plain([1, 64, 128, 1], &[77]), 33);
    check_heads(&plain([1, 70, 5, 1], &[3]), 34);
    check_heads(&plain([2, 4, 8, 2], &[700]), 35);
    check_heads(&Mamba2 { separate: false, limit: (0.01, 0.1), ..plain([2, 8, 16, 1], &[90, 2]) }, 36);
    // Δ so large that a step forgets everything, beside Δ so small that it forgets nothing.
    check_heads(&Mamba2 { delta: 80.0, ..plain([2, 8, 16, 1], &[200]) }, 37);
    check_heads(&Mamba2 { delta: 1e-3, ..plain([2, 8, 16, 1], &[200]) }, 38);
}

#[test]
fn a_step_of_mamba_2_is_a_segment_of_one() {
    let open = (0.0, f32::INFINITY);
    for (seed, dims, separate, delta) in [
        (41, [1, 4, 1, 1], true, 2.0),
        (42, [4, 64, 128, 2], true, 2.0),
        (43, [3, 128, 64, 1], false, 60.0),
        (44, [2, 16, 7, 1], true, 1e-3),
        // A head that the step does not serve: the chunked form does.
        (45, [2, 12, 16, 1], false, 2.0),
    ] {
        check_heads(&Mamba2 { dims, lens: vec![1; 3], separate, delta, limit: open }, seed);
    }
}

/// Sequences of `lens` rows after `befores` positions each, over pages in a shuffled order, two layers of the cache apart.
fn check_attention(dims: [usize; 3], sequences: &[(usize, usize)], seed: u64) {
    let (gpu, mut draw) = (gpu(), Draw(seed));
    let [heads, kv_heads, dim] = dims;
    let rows: usize = sequences.iter().map(|(_, len)| len).sum();
    let needed: usize = sequences.iter().map(|(before, len)| (before + len).div_ceil(PAGE)).sum();
    let pages = needed + 1;
    let mut order: Vec<i32> = (0..needed as i32).map(|page| page + 1).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, draw.word() as usize % (i + 1));
    }
    let q = draw.floats(rows * heads * dim, 2.0);
    let [k, v] = [(); 2].map(|()| draw.floats(rows * kv_heads * dim, 2.0));
    let angles: Vec<f32> = (0..rows * dim / 2).map(|_| (6.3 * draw.unit()) as f32).collect();
    let turns: Vec<f32> = angles
        .chunks(dim / 2)
        .flat_map(|row| row.iter().map(|x| x.cos()).chain(row.iter().map(|x| x.sin())).collect::<Vec<_>>())
        .collect();
    let turned = |x: &[f32], heads: usize| -> Vec<f32> {
        let mut x = x.to_vec();
        for (row, turns) in x.chunks_mut(heads * dim).zip(turns.chunks(dim)) {
            for head in row.chunks_mut(dim) {
                for i in 0..dim / 2 {
                    let (a, b, c, s) = (head[i], head[i + dim / 2], turns[i], turns[i + dim / 2]);
                    (head[i], head[i + dim / 2]) = (a * c - b * s, b * c + a * s);
                }
            }
        }
        x
    };
    let size = pages * kv_heads * PAGE * dim;
    // What no sequence has written is poison; the past is put there key by key.
    let (mut keys, mut values) = (vec![POISON; size], vec![POISON; size]);
    let (mut places, mut expected, mut table, mut row) = (Vec::new(), Vec::new(), 0, 0);
    let (q_turned, k_turned) = (turned(&q, heads), turned(&k, kv_heads));
    for &(before, len) in sequences {
        let count = (before + len).div_ceil(PAGE);
        let mut own = vec![KvPage::new(kv_heads, dim); count];
        assert_eq!(PAGE, PAGE_LEN);
        for position in 0..before {
            let (key, value) = (draw.floats(kv_heads * dim, 2.0), draw.floats(kv_heads * dim, 2.0));
            own[position / PAGE].write(position % PAGE, &key, &value);
            let page = order[table + position / PAGE] as usize;
            for head in 0..kv_heads {
                for i in 0..dim {
                    let at = (page * kv_heads + head) * dim * PAGE;
                    keys[at + i * PAGE + position % PAGE] = key[head * dim + i];
                    values[at + position % PAGE * dim + i] = value[head * dim + i];
                }
            }
        }
        for i in 0..len {
            let part = (row + i) * kv_heads * dim..(row + i + 1) * kv_heads * dim;
            own[(before + i) / PAGE].write((before + i) % PAGE, &k_turned[part.clone()], &v[part]);
            places.push(Place { position: (before + i) as i32, table: table as i32 });
        }
        let pages: Vec<&KvPage> = own.iter().collect();
        let attention =
            Attention { pages: &pages, heads, scale: 1.0 / (dim as f32).sqrt(), sight: Sight::Causal { before } };
        let mut y = vec![POISON; len * heads * dim];
        attend(&attention, &q_turned[row * heads * dim..][..len * heads * dim], &mut y);
        expected.extend(y);
        (table, row) = (table + count, row + len);
    }
    let plan = Attend::new(&gpu, &places, &order, pages, dims).unwrap();
    let held = [&q, &k, &v, &turns, &keys, &values].map(|values| up(&gpu, values));
    let [q_, k_, v_, turns_, keys_, values_] = held.each_ref().map(Buffer::view);
    let (scratch, y) = (poisoned(&gpu, plan.scratch()), poisoned(&gpu, rows * heads * dim));
    gpu.rotary_write(&plan, q_, [k_, v_, turns_], [keys_, values_]).unwrap();
    gpu.attend(&plan, q_, [keys_, values_], 1.0 / (dim as f32).sqrt(), scratch.view(), y.view()).unwrap();
    close("queries", &down(&held[0]), &q_turned, 1e-6, 1e-6);
    close("attention", &down(&y), &expected, 2e-5, 1e-5);
    // The first page belongs to nobody.
    for cache in &held[4..] {
        assert!(down(cache)[..kv_heads * PAGE * dim].iter().all(|x| x.is_nan()), "a page of others was written");
    }
}

#[test]
fn attention_reads_the_pages_of_its_own_sequence() {
    check_attention([1, 1, 2], &[(0, 1)], 51);
    check_attention([4, 2, 8], &[(0, 3), (63, 1), (64, 1)], 52);
    check_attention([3, 1, 64], &[(130, 1)], 53);
    check_attention([2, 2, 130], &[(40, 30)], 54);
    check_attention([2, 1, 256], &[(5, 2)], 55);
    // Long enough for several splits, the last of them short.
    check_attention([2, 1, 16], &[(1_000, 1), (127, 2), (128, 1)], 56);
}

fn bf16_bits(x: f32) -> u16 {
    (x.to_bits() >> 16) as u16
}

#[test]
fn products_read_every_type_of_weight() {
    let (gpu, mut draw) = (gpu(), Draw(15));
    for (rows, inputs, outputs) in [(1, 32, 5), (1, 1536, 7), (8, 256, 3), (11, 512, 6), (3, 2560, 2)] {
        let x_stride = inputs + 4;
        let x = draw.floats(rows * x_stride, 1.0);
        let packed: Vec<f32> = x.chunks(x_stride).flat_map(|row| &row[..inputs]).copied().collect();
        let bias = draw.floats(outputs, 1.0);
        let weight = draw.floats(outputs * inputs, 1.0);
        let narrow: Vec<u16> = weight.iter().map(|&w| bf16_bits(w)).collect();
        let widened: Vec<f32> = narrow.iter().map(|&bits| f32::from_bits(u32::from(bits) << 16)).collect();
        // Multiples of 1/64 below 2 are whole in f16: sign, exponent 15 + e, mantissa.
        let halves: Vec<f32> = weight.iter().map(|w| (w * 64.0).round() / 64.0).collect();
        let half_bits: Vec<u16> = halves.iter().map(|&w| f16_bits(w)).collect();
        let kinds = [
            (Kind::F32(up(&gpu, &weight)), &weight),
            (Kind::Bf16(gpu.upload(&narrow).unwrap()), &widened),
            (Kind::F16(gpu.upload(&half_bits).unwrap()), &halves),
        ];
        let (x, bias_) = (up(&gpu, &x), up(&gpu, &bias));
        for (kind, values) in kinds {
            let mut expected = vec![POISON; rows * outputs];
            matmul(&packed, rows, &Panels::pack(values, outputs, inputs), &mut expected);
            let stride = outputs + 2;
            let y = poisoned(&gpu, rows * stride);
            let matrix = Matrix::new(kind, outputs, inputs);
            gpu.matmul((x.view(), x_stride), rows, &matrix, Some(bias_.view()), (y.view(), stride)).unwrap();
            let y = down(&y);
            for r in 0..rows {
                let with_bias: Vec<f32> = (0..outputs).map(|o| expected[r * outputs + o] + bias[o]).collect();
                close("product", &y[r * stride..][..outputs], &with_bias, 1e-5, 2e-6 * (inputs as f32).sqrt());
                assert!(y[r * stride + outputs..][..2].iter().all(|y| y.is_nan()), "nothing beyond the outputs");
            }
            // The same matrix as an embedding table.
            let ids: Vec<u32> = (0..rows).map(|r| ((r * 7 + 1) % outputs) as u32).collect();
            let rows_ = poisoned(&gpu, rows * inputs);
            gpu.embed(&ids, &matrix, rows_.view()).unwrap();
            let wanted: Vec<f32> =
                ids.iter().flat_map(|&id| &values[id as usize * inputs..][..inputs]).copied().collect();
            assert_eq!(down(&rows_), wanted);
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
    let (gpu, mut draw) = (gpu(), Draw(16));
    for (rows, inputs, outputs) in [(1, 32, 3), (1, 768, 5), (9, 544, 4)] {
        let x = draw.floats(rows * inputs, 1.0);
        let quants: Vec<i8> = (0..outputs * inputs).map(|_| (draw.word() % 255) as i8).collect();
        let scales: Vec<f32> = (0..outputs * inputs / 32).map(|_| ((draw.word() % 63 + 1) as f32) / 1024.0).collect();
        let weight: Vec<f32> = quants.iter().enumerate().map(|(at, &q)| f32::from(q) * scales[at / 32]).collect();
        let bits: Vec<u16> = scales.iter().map(|&scale| f16_bits(scale)).collect();
        let mut expected = vec![POISON; rows * outputs];
        matmul(&x, rows, &Panels::pack(&weight, outputs, inputs), &mut expected);
        let kind = Kind::Q8 { quants: gpu.upload(&quants).unwrap(), scales: gpu.upload(&bits).unwrap() };
        let (x, y) = (up(&gpu, &x), poisoned(&gpu, rows * outputs));
        let matrix = Matrix::new(kind, outputs, inputs);
        gpu.matmul((x.view(), inputs), rows, &matrix, None, (y.view(), outputs)).unwrap();
        close("q8_0", &down(&y), &expected, 1e-5, 1e-4);
    }
}

fn ask(uniform: f64) -> Ask<'static> {
    Ask {
        temperature: 1.0,
        top_p: 1.0,
        min_p: 0.0,
        penalty: 1.0,
        top_k: 0,
        top: 0,
        uniform,
        penalised: &[],
        given: NO_ENTRY,
    }
}

/// Read alone, and as the second of two rows: the same.
fn read(logits: &[f32], ask: Ask<'_>) -> Reading {
    let gpu = gpu();
    let twice = [logits, logits].concat();
    let (rows, weights) = (up(&gpu, &twice), poisoned(&gpu, twice.len()));
    let other = Ask { penalised: &[1, 2], ..ask };
    let both = gpu.read_logits(rows.view(), weights.view(), &[other, ask], logits.len()).unwrap();
    let alone = gpu.read_logits(rows.view(), weights.view(), &[ask], logits.len()).unwrap();
    assert!(both[1].id == alone[0].id && both[1].logprob.to_bits() == alone[0].logprob.to_bits());
    alone[0]
}

#[test]
fn a_row_is_read_as_on_the_cpu() {
    let mut draw = Draw(17);
    for (vocabulary, scale) in [(1, 1.0), (40, 3.0), (513, 10.0), (4_000, 6.0)] {
        let mut logits = draw.floats(vocabulary, scale);
        if vocabulary > 500 {
            // A tie at the top, and a masked entry.
            (logits[17], logits[400], logits[3]) = (scale + 1.0, scale + 1.0, f32::NEG_INFINITY);
        }
        let (summary, top) = read_logits(&logits, TOP_MAX);
        let given = (vocabulary / 2) as u32;
        let reading = read(&logits, Ask { given, top: TOP_MAX as u32, ..ask(0.0) });
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
        let reading = read(&bad, ask(0.5));
        assert!(reading.id == NO_ENTRY && reading.logprob.is_nan() && reading.entropy.is_nan());
    }
}

#[test]
fn draws_are_the_cpu_s_draws() {
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
            penalised: &penalised,
            ..ask(0.0)
        };
        for uniform in [0.0, 0.999_999, draw.unit()] {
            let mut row = logits.clone();
            penalise(&mut row, &penalised, 1.3);
            let expected = sample(&row, &params, uniform, &mut scratch).unwrap();
            let reading = read(&logits, Ask { uniform, ..asked });
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
