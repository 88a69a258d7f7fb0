//! Drawing an entry: penalty, temperature, top-k, top-p, min-p, then the inverse of the cumulative distribution.

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

/// Draws an entry of `logits` with `uniform` from [0, 1): the first id, in rising order of the kept ones, at which
/// their cumulative weight exceeds `uniform` times their sum. The likeliest entry is always kept.
///
/// `scratch` is reused from call to call and grows to the vocabulary. `None` if the row is no distribution: empty, a
/// NaN or +∞ in it, or −∞ throughout.
pub fn sample(logits: &[f32], params: &SampleParams, uniform: f64, scratch: &mut Vec<(u32, f32)>) -> Option<u32> {
    sample_on(active_path(), logits, params, uniform, scratch)
}

pub(crate) fn sample_on(
    path: Path,
    logits: &[f32],
    params: &SampleParams,
    uniform: f64,
    kept: &mut Vec<(u32, f32)>,
) -> Option<u32> {
    let max = dispatch(path, Weigh { logits, temperature: params.temperature, kept })?;
    if params.temperature == 0.0 {
        return logits.iter().position(|&x| x >= max).map(|id| id as u32);
    }
    if let Some(k) = params.top_k.map(|k| k.max(1)).filter(|&k| k < kept.len()) {
        kept.select_nth_unstable_by(k - 1, likeliest_first);
        kept.truncate(k);
        kept.sort_unstable_by_key(|&(id, _)| id);
    }
    if params.top_p < 1.0 {
        keep_nucleus(kept, f64::from(params.top_p));
    }
    if params.min_p > 0.0 {
        // The likeliest weighs 1, before and after every filter.
        kept.retain(|&(_, weight)| weight >= params.min_p.min(1.0));
    }
    kept.sort_unstable_by_key(|&(id, _)| id);
    let aim = uniform * sum(kept);
    let mut reached = 0.0;
    for &(id, weight) in &*kept {
        reached += f64::from(weight);
        if reached > aim {
            return Some(id);
        }
    }
    // Only for `uniform` ≥ 1.
    kept.last().map(|&(id, _)| id)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that sorting takes")]
fn likeliest_first(a: &(u32, f32), b: &(u32, f32)) -> std::cmp::Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

fn sum(kept: &[(u32, f32)]) -> f64 {
    kept.iter().map(|&(_, weight)| f64::from(weight)).sum()
}

/// Keeps an entry if those likelier than it hold less than `share` of all.
fn keep_nucleus(kept: &mut Vec<(u32, f32)>, share: f64) {
    let total = sum(kept);
    // Entries below this cannot hold (1 − share) together, so the nucleus lies above: spares sorting the long tail.
    let least = (1.0 - share) * total / kept.len() as f64;
    kept.retain(|&(_, weight)| f64::from(weight) >= least);
    kept.sort_unstable_by(likeliest_first);
    let mut before = 0.0;
    let within = kept.iter().position(|&(_, weight)| {
        let reached = before >= share * total;
        before += f64::from(weight);
        reached
    });
    kept.truncate(within.unwrap_or(kept.len()).max(1));
}

/// Fills `kept` with every entry's e^((x − max)/temperature), in order of id, leaving out those of weight 0; gives the
/// largest logit.
struct Weigh<'a> {
    logits: &'a [f32],
    temperature: f32,
    kept: &'a mut Vec<(u32, f32)>,
}

impl Kernel for Weigh<'_> {
    type Output = Option<f32>;

    #[inline(always)]
    fn run<V: Lanes>(self) -> Option<f32> {
        self.kept.clear();
        let max = max::<V>(self.logits);
        if self.logits.iter().any(|x| x.is_nan()) || !max.is_finite() {
            return None;
        }
        if self.temperature == 0.0 {
            return Some(max);
        }
        for (index, part) in self.logits.chunks(LANES).enumerate() {
            let below = V::load_part(part, f32::NEG_INFINITY).sub(V::splat(max));
            let mut weights = [0.0; LANES];
            exp(below.div(V::splat(self.temperature))).store(&mut weights);
            for (lane, &weight) in weights[..part.len()].iter().enumerate() {
                if weight > 0.0 {
                    self.kept.push(((index * LANES + lane) as u32, weight));
                }
            }
        }
        Some(max)
    }
}
