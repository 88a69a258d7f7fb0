//! Accumulates the step sizes Δ of a sequence whose statistics are recorded, and computes the statistics at the end.

use loom_kernels::{Rows, add_steps};

use crate::foundation::chat::{DeltaGains, HalfLife, LayerGains, SsmLayerStats, SsmStats};

/// Sums of Δ over the tokens read so far, before gains.
#[derive(Debug, Clone, Default)]
pub(crate) struct Steps {
    pub(super) tokens: u64,
    /// `[layers, channels]`; empty before the first token.
    pub(super) sums: Vec<f64>,
}

impl Steps {
    /// Adds `len` values of the `index`th layer with a Δ. Layers are added in order.
    pub(super) fn add(&mut self, index: usize, raw: Rows<'_>, bias: &[f32], limit: (f32, f32), len: usize) {
        let end = (index + 1) * bias.len();
        if self.sums.len() < end {
            self.sums.resize(end, 0.0);
        }
        if index == 0 {
            self.tokens += len as u64;
        }
        add_steps(raw, bias, limit, len, super::linear::layer_of(&mut self.sums, index, bias.len()));
    }

    /// The statistics. `layers` has the index of each layer with a Δ, its A, `[channels, states]` (negative), and its part
    /// of the state.
    pub(super) fn stats(&self, layers: &[(usize, &[f32], &[f32])], gains: Option<&DeltaGains>) -> SsmStats {
        let channels = (self.sums.len() / layers.len().max(1)).max(1);
        let tokens = self.tokens as f64;
        let mut sums = self.sums.chunks(channels);
        let layers = layers.iter().map(|&(index, a, state)| {
            let gains = gains.and_then(|gains| gains.layer(index)).unwrap_or(LayerGains::ONE);
            let means: Vec<f64> = sums.next().unwrap_or_default().iter().map(|sum| sum / tokens.max(1.0)).collect();
            let delta = means.iter().sum::<f64>() / channels as f64;
            let (decay, write) = (f64::from(gains.on_decay()), f64::from(gains.on_write()));
            SsmLayerStats {
                layer: index,
                delta,
                delta_decay: decay * delta,
                delta_write: write * delta,
                state_norm: state.iter().map(|h| f64::from(*h).powi(2)).sum::<f64>().sqrt(),
                half_life: half_life(&means, a, decay),
            }
        });
        SsmStats { tokens: self.tokens, layers: layers.collect() }
    }
}

fn half_life(means: &[f64], a: &[f32], gain: f64) -> HalfLife {
    let states = (a.len() / means.len().max(1)).max(1);
    let mut rates: Vec<f64> = means
        .iter()
        .zip(a.chunks(states))
        .flat_map(|(mean, a)| a.iter().map(move |a| gain * mean * f64::from(a.abs())))
        .collect();
    // Fastest first.
    rates.sort_by(|a, b| b.total_cmp(a));
    let at = |share: f64| {
        let last = rates.len().checked_sub(1)?;
        let rate = *rates.get((share * last as f64).round() as usize)?;
        (rate > 0.0).then(|| std::f64::consts::LN_2 / rate)
    };
    HalfLife { p10: at(0.1), median: at(0.5), p90: at(0.9) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_computed_as_documented() {
        // softplus of 30 is 30: two channels with steps of 30 and 60 over two tokens.
        let mut steps = Steps::default();
        steps.add(0, Rows::new(&[30.0, 60.0, 30.0, 60.0], 2), &[0.0; 2], (0.0, f32::INFINITY), 2);
        let gains = DeltaGains::Uniform(LayerGains { delta: 0.5, decay: 2.0, write: 3.0 });
        let (a, state) = ([-1.0f32, -2.0], [3.0f32, 4.0]);
        let gained = steps.stats(&[(0, &a[..], &state[..])], Some(&gains));
        assert_eq!(gained.tokens, 2);
        let layer = gained.layers[0];
        assert_eq!((layer.delta, layer.delta_decay, layer.delta_write, layer.state_norm), (45.0, 45.0, 67.5, 5.0));
        let ln2 = std::f64::consts::LN_2;
        assert_eq!((layer.half_life.p10, layer.half_life.p90), (Some(ln2 / 120.0), Some(ln2 / 30.0)));
        let frozen = DeltaGains::Uniform(LayerGains { delta: 0.0, ..LayerGains::ONE });
        let still = steps.stats(&[(0, &a[..], &state[..])], Some(&frozen));
        assert_eq!(still.layers[0].half_life, HalfLife { p10: None, median: None, p90: None });
    }

    #[test]
    fn reading_a_text_in_pieces_gives_the_same_bits() {
        let raw: Vec<f32> = (0..60u8).map(|x| f32::from(x) * 0.17 - 5.0).collect();
        let (mut whole, mut parts) = (Steps::default(), Steps::default());
        whole.add(0, Rows::new(&raw, 3), &[0.1; 3], (0.0, f32::INFINITY), 20);
        for row in raw.chunks(3) {
            parts.add(0, Rows::new(row, 3), &[0.1; 3], (0.0, f32::INFINITY), 1);
        }
        assert_eq!(whole.sums, parts.sums);
        assert_eq!(whole.tokens, parts.tokens);
    }
}
