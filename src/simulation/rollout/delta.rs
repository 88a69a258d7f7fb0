//! From the configuration's Δ policy to the gains of a turn.

use crate::foundation::chat::{DeltaGains, LayerGains, ModelInfo};
use crate::governance::regulator::{DeltaSettings, Signals, delta_gains};
use crate::simulation::persona::{DeltaPolicy, PersonaConfig};

/// Why a policy cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeltaError {
    /// The model has no Δ.
    #[error(
        "the configuration modulates Δ (`delta.policy`), which model `{0}` does not support; use a Mamba model for the \
         persona (`--persona-model bundled`) or set `delta: {{policy: off}}`"
    )]
    Unsupported(String),
    /// The policy speaks of other layers than the model has.
    #[error("the configuration's `delta` names {named}, but model `{model}` has {layers} layers (0 to {layers} − 1)")]
    Layers {
        /// What it names.
        named: String,
        /// The model.
        model: String,
        /// How many layers the model has.
        layers: usize,
    },
    /// A model whose layers are not known cannot be modulated by layer.
    #[error("the configuration's `delta` acts by layer, but model `{0}` does not tell how many it has")]
    LayersUnknown(String),
}

/// Whether `policy` can be carried out on a model.
pub(super) fn check(policy: &DeltaPolicy, model: &ModelInfo) -> Result<(), DeltaError> {
    let named = match policy {
        DeltaPolicy::Off => return Ok(()),
        DeltaPolicy::Fixed(DeltaGains::PerLayer(layers)) => Some((layers.len(), format!("{} layers", layers.len()))),
        DeltaPolicy::Trajectory { layers: Some(layers), .. } => {
            layers.iter().max().map(|&layer| (layer, format!("layer {layer}")))
        }
        DeltaPolicy::Fixed(_) | DeltaPolicy::Trajectory { .. } | DeltaPolicy::Regulator => None,
    };
    if !model.delta {
        return Err(DeltaError::Unsupported(model.name.clone()));
    }
    if named.is_none() && *policy != DeltaPolicy::Regulator {
        return Ok(());
    }
    let layers = model.layers.ok_or_else(|| DeltaError::LayersUnknown(model.name.clone()))?;
    let Some((number, named)) = named else { return Ok(()) };
    let fits = if matches!(policy, DeltaPolicy::Fixed(_)) { number == layers } else { number < layers };
    if fits { Ok(()) } else { Err(DeltaError::Layers { named, model: model.name.clone(), layers }) }
}

/// The gains of a turn with the prescribed `intensities`, before which the persona's regulator read `signals`; `None` is no
/// modulation.
pub(super) fn gains(
    config: &PersonaConfig,
    intensities: &[(String, f64)],
    signals: &Signals,
    model: &ModelInfo,
) -> Option<DeltaGains> {
    match &config.delta {
        DeltaPolicy::Off => None,
        DeltaPolicy::Fixed(gains) => Some(gains.clone()),
        DeltaPolicy::Regulator => Some(delta_gains(signals, model.layers?, &DeltaSettings::default())),
        DeltaPolicy::Trajectory { dimension, low, high, layers } => {
            let (_, value) = intensities.iter().find(|(name, _)| name == dimension)?;
            let bounds = config.trajectory.dimensions.iter().find(|candidate| candidate.name == *dimension)?;
            let width = bounds.max - bounds.min;
            let share = if width > 0.0 { ((value - bounds.min) / width) as f32 } else { 0.0 };
            let between = LayerGains {
                delta: low.delta + share * (high.delta - low.delta),
                decay: low.decay + share * (high.decay - low.decay),
                write: low.write + share * (high.write - low.write),
            };
            Some(match layers {
                None => DeltaGains::Uniform(between),
                Some(chosen) => {
                    let layer = |index| if chosen.contains(&index) { between } else { LayerGains::ONE };
                    DeltaGains::PerLayer((0..model.layers?).map(layer).collect())
                }
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_the_model_cannot_carry_out_is_refused_before_the_run() {
        let mut model = ModelInfo { name: "m".to_owned(), layers: Some(6), delta: true, ..ModelInfo::default() };
        let trajectory = |layers| DeltaPolicy::Trajectory {
            dimension: "distress".to_owned(),
            low: LayerGains::ONE,
            high: LayerGains::ONE,
            layers,
        };
        let fixed = |layers| DeltaPolicy::Fixed(DeltaGains::PerLayer(vec![LayerGains::ONE; layers]));
        for (policy, fits) in [
            (DeltaPolicy::Off, true),
            (trajectory(None), true),
            (trajectory(Some(vec![0, 5])), true),
            (trajectory(Some(vec![6])), false),
            (fixed(6), true),
            (fixed(5), false),
            (DeltaPolicy::Regulator, true),
        ] {
            assert_eq!(check(&policy, &model).is_ok(), fits, "{policy:?}");
        }
        model.layers = None;
        assert_eq!(check(&fixed(6), &model), Err(DeltaError::LayersUnknown("m".to_owned())));
        assert_eq!(check(&DeltaPolicy::Regulator, &model), Err(DeltaError::LayersUnknown("m".to_owned())));
        model.delta = false;
        assert_eq!(check(&trajectory(None), &model), Err(DeltaError::Unsupported("m".to_owned())));
        assert_eq!(check(&DeltaPolicy::Off, &model), Ok(()));
    }
}
