//! The convolution and the scans over ragged sequences and separate slots.

use super::*;

/// Ragged sequences with their source and target slots.
fn ragged(lens: &[usize], separate: bool, draw: &mut Draw) -> Vec<SequenceRows> {
    let mut row = 0;
    let sequence = |(index, &len): (usize, &usize)| {
        let begun = row;
        row += len as i32;
        let from = index as i32;
        let to = if separate { from + lens.len() as i32 } else { from };
        let mut gain = || (0.25 + 1.5 * draw.unit()) as f32;
        SequenceRows { row: begun, len: len as i32, from, to, gain_decay: gain(), gain_write: gain() }
    };
    lens.iter().enumerate().map(sequence).collect()
}

#[test]
fn convolution_walks_ragged_sequences_from_their_tails() {
    let (gpu, mut draw) = (gpu(), Draw(2));
    for (channels, taps, lens, separate) in [
        (5, 4, vec![1, 7, 2], true),
        (129, 4, vec![3, 1], false),
        (64, 2, vec![9], true),
        (33, 8, vec![4, 4, 1, 1], false),
        (3, 4, vec![100, 32, 33], false),
        (2, 8, vec![64, 2], true),
    ] {
        let sequences = ragged(&lens, separate, &mut draw);
        let rows: usize = lens.iter().sum();
        let (stride, past, slots) = (2 * channels + 3, taps - 1, lens.len() * 2);
        let u = draw.floats(rows * stride, 2.0);
        let (weight, bias) = (draw.floats(channels * taps, 1.0), draw.floats(channels, 1.0));
        let before = draw.floats(slots * channels * past, 1.0);
        let (u_, weight_, bias_, tails) = (up(&gpu, &u), up(&gpu, &weight), up(&gpu, &bias), up(&gpu, &before));
        let y = poisoned(&gpu, rows * channels);
        let batch = SequenceBatch::new(&gpu, &sequences, slots).unwrap();
        let conv = GpuConv { weight: weight_.view(), bias: Some(bias_.view()), channels, taps };
        gpu.conv_silu(&batch, &conv, (u_.view(), stride), tails.view(), y.view()).unwrap();
        let (y, tails) = (down(&y), down(&tails));
        for sequence in &sequences {
            let (row, len) = (sequence.row as usize, sequence.len as usize);
            let slot = |index: i32| index as usize * channels * past..(index as usize + 1) * channels * past;
            let mut tail = before[slot(sequence.from)].to_vec();
            let mut expected = vec![POISON; len * channels];
            causal_conv_silu(
                Rows::new(&u[row * stride..], stride),
                &weight,
                Some(&bias),
                taps,
                &mut tail,
                &mut expected,
            );
            close("conv", &y[row * channels..][..len * channels], &expected, 4e-6, 1e-6);
            assert_eq!(tails[slot(sequence.to)], tail, "the tail");
            if separate {
                assert_eq!(tails[slot(sequence.from)], before[slot(sequence.from)], "the source stays as it was");
            }
        }
    }
}

#[test]
fn steps_of_watched_sequences_are_summed() {
    for (seed, channels, lens, watched, limit) in [
        (61, 5, vec![3, 1, 200], vec![0, 2], (0.0, f32::INFINITY)),
        (62, 130, vec![4], vec![0], (0.01, 0.1)),
        (63, 3, vec![1, 1], vec![NO_ROW, 1], (0.0, 1.0)),
    ] {
        let (gpu, mut draw) = (gpu(), Draw(seed));
        let sequences = ragged(&lens, true, &mut draw);
        let rows: usize = lens.iter().sum();
        let (stride, sums_stride) = (channels + 2, 2 * channels + 1);
        let (raw, bias) = (draw.floats(rows * stride, 30.0), draw.floats(channels, 1.0));
        let batch = SequenceBatch::new(&gpu, &sequences, 2 * lens.len()).unwrap();
        let list = RowList::new(&gpu, &watched, lens.len()).unwrap();
        let sums = gpu.upload(&vec![f64::NAN; watched.len() * sums_stride]).unwrap();
        let (raw_, bias_) = (up(&gpu, &raw), up(&gpu, &bias));
        let out = (sums.from(channels), sums_stride);
        gpu.add_steps((&batch, &list), (raw_.view(), stride), bias_.view(), limit, channels, out).unwrap();
        let mut steps = vec![0.0; sums.len()];
        sums.read(&mut steps).unwrap();
        for (row, &which) in steps.chunks(sums_stride).zip(&watched) {
            let mut expected = vec![0.0; channels];
            if let Some(sequence) = sequences.get(which as usize) {
                let from = sequence.row as usize * stride;
                add_steps(Rows::new(&raw[from..], stride), &bias, limit, sequence.len as usize, &mut expected);
                for (ours, theirs) in row[channels..][..channels].iter().zip(&expected) {
                    assert!((ours - theirs).abs() <= 1e-6 * theirs.abs(), "{ours} on the device, {theirs} here");
                }
                assert!(
                    row[..channels].iter().chain(&row[2 * channels..]).all(|x| x.is_nan()),
                    "neighbouring sums were written"
                );
            } else {
                assert!(row.iter().all(|x| x.is_nan()), "nothing of a sequence that is none");
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
    // Rows at multiples of 16 bytes are read four numbers at a time, others one by one.
    let stride = 2 * d_state + if seed.is_multiple_of(2) { 5 } else { 8 };
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
    let batch = SequenceBatch::new(&gpu, &sequences, 2 * lens.len()).unwrap();
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
    let dims = HeadDims { heads: h, head_dim: p, d_state: n, groups: g, least: limit.0, most: limit.1 };
    let scan = GpuHeadScan { xbc: xbc_, delta_raw, delta_stride, dt_bias, a: a_, d: d_, dims };
    let batch = SequenceBatch::new(&gpu, &sequences, 2 * lens.len()).unwrap();
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
    // Very large Δ, which clears the state in one step, and very small Δ, which keeps it.
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
        // A head size that the step kernel does not support uses the chunked form.
        (45, [2, 12, 16, 1], false, 2.0),
    ] {
        check_heads(&Mamba2 { dims, lens: vec![1; 3], separate, delta, limit: open }, seed);
    }
}
