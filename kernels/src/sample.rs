//! Drawing an entry: penalty, temperature, top-k, top-p, min-p, then the inverse of the cumulative distribution.

use std::cmp::Ordering;

use crate::dispatch::{Kernel, Path, active_path, dispatch};
use crate::lanes::{LANES, Lanes};
use crate::logits::max;
use crate::math::exp;

/// What is kept of the distribution, in this order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleParams {
    /// Divides the logits; 0 means the largest logit, the lowest id among equals.
    pub temperature: f32,
    /// Keep this many of the likeliest (the lower id among equals); `None` keeps all.
    pub top_k: Option<usize>,
    /// Then keep the likeliest until they hold at least this share of what top-k left; 1 keeps all.
    pub top_p: f32,
    /// Then drop what is less likely than this share of the likeliest; 0 drops none.
    pub min_p: f32,
}

/// Divides positive and multiplies negative logits of the entries `ids` by `penalty` (Keskar et al. 2019), each once
/// however often it is named. Ids beyond the row are passed over.
pub fn penalise(logits: &mut [f32], ids: &[u32], penalty: f32) {
    for (index, &id) in ids.iter().enumerate() {
        if ids[..index].contains(&id) {
            continue;
        }
        if let Some(x) = logits.get_mut(id as usize) {
            *x = if *x > 0.0 { *x / penalty } else { *x * penalty };
        }
    }
}

/// Buffers of a draw, reused from one to the next.
#[derive(Debug, Default)]
pub struct SampleScratch {
    /// One per entry of the row.
    weights: Vec<f32>,
    cut: Cut,
}

/// What it takes to find where a filter cuts.
#[derive(Debug, Default)]
struct Cut {
    /// One per leading bits of a weight.
    amounts: Vec<f64>,
    around: Vec<(f32, usize)>,
}

/// Draws an entry of `logits` with `uniform` from [0, 1): the first id, in rising order of the kept ones, at which
/// their cumulative weight exceeds `uniform` times their sum. The likeliest entry is always kept. Weights are summed in
/// f64, in blocks of 64.
///
/// `scratch` grows to the vocabulary. `None` if the row is no distribution: empty, a NaN or +∞ in it, or −∞ throughout.
pub fn sample(logits: &[f32], params: &SampleParams, uniform: f64, scratch: &mut SampleScratch) -> Option<u32> {
    sample_on(active_path(), logits, params, uniform, scratch)
}

pub(crate) fn sample_on(
    path: Path,
    logits: &[f32],
    params: &SampleParams,
    uniform: f64,
    scratch: &mut SampleScratch,
) -> Option<u32> {
    let SampleScratch { weights, cut } = scratch;
    let max = dispatch(path, Weigh { logits, temperature: params.temperature, weights })?;
    if params.temperature == 0.0 {
        return logits.iter().position(|&x| x >= max).map(|id| id as u32);
    }
    if let Some(k) = params.top_k {
        cut.keep_likeliest(weights, k.max(1) as f64, |_| 1.0);
    }
    if params.top_p < 1.0 {
        let share = f64::from(params.top_p) * sum(weights);
        cut.keep_likeliest(weights, share, f64::from);
    }
    if params.min_p > 0.0 {
        // The likeliest weighs 1, before and after every filter.
        let least = params.min_p.min(1.0);
        for weight in weights.iter_mut().filter(|weight| **weight < least) {
            *weight = 0.0;
        }
    }
    draw(weights, uniform * sum(weights))
}

/// The first id at which the cumulative weight exceeds `aim`.
fn draw(weights: &[f32], aim: f64) -> Option<u32> {
    let mut before = 0.0;
    for (number, block) in weights.chunks(BLOCK).enumerate() {
        let after = before + block_sum(block);
        if after > aim {
            let mut reached = before;
            let within = block.iter().position(|&weight| {
                reached += f64::from(weight);
                weight > 0.0 && reached > aim
            });
            // One by one the sum may round to a little less than in the block's own order.
            let within = within.or_else(|| block.iter().rposition(|&weight| weight > 0.0))?;
            return Some((number * BLOCK + within) as u32);
        }
        before = after;
    }
    // Only for `uniform` ≥ 1.
    weights.iter().rposition(|&weight| weight > 0.0).map(|id| id as u32)
}

/// Weights summed together before they go into a running sum.
const BLOCK: usize = 64;

fn sum(weights: &[f32]) -> f64 {
    weights.chunks(BLOCK).map(block_sum).sum()
}

/// Eight sums of every eighth, then these in order.
fn block_sum(block: &[f32]) -> f64 {
    let mut lanes = [0.0f64; 8];
    for part in block.chunks(8) {
        lanes.iter_mut().zip(part).for_each(|(lane, &weight)| *lane += f64::from(weight));
    }
    lanes.iter().sum()
}

impl Cut {
    /// Keeps the likeliest entries (the lower id first among equals) until their amounts reach `goal`, one at least; the
    /// others weigh 0 from then on.
    ///
    /// Amounts are gathered by the leading bits of the weights, so that only the entries around the last one kept need
    /// be sorted, however long the tail.
    fn keep_likeliest(&mut self, weights: &mut [f32], goal: f64, amount: impl Fn(f32) -> f64) {
        let Self { amounts, around } = self;
        // Sign, exponent and five bits: of weights from 0 to 1, bits that order as the numbers do.
        let bucket = |weight: f32| (weight.to_bits() >> 18) as usize;
        amounts.clear();
        amounts.resize(bucket(1.0) + 1, 0.0);
        for &weight in &*weights {
            amounts[bucket(weight)] += amount(weight);
        }
        let mut reached = 0.0;
        let last = amounts.iter().rposition(|amount| {
            let enough = reached + amount >= goal;
            if !enough {
                reached += amount;
            }
            enough
        });
        // The goal lies beyond all of them by rounding, or there are fewer than asked for.
        let Some(last) = last else { return };
        around.clear();
        for (id, weight) in weights.iter_mut().enumerate() {
            match bucket(*weight).cmp(&last) {
                Ordering::Less => *weight = 0.0,
                Ordering::Equal => around.push((*weight, id)),
                Ordering::Greater => {}
            }
        }
        around.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let kept = around.iter().position(|&(weight, _)| {
            let enough = reached > 0.0 && reached >= goal;
            reached += amount(weight);
            enough
        });
        for &(_, id) in &around[kept.unwrap_or(around.len())..] {
            weights[id] = 0.0;
        }
    }
}

/// Fills `weights` with every entry's e^((x − max)/temperature); gives the largest logit.
struct Weigh<'a> {
    logits: &'a [f32],
    temperature: f32,
    weights: &'a mut Vec<f32>,
}

impl Kernel for Weigh<'_> {
    type Output = Option<f32>;

    #[inline(always)]
    fn run<V: Lanes>(self) -> Option<f32> {
        let max = max::<V>(self.logits);
        let odd = self.logits.iter().fold(false, |odd, x| odd | x.is_nan());
        if odd || !max.is_finite() {
            return None;
        }
        if self.temperature == 0.0 {
            return Some(max);
        }
        self.weights.resize(self.logits.len(), 0.0);
        let (max_lanes, temperature) = (V::splat(max), V::splat(self.temperature));
        for (part, weights) in self.logits.chunks(LANES).zip(self.weights.chunks_mut(LANES)) {
            let below = V::load_part(part, f32::NEG_INFINITY).sub(max_lanes);
            exp(below.div(temperature)).store_part(weights);
        }
        Some(max)
    }
}
