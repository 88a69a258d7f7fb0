//! The short causal depthwise convolution in front of a Mamba scan, with its `SiLU`.

use crate::dispatch::{Kernel, Path, active_path, dispatch};
use crate::lanes::{LANES, Lanes};
use crate::math::silu;
use crate::rows::{Columns, Rows};

/// Longest supported convolution kernel (Mamba uses 4).
pub const CONV_TAPS_MAX: usize = 16;

/// One sequence's segment: y[t, c] = silu(bias[c] + Σⱼ weight[j, c]·u[t − taps + 1 + j, c]), one chain of fused
/// multiply-adds from the bias on, oldest input first.
///
/// - `u`: rows of at least `channels`, as many as y has; `weight`: [taps, channels]; `bias`: [channels], none is 0.
/// - `tail`: [taps − 1, channels], the inputs before the segment, oldest first; advanced past the segment.
/// - `y`: [len, channels], contiguous.
///
/// # Panics
/// If the dims disagree, or taps is 0 or above [`CONV_TAPS_MAX`].
pub fn causal_conv_silu(
    u: Rows<'_>,
    weight: &[f32],
    bias: Option<&[f32]>,
    taps: usize,
    tail: &mut [f32],
    y: &mut [f32],
) {
    causal_conv_silu_on(active_path(), u, weight, bias, taps, tail, y);
}

pub(crate) fn causal_conv_silu_on(
    path: Path,
    u: Rows<'_>,
    weight: &[f32],
    bias: Option<&[f32]>,
    taps: usize,
    tail: &mut [f32],
    y: &mut [f32],
) {
    assert!((1..=CONV_TAPS_MAX).contains(&taps), "causal_conv_silu: {taps} taps, at most {CONV_TAPS_MAX}");
    let channels = weight.len() / taps;
    assert_eq!(weight.len(), channels * taps, "causal_conv_silu: weight is not [{taps}, channels]");
    assert_eq!(tail.len(), channels * (taps - 1), "causal_conv_silu: tail is not [{}, channels]", taps - 1);
    assert!(bias.is_none_or(|bias| bias.len() == channels), "causal_conv_silu: bias is not [{channels}]");
    if channels == 0 {
        return;
    }
    let len = y.len() / channels;
    u.check("causal_conv_silu u", len, channels);
    let y = Columns::new("causal_conv_silu y", y, len, channels);
    dispatch(path, Conv { u, weight, bias, taps, tail, y, len, channels });
}

struct Conv<'a> {
    u: Rows<'a>,
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    taps: usize,
    tail: &'a mut [f32],
    y: Columns<'a>,
    len: usize,
    channels: usize,
}

impl Kernel for Conv<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        let (past, channels) = (self.taps - 1, self.channels);
        let mut from = 0;
        while from < channels {
            let width = LANES.min(channels - from);
            let bias = match self.bias {
                Some(bias) => V::load_part(&bias[from..][..width], 0.0),
                None => V::splat(0.0),
            };
            let mut taps = [V::splat(0.0); CONV_TAPS_MAX];
            let mut window = [V::splat(0.0); CONV_TAPS_MAX];
            for j in 0..self.taps {
                taps[j] = V::load_part(&self.weight[j * channels + from..][..width], 0.0);
            }
            for j in 0..past {
                window[j] = V::load_part(&self.tail[j * channels + from..][..width], 0.0);
            }
            for t in 0..self.len {
                window[past] = V::load_part(&self.u.get(t, channels)[from..][..width], 0.0);
                let mut sum = bias;
                for j in 0..self.taps {
                    sum = taps[j].mul_add(window[j], sum);
                }
                // SAFETY: one thread, one slice at a time.
                silu(sum).store_part(unsafe { self.y.slice(t, from, width) });
                for j in 0..past {
                    window[j] = window[j + 1];
                }
            }
            for j in 0..past {
                window[j].store_part(&mut self.tail[j * channels + from..][..width]);
            }
            from += LANES;
        }
    }
}
