//! Mixtures of experts (Shazeer et al. 2017, arXiv:1701.06538): a router chooses for each row the experts that compute it.
//!
//! A row's output is the sum over its experts in the order of their indices, so its bits do not depend on the other rows.

use super::super::error::LoadError;
use super::super::tensors::OnCpu;
use super::layer::Experts;
use super::{Activation, ExpertsConfig, Weighting};

/// Buffers of a pass.
#[derive(Default)]
pub(super) struct ExpertScratch {
    /// `[rows, experts]`
    logits: Vec<f32>,
    /// For each expert, the rows that it computes and their weights.
    rows: Vec<Vec<(usize, f32)>>,
    /// The sum of the experts' outputs, `[rows, d_model]`.
    sum: Vec<f32>,
    /// Rows of one expert, `[rows, d_model]` and twice `[rows, d_feed]`.
    h: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
}

impl ExpertsConfig {
    /// Refuses more chosen experts than there are.
    pub(in super::super) fn checked(self) -> Result<Self, LoadError> {
        if (1..=self.count).contains(&self.chosen) {
            return Ok(self);
        }
        let why = format!("it chooses {} experts of each row, but there are {}", self.chosen, self.count);
        Err(LoadError::malformed("config.json", why))
    }

    /// The experts that compute a row, with their weights. Of equal logits, the lower index is chosen first.
    fn route(&self, logits: &[f32]) -> Vec<(usize, f32)> {
        let mut order: Vec<_> = logits.iter().copied().enumerate().collect();
        order.sort_by(|(i, a), (j, b)| b.total_cmp(a).then(i.cmp(j)));
        let most = order.first().map_or(0.0, |(_, logit)| *logit);
        let all: f32 = logits.iter().map(|logit| libm::expf(logit - most)).sum();
        order.truncate(self.chosen);
        let mut chosen: Vec<_> = order.into_iter().map(|(expert, logit)| (expert, libm::expf(logit - most))).collect();
        let sum = match self.weighting {
            Weighting::AmongAll => all,
            Weighting::AmongChosen => chosen.iter().map(|(_, weight)| weight).sum(),
        };
        chosen.iter_mut().for_each(|(_, weight)| *weight /= sum);
        chosen
    }
}

impl Experts<OnCpu> {
    /// Replaces the rows of h by the output.
    pub(super) fn apply(
        &self,
        config: &ExpertsConfig,
        activation: Activation,
        d_model: usize,
        h: &mut [f32],
        scratch: &mut ExpertScratch,
    ) {
        let rows = h.len() / d_model;
        scratch.logits.resize(rows * config.count, 0.0);
        self.router.apply(h, rows, &mut scratch.logits);
        scratch.rows.resize_with(config.count, Vec::new);
        scratch.rows.iter_mut().for_each(Vec::clear);
        for (row, logits) in scratch.logits.chunks_exact(config.count).enumerate() {
            for (expert, weight) in config.route(logits) {
                if let Some(rows) = scratch.rows.get_mut(expert) {
                    rows.push((row, weight));
                }
            }
        }
        scratch.sum.clear();
        scratch.sum.resize(h.len(), 0.0);
        for (expert, rows) in self.each.iter().zip(&scratch.rows).filter(|(_, rows)| !rows.is_empty()) {
            scratch.h.clear();
            let all = h.chunks_exact(d_model);
            rows.iter().for_each(|(row, _)| scratch.h.extend(all.clone().nth(*row).into_iter().flatten()));
            scratch.gate.resize(rows.len() * config.d_feed, 0.0);
            scratch.up.resize(rows.len() * config.d_feed, 0.0);
            let buffers = [&mut *scratch.h, &mut *scratch.gate, &mut *scratch.up];
            expert.apply(activation, config.d_feed, rows.len(), buffers);
            for ((row, weight), out) in rows.iter().zip(scratch.h.chunks_exact(d_model)) {
                let sum = scratch.sum.chunks_exact_mut(d_model).nth(*row).unwrap_or_default();
                sum.iter_mut().zip(out).for_each(|(sum, out)| *sum += out * weight);
            }
        }
        if let (Some(shared), Some(d_shared)) = (&self.shared, config.d_shared) {
            scratch.gate.resize(rows * d_shared, 0.0);
            scratch.up.resize(rows * d_shared, 0.0);
            shared.apply(activation, d_shared, rows, [&mut *h, &mut *scratch.gate, &mut *scratch.up]);
            scratch.sum.iter_mut().zip(&*h).for_each(|(sum, shared)| *sum += shared);
        }
        h.copy_from_slice(&scratch.sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_likely_experts_are_chosen_with_their_probabilities() {
        let check = |weighting, logits: &[f32], want: &[(usize, f32)]| {
            let config = ExpertsConfig { count: 4, chosen: 2, d_feed: 1, d_shared: None, weighting, dense: Vec::new() };
            let chosen = config.route(logits);
            assert_eq!(chosen.len(), want.len());
            for ((expert, weight), (want, likely)) in chosen.iter().zip(want) {
                assert!(expert == want && (weight - likely).abs() < 1e-6, "{logits:?}: {chosen:?}");
            }
        };
        let logits = [0.1f32, 0.2, 0.3, 0.4].map(f32::ln);
        check(Weighting::AmongAll, &logits, &[(3, 0.4), (2, 0.3)]);
        check(Weighting::AmongChosen, &logits, &[(3, 4.0 / 7.0), (2, 3.0 / 7.0)]);
        check(Weighting::AmongAll, &[5.0; 4], &[(0, 0.25), (1, 0.25)]);
        check(Weighting::AmongChosen, &[-200.0, 100.0, -200.0, 99.0], &[(1, 0.731_058_6), (3, 0.268_941_4)]);
    }
}
