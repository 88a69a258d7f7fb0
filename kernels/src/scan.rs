//! The selective scan of Mamba-1 (Gu & Dao 2023, arXiv:2312.00752), prefill and decode in one function.
//!
//! For each channel and step, with n over the state:
//!
//! ```text
//! Δ  = softplus(delta_raw + dt_bias)                          (the sum itself above 20)
//! hₙ = exp((gain_decay·Δ)·aₙ)·hₙ + ((gain_write·Δ)·u)·bₙ        (one fused multiply-add)
//! y  = Σₙ hₙ·cₙ + d·u                                         (one fused multiply-add), then · silu(z)
//! ```
//!
//! Σₙ: lane i of sixteen takes n = i, i + 16, … by fused multiply-adds from +0, then the lanes are summed in the fixed
//! tree. A gain of 1 multiplies Δ by 1 and so changes no bit; with `gain_decay` = `gain_write` = 0 a finite state does
//! not change. The scan of Mamba-2, with one decay per head, is in `head_scan.rs`.

use rayon::prelude::*;

use crate::dispatch::{Kernel, Path, active_path, dispatch};
use crate::lanes::{LANES, Lanes};
use crate::math::{exp, silu, softplus};
use crate::rows::{Columns, Rows};

/// One sequence's segment of `len` ≥ 1 steps; y has `len · channels` numbers, which determines `len`.
#[derive(Debug, Clone, Copy)]
pub struct Scan<'a> {
    /// Input after the convolution, [len, channels].
    pub u: Rows<'a>,
    /// Output of `dt_proj` without its bias, [len, channels].
    pub delta_raw: Rows<'a>,
    /// Bias of `dt_proj`, [channels].
    pub dt_bias: &'a [f32],
    /// −exp(`A_log`), `[channels, d_state]`.
    pub a: &'a [f32],
    /// `[len, d_state]`.
    pub b: Rows<'a>,
    /// `[len, d_state]`.
    pub c: Rows<'a>,
    /// Skip weight, [channels].
    pub d: &'a [f32],
    /// Gate, [len, channels]; `None` leaves y ungated.
    pub z: Option<Rows<'a>>,
    /// Multiplies Δ in the decay; 1 is off.
    pub gain_decay: f32,
    /// Multiplies Δ in the input; 1 is off.
    pub gain_write: f32,
}

/// Fewer state updates than this run on the calling thread.
const PARALLEL_MIN: usize = 1 << 16;

/// Runs the segment: `state` `[channels, d_state]` is advanced, y `[len, channels]` written. Parallel over channels in
/// rayon's current pool if the work is large enough.
///
/// # Panics
/// If the dims disagree.
pub fn selective_scan(scan: &Scan<'_>, state: &mut [f32], y: &mut [f32]) {
    selective_scan_on(active_path(), scan, state, y);
}

pub(crate) fn selective_scan_on(path: Path, scan: &Scan<'_>, state: &mut [f32], y: &mut [f32]) {
    let channels = scan.d.len();
    if channels == 0 {
        return;
    }
    let d_state = scan.a.len() / channels;
    let len = y.len() / channels;
    assert_eq!(scan.a.len(), channels * d_state, "selective_scan: a is not [{channels}, d_state]");
    assert_eq!(state.len(), channels * d_state, "selective_scan: state is not [{channels}, {d_state}]");
    assert_eq!(scan.dt_bias.len(), channels, "selective_scan: dt_bias is not [{channels}]");
    scan.u.check("selective_scan u", len, channels);
    scan.delta_raw.check("selective_scan delta_raw", len, channels);
    scan.b.check("selective_scan b", len, d_state);
    scan.c.check("selective_scan c", len, d_state);
    if let Some(z) = scan.z {
        z.check("selective_scan z", len, channels);
    }
    let y = Columns::new("selective_scan y", y, len, channels);
    if d_state == 0 {
        dispatch(path, Block { scan, state, y, len, from: 0, width: channels, d_state });
        return;
    }
    let work = len * channels * d_state;
    let blocks = if work < PARALLEL_MIN { 1 } else { 4 * rayon::current_num_threads() };
    let width = channels.div_ceil(blocks).next_multiple_of(LANES);
    let block = |(index, state): (usize, &mut [f32])| {
        let (from, width) = (index * width, state.len() / d_state);
        dispatch(path, Block { scan, state, y, len, from, width, d_state });
    };
    if blocks == 1 {
        block((0, state));
    } else {
        state.par_chunks_mut(width * d_state).enumerate().for_each(block);
    }
}

/// Channels `from .. from + width`.
struct Block<'a> {
    scan: &'a Scan<'a>,
    state: &'a mut [f32],
    y: Columns<'a>,
    len: usize,
    from: usize,
    width: usize,
    d_state: usize,
}

impl Kernel for Block<'_> {
    type Output = ();

    /// Sixteen channels at a time: Δ and the gate with lanes across channels, the state with lanes across n.
    #[inline(always)]
    fn run<V: Lanes>(self) {
        let Self { scan, state, y, len, from, width, d_state } = self;
        let channels = scan.d.len();
        let mut done = 0;
        while done < width {
            let (first, some) = (from + done, LANES.min(width - done));
            let state = &mut state[done * d_state..][..some * d_state];
            let a = &scan.a[first * d_state..][..some * d_state];
            let bias = V::load_part(&scan.dt_bias[first..][..some], 0.0);
            let skip = V::load_part(&scan.d[first..][..some], 0.0);
            for t in 0..len {
                let u = V::load_part(&scan.u.get(t, channels)[first..][..some], 0.0);
                let raw = V::load_part(&scan.delta_raw.get(t, channels)[first..][..some], 0.0);
                let delta = softplus(raw.add(bias));
                let (mut decay, mut write, mut read) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
                V::splat(scan.gain_decay).mul(delta).store(&mut decay);
                V::splat(scan.gain_write).mul(delta).mul(u).store(&mut write);
                let (b, c) = (scan.b.get(t, d_state), scan.c.get(t, d_state));
                if d_state == LANES {
                    // The usual size: b and c stay in registers, no lane is padded.
                    let (b, c) = (V::load_part(b, 0.0), V::load_part(c, 0.0));
                    let (states, _) = state.as_chunks_mut::<LANES>();
                    let (rates, _) = a.as_chunks::<LANES>();
                    let mut parts = [V::splat(0.0); LANES];
                    for (channel, (h, a)) in states.iter_mut().zip(rates).enumerate() {
                        let (decay, write) = (V::splat(decay[channel]), V::splat(write[channel]));
                        let new = exp(decay.mul(V::load(a))).mul_add(V::load(h), write.mul(b));
                        new.store(h);
                        parts[channel] = new.mul_add(c, V::splat(0.0));
                    }
                    V::sum_each(parts).store(&mut read);
                } else {
                    for channel in 0..some {
                        let (h, a) = (&mut state[channel * d_state..][..d_state], &a[channel * d_state..][..d_state]);
                        read[channel] = advance(h, a, b, c, V::splat(decay[channel]), V::splat(write[channel]));
                    }
                }
                let mut out = skip.mul_add(u, V::load(&read));
                if let Some(z) = scan.z {
                    out = out.mul(silu(V::load_part(&z.get(t, channels)[first..][..some], 0.0)));
                }
                // SAFETY: these columns belong to this block, and the slice ends with the statement.
                out.store_part(unsafe { y.slice(t, first, some) });
            }
            done += LANES;
        }
    }
}

/// One step of one channel, sixteen states at a time; returns Σₙ hₙ·cₙ.
#[inline(always)]
fn advance<V: Lanes>(h: &mut [f32], a: &[f32], b: &[f32], c: &[f32], decay: V, write: V) -> f32 {
    let mut sum = V::splat(0.0);
    for (((h, a), b), c) in h.chunks_mut(LANES).zip(a.chunks(LANES)).zip(b.chunks(LANES)).zip(c.chunks(LANES)) {
        let decay = exp(decay.mul(V::load_part(a, 0.0)));
        let new = decay.mul_add(V::load_part(h, 0.0), write.mul(V::load_part(b, 0.0)));
        new.store_part(h);
        sum = new.mul_add(V::load_part(c, 0.0), sum);
    }
    sum.sum()
}
