//! Statistics of one token's alternatives in one pass: the regulator's inner loop.

use super::{RankEntropies, usable};

/// Statistics of one token's alternatives.
pub(super) struct Alternatives {
    pub(super) count: usize,
    pub(super) sum: f32,
    pub(super) entropy: f32,
    /// The entropy's terms of the first alternatives.
    pub(super) terms: [[f32; LANES]; RANKS / LANES],
    /// The two highest probabilities.
    pub(super) best: f32,
    pub(super) second: f32,
}

/// The terms of the entropy, by rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ranks {
    tokens: u64,
    /// The number of ranks that every token has.
    common: usize,
    sums: [f64; RANKS],
    max: [f32; RANKS],
}

impl Ranks {
    pub(super) const NONE: Self = Self { tokens: 0, common: RANKS, sums: [0.0; RANKS], max: [0.0; RANKS] };

    pub(super) fn push(&mut self, terms: [[f32; LANES]; RANKS / LANES], ranks: usize) {
        self.tokens += 1;
        self.common = self.common.min(ranks);
        for ((sum, max), term) in self.sums.iter_mut().zip(&mut self.max).zip(terms.into_iter().flatten()) {
            *sum += f64::from(term);
            *max = if term > *max { term } else { *max };
        }
    }

    pub(super) fn entropies(&self) -> Option<RankEntropies> {
        (self.tokens > 0).then(|| RankEntropies {
            mean: self.sums.iter().take(self.common).map(|sum| sum / self.tokens as f64).collect(),
            max: self.max.iter().take(self.common).copied().map(f64::from).collect(),
        })
    }
}

/// Alternatives processed in parallel: the width of the narrowest vector instructions.
const LANES: usize = 4;
/// For how many ranks entropies are stored.
pub(super) const RANKS: usize = 2 * LANES;

pub(super) fn read_alternatives<T>(top: &[T], value: impl Fn(&T) -> f32) -> Alternatives {
    let mut lanes = Lanes::default();
    let mut terms = [[0.0; LANES]; RANKS / LANES];
    let mut ranks = terms.iter_mut();
    // Whole chunks are loaded directly: assembled element by element, the load would wait for the stores.
    let (whole, rest) = top.as_chunks::<LANES>();
    for chunk in whole {
        let mut read = [0.0; LANES];
        for (read, item) in read.iter_mut().zip(chunk) {
            *read = value(item);
        }
        let own = lanes.add(read);
        ranks.next().into_iter().for_each(|ranks| *ranks = own);
    }
    if !rest.is_empty() {
        // Lanes without an alternative hold NaN, which is unusable.
        let mut read = [f32::NAN; LANES];
        for (read, item) in read.iter_mut().zip(rest) {
            *read = value(item);
        }
        let own = lanes.add(read);
        ranks.next().into_iter().for_each(|ranks| *ranks = own);
    }
    let Lanes { counts, sums, entropies, likeliest, next } = lanes;
    let best_two = |(best, second): (f32, f32), p: f32| {
        let lower = if p < best { p } else { best };
        (if p > best { p } else { best }, if lower > second { lower } else { second })
    };
    let (best, second) = likeliest.into_iter().chain(next).fold((0.0, 0.0), best_two);
    Alternatives {
        count: counts.iter().sum::<u32>() as usize,
        sum: sums.iter().sum(),
        entropy: entropies.iter().sum::<f32>().max(0.0),
        terms,
        best,
        second,
    }
}

/// Sums over the alternatives, per lane.
#[derive(Default)]
struct Lanes {
    counts: [u32; LANES],
    sums: [f32; LANES],
    entropies: [f32; LANES],
    /// The two highest probabilities.
    likeliest: [f32; LANES],
    next: [f32; LANES],
}

impl Lanes {
    /// Adds one alternative to each lane; returns the terms −p ln p. Unusable values add nothing, without branches. One
    /// short loop per sum, because the compiler vectorises those.
    #[expect(
        clippy::inline_always,
        reason = "the lanes stay in registers from chunk to chunk; a call costs half as much again"
    )]
    #[inline(always)]
    fn add(&mut self, read: [f32; LANES]) -> [f32; LANES] {
        let (mut safe, mut p, mut terms) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        for (safe, logprob) in safe.iter_mut().zip(read) {
            *safe = if usable(logprob) { logprob } else { 0.0 };
        }
        for (p, logprob) in p.iter_mut().zip(safe) {
            *p = exp_nonpositive(logprob);
        }
        for (p, logprob) in p.iter_mut().zip(read) {
            *p = if usable(logprob) { *p } else { 0.0 };
        }
        for ((term, p), logprob) in terms.iter_mut().zip(p).zip(safe) {
            *term = -p * logprob;
        }
        for (count, logprob) in self.counts.iter_mut().zip(read) {
            *count += u32::from(usable(logprob));
        }
        for (sum, logprob) in self.sums.iter_mut().zip(safe) {
            *sum += logprob;
        }
        for (entropy, term) in self.entropies.iter_mut().zip(terms) {
            *entropy += term;
        }
        for ((best, second), p) in self.likeliest.iter_mut().zip(&mut self.next).zip(p) {
            let lower = if p < *best { p } else { *best };
            *second = if lower > *second { lower } else { *second };
            *best = if p > *best { p } else { *best };
        }
        terms
    }
}

/// eˣ for x ≤ 0, relative error below 3·10⁻⁷, clamped at e⁻⁸⁷. Plain arithmetic, so that loops over it are vectorised,
/// unlike the platform's `exp`. Reduction by ln 2 in two parts (Cody and Waite 1980), then the series.
#[inline]
pub(super) fn exp_nonpositive(x: f32) -> f32 {
    /// 1.5·2²³: adding it rounds to an integer that then sits in the low bits.
    const ROUNDER: f32 = 12_582_912.0;
    /// ln 2 in a part with few bits, so that its product with the exponent is exact, and the rest.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let x = if x > -87.0 { x } else { -87.0 };
    let shifted = x * std::f32::consts::LOG2_E + ROUNDER;
    let exponent = shifted - ROUNDER;
    let r = (x - exponent * LN_2_HIGH) - exponent * LN_2_LOW;
    let poly = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * (1.0 / 24.0 + r * (1.0 / 120.0 + r / 720.0)))));
    let power = shifted.to_bits().wrapping_sub(ROUNDER.to_bits()).wrapping_add(127) << 23;
    poly * f32::from_bits(power)
}
