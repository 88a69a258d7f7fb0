//! Maps the regulatory signals to gains on a state-space model's Δ: a pure, bounded function.
//!
//! | Signal | Rises because | Effect |
//! |---|---|---|
//! | output-entropy trajectory | the model becomes uncertain, the user corrects | more is written to the state (`write` up), more is forgotten (`decay` up) |
//! | budget depletion | money or tokens run out | less is written (`write` down) |
//! | lack of confidence | the tokens were unlikely | less is forgotten (`decay` down) |
//!
//! Each effect is a factor e^(strength · signal): effects multiply, no signal is exactly one, and the scale is symmetric.
//! Effects grow linearly with depth, from none in the first layer to full in the last, since later layers carry meaning
//! rather than spelling. This is an experimental policy; all strengths zero turn it off.

use serde::{Deserialize, Serialize};

use super::signals::Signals;
use crate::foundation::chat::{DeltaGains, LayerGains};

/// Strength of each signal's effect on Δ.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeltaSettings {
    /// ln of the factor on writing at a full entropy trajectory.
    pub trajectory_write: f32,
    /// ln of the factor on forgetting at a full entropy trajectory.
    pub trajectory_decay: f32,
    /// Minus ln of the factor on writing at an exhausted budget.
    pub budget_write: f32,
    /// Minus ln of the factor on forgetting without any confidence.
    pub doubt_decay: f32,
    /// Lowest gain.
    pub min: f32,
    /// Highest gain.
    pub max: f32,
}

impl Default for DeltaSettings {
    fn default() -> Self {
        Self {
            trajectory_write: 0.15,
            trajectory_decay: 0.10,
            budget_write: 0.10,
            doubt_decay: 0.15,
            min: 0.8,
            max: 1.25,
        }
    }
}

/// The gains for the next turn of a model with `layers` layers, each in [`min`, `max`] of the settings. Signals that are
/// `None` have no effect. A single layer gets the full effect.
pub fn delta_gains(signals: &Signals, layers: usize, settings: &DeltaSettings) -> DeltaGains {
    let trajectory = signals.entropy_trajectory as f32;
    let depleted = signals.budget_depletion.unwrap_or(0.0) as f32;
    let doubt = signals.confidence.map_or(0.0, |confidence| 1.0 - confidence as f32);
    let write = settings.trajectory_write * trajectory - settings.budget_write * depleted;
    let decay = settings.trajectory_decay * trajectory - settings.doubt_decay * doubt;
    let gain = |effect: f32, depth: f32| {
        let gain = libm::expf(effect * depth);
        // An invalid setting has no effect.
        if gain.is_finite() { gain.max(settings.min).min(settings.max) } else { 1.0 }
    };
    let depth = |layer: usize| if layers > 1 { layer as f32 / (layers - 1) as f32 } else { 1.0 };
    DeltaGains::PerLayer(
        (0..layers)
            .map(depth)
            .map(|depth| LayerGains { delta: 1.0, decay: gain(decay, depth), write: gain(write, depth) })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signals(trajectory: f64, depleted: Option<f64>, confidence: Option<f64>) -> Signals {
        Signals { entropy_trajectory: trajectory, budget_depletion: depleted, confidence, ..Signals::default() }
    }

    fn layers(signals: &Signals, settings: &DeltaSettings) -> Vec<LayerGains> {
        match delta_gains(signals, 3, settings) {
            DeltaGains::PerLayer(layers) => layers,
            DeltaGains::Uniform(_) => panic!("per layer"),
        }
    }

    #[test]
    fn no_signal_is_exactly_no_modulation() {
        let quiet = signals(0.0, None, None);
        assert_eq!(layers(&quiet, &DeltaSettings::default()), [LayerGains::ONE; 3]);
        assert_eq!(layers(&signals(0.0, Some(0.0), Some(1.0)), &DeltaSettings::default()), [LayerGains::ONE; 3]);
    }

    #[test]
    fn each_signal_has_the_documented_effect_and_more_in_later_layers() {
        let of = |trajectory, depleted, confidence| {
            layers(&signals(trajectory, depleted, confidence), &DeltaSettings::default())
        };
        let unsure = of(1.0, None, None);
        assert!(unsure[2].write > unsure[1].write && unsure[1].write > 1.0 && unsure[2].decay > 1.0);
        assert_eq!(unsure[0], LayerGains::ONE);
        let broke = of(0.0, Some(1.0), None);
        assert!(broke[2].write < 1.0 && broke[2].decay.to_bits() == 1f32.to_bits());
        let doubtful = of(0.0, None, Some(0.0));
        assert!(doubtful[2].decay < 1.0 && doubtful[2].write.to_bits() == 1f32.to_bits());
        assert!(doubtful.iter().all(|gains| gains.delta.to_bits() == 1f32.to_bits()));
    }

    #[test]
    fn gains_stay_within_bounds_whatever_the_settings() {
        for strength in [100.0, -100.0, f32::NAN, f32::INFINITY] {
            let settings =
                DeltaSettings { trajectory_write: strength, doubt_decay: strength, ..DeltaSettings::default() };
            for gains in layers(&signals(1.0, Some(1.0), Some(0.0)), &settings) {
                assert!((0.8..=1.25).contains(&gains.write) && (0.8..=1.25).contains(&gains.decay), "{gains:?}");
            }
        }
        assert_eq!(delta_gains(&signals(1.0, None, None), 0, &DeltaSettings::default()), DeltaGains::PerLayer(vec![]));
    }
}
