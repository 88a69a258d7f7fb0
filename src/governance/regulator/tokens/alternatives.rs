//! What the alternatives of one token say, read in one pass: the inner loop of the regulator.

use super::{RankEntropies, usable};

/// What one token brings, checked.
pub(super) struct Alternatives {
    pub(super) count: usize,
    pub(super) sum: f32,
    pub(super) entropy: f32,
    /// The terms of the entropy that the first alternatives give.
    pub(super) terms: [f32; LANES],
    pub(super) best: f32,
    pub(super) second: f32,
}

/// The terms of the entropy, by rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ranks {
    tokens: u64,
    /// As many ranks as every token has.
    common: usize,
    sums: [f64; LANES],
    max: [f32; LANES],
}

impl Ranks {
    pub(super) const NONE: Self = Self { tokens: 0, common: LANES, sums: [0.0; LANES], max: [0.0; LANES] };

    pub(super) fn push(&mut self, terms: [f32; LANES], ranks: usize) {
        self.tokens += 1;
        self.common = self.common.min(ranks);
        for ((sum, max), term) in self.sums.iter_mut().zip(&mut self.max).zip(terms) {
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

/// How many alternatives are read side by side, so that the arithmetic becomes vector instructions; and of how many ranks
/// the entropies are kept.
pub(super) const LANES: usize = 8;

pub(super) fn read_alternatives<T>(top: &[T], value: impl Fn(&T) -> f32) -> Alternatives {
    let mut counts = [0u32; LANES];
    let (mut sums, mut entropies) = ([0f32; LANES], [0f32; LANES]);
    let mut terms = None;
    let (mut bests, mut seconds) = ([f32::NEG_INFINITY; LANES], [f32::NEG_INFINITY; LANES]);
    for chunk in top.chunks(LANES) {
        // A lane without an alternative holds an unusable one. Branches would cost more than the arithmetic: what is
        // unusable adds nothing. One short loop for each sum, since a compiler makes vectors of those.
        let mut read = [f32::NAN; LANES];
        for (read, item) in read.iter_mut().zip(chunk) {
            *read = value(item);
        }
        let safe = read.map(|logprob| if usable(logprob) { logprob } else { 0.0 });
        let seen = read.map(|logprob| if usable(logprob) { logprob } else { f32::NEG_INFINITY });
        for (count, logprob) in counts.iter_mut().zip(read) {
            *count += u32::from(usable(logprob));
        }
        for (sum, logprob) in sums.iter_mut().zip(safe) {
            *sum += logprob;
        }
        let own = safe.map(|logprob| -exp_nonpositive(logprob) * logprob);
        for (entropy, term) in entropies.iter_mut().zip(own) {
            *entropy += term;
        }
        terms = terms.or(Some(own));
        for ((best, second), seen) in bests.iter_mut().zip(&mut seconds).zip(seen) {
            let lower = if seen < *best { seen } else { *best };
            *second = if lower > *second { lower } else { *second };
            *best = if seen > *best { seen } else { *best };
        }
    }
    let best_two = |(best, second): (f32, f32), x: f32| if x > best { (x, best) } else { (best, second.max(x)) };
    let (best, second) = bests.into_iter().chain(seconds).fold((f32::NEG_INFINITY, f32::NEG_INFINITY), best_two);
    Alternatives {
        count: counts.iter().sum::<u32>() as usize,
        sum: sums.iter().sum(),
        entropy: entropies.iter().sum::<f32>().max(0.0),
        terms: terms.unwrap_or_default(),
        best,
        second,
    }
}

/// eˣ for x ≤ 0, within 3·10⁻⁷ relative; below e⁻⁸⁷ it stays there. Plain arithmetic, so that a loop over it becomes
/// vector instructions; the platform's `exp` would not. Reduction by ln 2 in two parts (Cody and Waite 1980), then the
/// series.
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
