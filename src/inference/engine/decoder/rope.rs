//! Rotary position embeddings (Su et al. 2021, arXiv:2104.09864): pairs of a head's elements, half a head apart, are
//! rotated by an angle proportional to the position.

use std::f64::consts::TAU;

/// How positions are encoded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) struct Rotary {
    pub(in super::super) theta: f64,
    pub(in super::super) scaling: Scaling,
}

/// Scaling of the frequencies to a longer window than the trained one.
#[derive(Debug, Clone, Copy, PartialEq)]
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
}

/// The frequencies of one model in radians per position, `[head_dim / 2]`.
///
/// An angle is position · frequency in f32, as in the reference implementation, including its rounding at large
/// positions.
pub(in super::super) struct RopeTable(Vec<f32>);

impl RopeTable {
    pub(super) fn new(rotary: Rotary, head_dim: usize) -> Self {
        let frequency = |pair: usize| {
            let plain = 1.0 / libm::pow(rotary.theta, (2 * pair) as f64 / head_dim as f64);
            scaled(rotary.scaling, plain) as f32
        };
        Self((0..head_dim / 2).map(frequency).collect())
    }

    /// Cosines, then sines, of position `position`: `[head_dim]`.
    pub(in super::super) fn at(&self, position: usize, turns: &mut [f32]) {
        let (cosines, sines) = turns.split_at_mut(self.0.len());
        for ((frequency, cosine), sine) in self.0.iter().zip(cosines).zip(sines) {
            // `libm`: the same bits on every platform.
            let (s, c) = libm::sincos(f64::from(position as f32 * frequency));
            (*cosine, *sine) = (c as f32, s as f32);
        }
    }
}

fn scaled(scaling: Scaling, frequency: f64) -> f64 {
    match scaling {
        Scaling::None => frequency,
        Scaling::Linear(factor) => frequency / factor,
        Scaling::Llama3 { factor, low, high, trained_window } => {
            // Number of full rotations within the trained window. Slow rotations are stretched.
            let turns = trained_window * frequency / TAU;
            let smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0);
            (1.0 - smooth) * frequency / factor + smooth * frequency
        }
    }
}

/// Rotates every head of every row of x `[rows, heads, head_dim]` by its row of `rope` `[rows, head_dim]`.
pub(super) fn rotate(x: &mut [f32], turns: &[f32], heads: usize, head_dim: usize) {
    for (row, turns) in x.chunks_exact_mut(heads * head_dim).zip(turns.chunks_exact(head_dim)) {
        let (cosines, sines) = turns.split_at(head_dim / 2);
        for head in row.chunks_exact_mut(head_dim) {
            let (first, second) = head.split_at_mut(head_dim / 2);
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
        let turns = RopeTable::new(Rotary { theta: 100.0, scaling: Scaling::None }, 6);
        let product = |q: usize, k: usize| {
            let turned = |position: usize, x: [f32; 6]| {
                let (mut x, mut by) = (x, [0.0; 6]);
                turns.at(position, &mut by);
                rotate(&mut x, &by, 1, 6);
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
    fn llama_3_scaling_stretches_only_slow_frequencies() {
        let scaling = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, trained_window: 8192.0 };
        let close = |frequency: f64, want: f64| assert!((scaled(scaling, frequency) - want).abs() < 1e-12);
        close(1.0, 1.0);
        close(1e-5, 1e-5 / 8.0);
        // Half-way between: 2.5 rotations in the window.
        let middle = 2.5 * TAU / 8192.0;
        close(middle, middle * (0.5 / 8.0 + 0.5));
    }
}
