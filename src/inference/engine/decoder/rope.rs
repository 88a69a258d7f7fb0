//! Rotary position embeddings (Su et al. 2021, arXiv:2104.09864): pairs of a head's elements, half of the rotated part apart,
//! are rotated by an angle proportional to the position.

use std::f64::consts::TAU;

/// How positions are encoded.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct Rotary {
    pub(in super::super) theta: f64,
    pub(in super::super) scaling: Scaling,
    /// How many elements of each head are rotated: the first ones, an even number.
    pub(in super::super) dims: usize,
}

/// Scaling of the frequencies to a longer window than the trained one.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) enum Scaling {
    None,
    /// Divides all frequencies by one factor (Chen et al. 2023, arXiv:2306.15595).
    Linear(f64),
    /// Llama 3.1: divides slow frequencies by the factor, keeps fast ones, and interpolates between.
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        trained_window: f64,
    },
    /// `YaRN` (Peng et al. 2023, arXiv:2309.00071): divides slow frequencies by the factor, keeps fast ones, and
    /// interpolates by index between.
    Yarn {
        factor: f64,
        /// Rotations within the trained window from which on a frequency is kept, and up to which it is divided.
        fast: f64,
        slow: f64,
        trained_window: f64,
        /// Whether the limits between the ranges are rounded to whole indices.
        truncate: bool,
        /// Multiplies cosines and sines.
        amplitude: f64,
    },
    /// `LongRoPE` (Ding et al. 2024, arXiv:2402.13753): divides every frequency by a factor of its own.
    Each {
        factors: Vec<f64>,
        /// Multiplies cosines and sines.
        amplitude: f64,
    },
}

/// The frequencies of one model in radians per position, `[dims / 2]`.
///
/// An angle is position · frequency in f32, as in the reference implementation, including its rounding at large
/// positions.
pub(in super::super) struct RopeTable {
    frequencies: Vec<f32>,
    amplitude: f32,
}

impl RopeTable {
    pub(super) fn new(rotary: &Rotary) -> Self {
        let (theta, dims) = (rotary.theta, rotary.dims);
        let frequency = |pair: usize| {
            let plain = 1.0 / libm::pow(theta, (2 * pair) as f64 / dims as f64);
            rotary.scaled(pair, plain) as f32
        };
        let amplitude = match rotary.scaling {
            Scaling::Yarn { amplitude, .. } | Scaling::Each { amplitude, .. } => amplitude as f32,
            Scaling::None | Scaling::Linear(_) | Scaling::Llama3 { .. } => 1.0,
        };
        Self { frequencies: (0..dims / 2).map(frequency).collect(), amplitude }
    }

    /// Cosines, then sines, of position `position`: `[dims]`.
    pub(in super::super) fn at(&self, position: usize, turns: &mut [f32]) {
        let (cosines, sines) = turns.split_at_mut(self.frequencies.len());
        for ((frequency, cosine), sine) in self.frequencies.iter().zip(cosines).zip(sines) {
            // `libm`: the same bits on every platform.
            let (s, c) = libm::sincos(f64::from(position as f32 * frequency));
            (*cosine, *sine) = (c as f32 * self.amplitude, s as f32 * self.amplitude);
        }
    }
}

impl Rotary {
    /// The frequency of pair `pair`, which is `frequency` without scaling.
    fn scaled(&self, pair: usize, frequency: f64) -> f64 {
        match &self.scaling {
            Scaling::None => frequency,
            Scaling::Linear(factor) => frequency / factor,
            &Scaling::Llama3 { factor, low, high, trained_window } => {
                // Number of full rotations within the trained window. Slow rotations are stretched.
                let turns = trained_window * frequency / TAU;
                let smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                (1.0 - smooth) * frequency / factor + smooth * frequency
            }
            &Scaling::Yarn { factor, fast, slow, trained_window, truncate, .. } => {
                // The index at which a frequency has so many rotations within the trained window.
                let index = |turns: f64| {
                    self.dims as f64 * libm::log(trained_window / (turns * TAU)) / (2.0 * libm::log(self.theta))
                };
                let (low, high) = (index(fast), index(slow));
                let (low, high) = if truncate { (low.floor(), high.ceil()) } else { (low, high) };
                let (low, high) = (low.max(0.0), high.min(self.dims as f64 - 1.0));
                let width = if high > low { high - low } else { 0.001 };
                let stretched = ((pair as f64 - low) / width).clamp(0.0, 1.0);
                stretched * frequency / factor + (1.0 - stretched) * frequency
            }
            Scaling::Each { factors, .. } => frequency / factors.get(pair).copied().unwrap_or(1.0),
        }
    }
}

/// Rotates the first `dims` elements of every head of every row of x `[rows, heads, head_dim]` by its row of `turns`
/// `[rows, dims]`.
pub(super) fn rotate(x: &mut [f32], turns: &[f32], dims: usize, heads: usize, head_dim: usize) {
    for (row, turns) in x.chunks_exact_mut(heads * head_dim).zip(turns.chunks_exact(dims)) {
        let (cosines, sines) = turns.split_at(dims / 2);
        for head in row.chunks_exact_mut(head_dim) {
            let (first, second) = head.split_at_mut(dims / 2);
            for (((a, b), c), s) in first.iter_mut().zip(second).zip(cosines).zip(sines) {
                (*a, *b) = (*a * c - *b * s, *b * c + *a * s);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_key_products_depend_only_on_distance() {
        let turns = RopeTable::new(&Rotary { theta: 100.0, scaling: Scaling::None, dims: 6 });
        let product = |q: usize, k: usize| {
            let turned = |position: usize, x: [f32; 6]| {
                let (mut x, mut by) = (x, [0.0; 6]);
                turns.at(position, &mut by);
                rotate(&mut x, &by, 6, 1, 6);
                x
            };
            let (q, k) = (turned(q, [1.0, -2.0, 0.5, 3.0, 1.5, -1.0]), turned(k, [0.3, 1.0, -1.0, 2.0, 0.1, 0.7]));
            q.iter().zip(k).map(|(q, k)| q * k).sum::<f32>()
        };
        for (q, k) in [(5, 2), (40, 37), (3, 0)] {
            assert!((product(q, k) - product(13, 10)).abs() < 1e-5, "{q} {k}");
        }
        assert!((product(3, 1) - product(13, 10)).abs() > 0.1);
    }

    #[test]
    fn elements_after_the_rotated_ones_stay() {
        let turns = RopeTable::new(&Rotary { theta: 100.0, scaling: Scaling::None, dims: 4 });
        let (mut x, mut by) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0.0; 4]);
        turns.at(1, &mut by);
        rotate(&mut x, &by, 4, 1, 6);
        assert_eq!(x[4..], [5.0, 6.0]);
        let (s, c) = 1f32.sin_cos();
        assert!((x[0] - (c - 3.0 * s)).abs() < 1e-6 && (x[2] - (3.0 * c + s)).abs() < 1e-6, "{x:?}");
    }

    #[test]
    fn llama_3_scaling_stretches_only_slow_frequencies() {
        let scaling = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, trained_window: 8192.0 };
        let rotary = Rotary { theta: 1e4, scaling, dims: 64 };
        let close = |frequency: f64, want: f64| assert!((rotary.scaled(0, frequency) - want).abs() < 1e-12);
        close(1.0, 1.0);
        close(1e-5, 1e-5 / 8.0);
        // Half-way between: 2.5 rotations in the window.
        let middle = 2.5 * TAU / 8192.0;
        close(middle, middle * (0.5 / 8.0 + 0.5));
    }
}
