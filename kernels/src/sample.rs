//! Sampling: penalty, temperature, top-k, top-p, min-p, then inversion of the cumulative distribution.

use std::cmp::Ordering;

use crate::dispatch::{Kernel, Path, active_path, dispatch};
use crate::lanes::{LANES, Lanes};
use crate::logits::max;
use crate::math::exp;

/// Filters of the distribution, applied in this order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleParams {
    /// Divides the logits; 0 selects the largest logit, ties by lower id.
    pub temperature: f32,
    /// Keep this many of the most likely entries (ties by lower id); `None` keeps all.
    pub top_k: Option<usize>,
    /// Then keep the most likely entries until they reach this share of the remaining weight; 1 keeps all.
    pub top_p: f32,
    /// Then drop entries below this share of the largest weight; 0 drops none.
    pub min_p: f32,
}

/// Divides positive and multiplies negative logits of the entries `ids` by `penalty` (Keskar et al. 2019), each once
/// even if listed repeatedly. Ids beyond the row are ignored.
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

/// Reusable buffers of a draw.
#[derive(Debug, Default)]
pub struct SampleScratch {
    /// One per entry of the row.
    weights: Vec<f32>,
    cut: Cut,
}

/// Buffers for finding the cut of a filter.
#[derive(Debug, Default)]
struct Cut {
    /// One sum per bucket of weights.
    amounts: Vec<f64>,
    around: Vec<(f32, usize)>,
}

/// Samples an entry of `logits` with `uniform` from [0, 1): the first kept id, in rising order, at which the cumulative
/// weight exceeds `uniform` times the total. The most likely entry is always kept. Weights are summed in f64, in blocks of
/// 64.
///
/// `scratch` grows to the vocabulary. `None` if the row is not a distribution: empty, with a NaN or +∞, or only −∞.
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
        // The largest weight is 1, before and after every filter.
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
            // Summed one by one, the total may round to slightly less than the block sum.
            let within = within.or_else(|| block.iter().rposition(|&weight| weight > 0.0))?;
            return Some((number * BLOCK + within) as u32);
        }
        before = after;
    }
    // Only for `uniform` ≥ 1.
    weights.iter().rposition(|&weight| weight > 0.0).map(|id| id as u32)
}

/// Weights per block sum.
const BLOCK: usize = 64;

fn sum(weights: &[f32]) -> f64 {
    weights.chunks(BLOCK).map(block_sum).sum()
}

/// Eight strided sums, then their sum in order.
fn block_sum(block: &[f32]) -> f64 {
    let mut lanes = [0.0f64; 8];
    for part in block.chunks(8) {
        lanes.iter_mut().zip(part).for_each(|(lane, &weight)| *lane += f64::from(weight));
    }
    lanes.iter().sum()
}

impl Cut {
    /// Keeps the most likely entries (ties by lower id) until their amounts reach `goal`, at least one, and sets the weights
    /// of the others to 0.
    ///
    /// Amounts are summed in buckets by the leading bits of the weights, so that only the entries in the bucket of the cut
    /// are sorted.
    fn keep_likeliest(&mut self, weights: &mut [f32], goal: f64, amount: impl Fn(f32) -> f64) {
        let Self { amounts, around } = self;
        // Sign, exponent and five bits of the mantissa: for weights from 0 to 1 their order is that of the numbers.
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
        // By rounding the goal exceeds the total, or there are fewer entries than requested.
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

/// Fills `weights` with e^((x − max)/temperature) of every entry; returns the largest logit.
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
