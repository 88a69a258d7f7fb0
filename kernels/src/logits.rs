//! Statistics of a row of logits in one pass: normaliser, entropy, most likely entries; and the rank of a given entry.

use std::cmp::Ordering;

use crate::dispatch::{Kernel, Path, active_path, dispatch};
use crate::lanes::{LANES, Lanes};
use crate::math::{exp, ln_f64};

/// Statistics of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogitSummary {
    /// Largest logit.
    pub max: f32,
    /// ln Σ eˣ. NaN unless [`is_valid`](Self::is_valid).
    pub log_z: f32,
    /// ln Σ eˣ⁻ᵐᵃˣ = `log_z` − `max`, at least 0. NaN unless [`is_valid`](Self::is_valid).
    pub ln_s: f32,
    /// Entropy of the softmax in nats. NaN unless [`is_valid`](Self::is_valid).
    pub entropy: f32,
}

impl LogitSummary {
    /// Whether the row is a distribution: not empty, no NaN, no +∞, and not −∞ throughout.
    pub fn is_valid(&self) -> bool {
        !self.log_z.is_nan()
    }

    /// Log-probability of an entry with this logit. Computed relative to the largest logit, so that probabilities near 1 keep
    /// their precision for logits of any size.
    pub fn logprob(&self, logit: f32) -> f32 {
        (logit - self.max) - self.ln_s
    }
}

/// Statistics of one entry and its row.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryStats {
    /// Log-softmax of the entry, without temperature.
    pub logprob: f32,
    /// Entropy of the row in nats.
    pub entropy: f32,
    /// Number of strictly greater entries.
    pub rank: u32,
    /// The most likely entries with their log-probabilities, best first, ties by lower id.
    pub top: Vec<(u32, f32)>,
}

/// If at least one entry in this many is requested, all are sorted.
const MOST: usize = 8;

/// Entries summed in f32 lanes (sixty-four a lane) before the lanes go into f64 sums: 4 KiB, which stay in L1.
const CHUNK: usize = 1024;

/// Below this, eˣ is 0 in f32. Prevents 0·∞ in the entropy of masked entries (−∞).
const EXP_MIN: f32 = -104.0;

/// One pass: log Z and entropy by the online method, with m the largest logit so far, s = Σ eˣ⁻ᵐ and
/// t = Σ eˣ⁻ᵐ(x−m): log Z = m + ln s, H = ln s − t/s. Also returns the `top` largest entries as (id, log-probability),
/// best first, ties by lower id. Allocates only the returned list.
///
/// A chunk of 1,024 is summed in sixteen f32 lanes, the lanes in rising order into f64: the error is that of the
/// single exponentials (relative to f64 under 1e-6) for any vocabulary size. A row that is not a distribution (see
/// [`LogitSummary::is_valid`]) gives NaN; the list never contains NaN entries.
pub fn read_logits(logits: &[f32], top: usize) -> (LogitSummary, Vec<(u32, f32)>) {
    read_logits_on(active_path(), logits, top)
}

pub(crate) fn read_logits_on(path: Path, logits: &[f32], top: usize) -> (LogitSummary, Vec<(u32, f32)>) {
    let mut best = Vec::with_capacity(top.min(logits.len()));
    // If most entries are requested, sorting is cheaper than insertion.
    let most = top > LANES && top.saturating_mul(MOST) >= logits.len();
    let summary = dispatch(path, Read { logits, top: if most { 0 } else { top }, best: &mut best });
    if most {
        best.extend((0..).zip(logits.iter().copied()).filter(|(_, x)| !x.is_nan()));
        best.sort_unstable_by(|a, b| b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal).then(a.0.cmp(&b.0)));
        best.truncate(top);
    }
    for (_, x) in &mut best {
        *x = summary.logprob(*x);
    }
    (summary, best)
}

/// [`read_logits`] with log-probability and rank of entry `id`; `None` if it does not exist.
pub fn read_token(logits: &[f32], id: u32, top: usize) -> Option<EntryStats> {
    let logit = *logits.get(id as usize)?;
    let (summary, top) = read_logits(logits, top);
    let rank = rank_of(logits, id)?;
    Some(EntryStats { logprob: summary.logprob(logit), entropy: summary.entropy, rank, top })
}

/// Number of entries strictly greater than entry `id`; `None` if it does not exist.
pub fn rank_of(logits: &[f32], id: u32) -> Option<u32> {
    let than = *logits.get(id as usize)?;
    Some(dispatch(active_path(), CountGreater { logits, than }))
}

struct Read<'a> {
    logits: &'a [f32],
    top: usize,
    best: &'a mut Vec<(u32, f32)>,
}

impl Kernel for Read<'_> {
    type Output = LogitSummary;

    #[inline(always)]
    fn run<V: Lanes>(self) -> LogitSummary {
        let (mut m, mut s, mut t) = (f32::NEG_INFINITY, 0.0f64, 0.0f64);
        for (index, chunk) in self.logits.chunks(CHUNK).enumerate() {
            let chunk_max = max::<V>(chunk);
            if chunk_max > m {
                if m > f32::NEG_INFINITY {
                    let lower = m - chunk_max;
                    let mut scale = [0.0; LANES];
                    exp(V::splat(lower)).store(&mut scale);
                    let scale = f64::from(scale[0]);
                    // e^(x−m')(x−m') = e^(m−m')·(e^(x−m)(x−m) + e^(x−m)(m−m')); if e^(m−m') is 0, the old sum vanishes.
                    t = if scale > 0.0 { scale * (t + s * f64::from(lower)) } else { 0.0 };
                    s *= scale;
                }
                m = chunk_max;
            }
            if m > f32::NEG_INFINITY {
                let (ds, dt) = sums::<V>(chunk, m);
                s += ds;
                t += dt;
            } else if chunk.iter().any(|x| x.is_nan()) {
                // Only masked entries so far; a NaN must not count as masked.
                s = f64::NAN;
            }
            take_best::<V>(chunk, index * CHUNK, self.top, self.best);
        }
        // No entries, or −∞ throughout: s is 0. NaN or +∞ among them: s is NaN.
        if s.is_nan() || s < 1.0 {
            return LogitSummary { max: m, log_z: f32::NAN, ln_s: f32::NAN, entropy: f32::NAN };
        }
        let ln_s = ln_f64(s);
        let log_z = (f64::from(m) + ln_s) as f32;
        LogitSummary { max: m, log_z, ln_s: ln_s as f32, entropy: (ln_s - t / s).max(0.0) as f32 }
    }
}

/// Largest entry, ignoring NaN; −∞ if there is none.
#[inline(always)]
pub(crate) fn max<V: Lanes>(x: &[f32]) -> f32 {
    let mut max = V::splat(f32::NEG_INFINITY);
    for part in x.chunks(LANES) {
        max = V::load_part(part, f32::NEG_INFINITY).max(max);
    }
    let mut lanes = [0.0; LANES];
    max.store(&mut lanes);
    let mut max = lanes[0];
    for x in lanes {
        max = if x > max { x } else { max };
    }
    max
}

/// Σ eˣ⁻ᵐ and Σ eˣ⁻ᵐ(x−m) of one chunk.
#[inline(always)]
fn sums<V: Lanes>(chunk: &[f32], m: f32) -> (f64, f64) {
    let (mut s, mut t) = (V::splat(0.0), V::splat(0.0));
    for part in chunk.chunks(LANES) {
        let below = V::splat(EXP_MIN).max(V::load_part(part, f32::MIN).sub(V::splat(m)));
        let e = exp(below);
        s = s.add(e);
        t = e.mul_add(below, t);
    }
    (sum_f64(s), sum_f64(t))
}

#[inline(always)]
fn sum_f64<V: Lanes>(x: V) -> f64 {
    let mut lanes = [0.0; LANES];
    x.store(&mut lanes);
    let mut sum = 0.0;
    for x in lanes {
        sum += f64::from(x);
    }
    sum
}

/// Merges the largest entries of a chunk into `best`, which is in descending order. Ids rise from call to call, so a strict
/// comparison orders ties by lower id.
#[inline(always)]
fn take_best<V: Lanes>(chunk: &[f32], first_id: usize, top: usize, best: &mut Vec<(u32, f32)>) {
    if top == 0 {
        return;
    }
    for (index, part) in chunk.chunks(LANES).enumerate() {
        let full = best.len() == top;
        if full && V::load_part(part, f32::NEG_INFINITY).mask_gt(V::splat(best[top - 1].1)) == 0 {
            continue;
        }
        for (lane, &x) in part.iter().enumerate() {
            if x.is_nan() || (best.len() == top && x <= best[top - 1].1) {
                continue;
            }
            best.truncate(top - 1);
            let at = best.partition_point(|&(_, kept)| kept >= x);
            best.insert(at, ((first_id + index * LANES + lane) as u32, x));
        }
    }
}

struct CountGreater<'a> {
    logits: &'a [f32],
    than: f32,
}

impl Kernel for CountGreater<'_> {
    type Output = u32;

    #[inline(always)]
    fn run<V: Lanes>(self) -> u32 {
        let than = V::splat(self.than);
        let mut count = 0;
        for part in self.logits.chunks(LANES) {
            count += V::load_part(part, f32::NEG_INFINITY).mask_gt(than).count_ones();
        }
        count
    }
}
