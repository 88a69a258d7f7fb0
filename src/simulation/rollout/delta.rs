//! Computes the gains of a turn from the configuration's Δ policy.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::foundation::base::Digest;
use crate::foundation::base::limits::CONFIG_BYTES_MAX;
use crate::foundation::chat::{DeltaGains, LayerGains, ModelInfo};
use crate::foundation::store::read_text;
use crate::governance::regulator::{Signals, delta_gains};
use crate::simulation::persona::{DeltaPolicy, PersonaConfig};

/// One gain per layer, fitted to one model: the file that `loom delta calibrate` writes. Its `delta` is a section of a
/// persona config, which can also name the file (`delta: {policy: fixed, file: PATH}`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedGains {
    /// The section.
    pub delta: FittedSection,
    /// What it was fitted to.
    pub fitted: FittedTo,
}

/// The `delta` section of a file of fitted gains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedSection {
    /// Always `fixed`.
    pub policy: FittedPolicy,
    /// One entry per layer.
    pub gains: Vec<LayerGains>,
}

/// The policy of fitted gains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FittedPolicy {
    /// The same gains on every turn.
    Fixed,
}

/// The model that gains were fitted to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedTo {
    /// Its name.
    pub model: String,
    /// The digest of its weights, where they are known.
    pub digest: Option<Digest>,
}

impl FittedGains {
    /// For a model.
    pub fn new(model: &ModelInfo, gains: Vec<LayerGains>) -> Self {
        Self {
            delta: FittedSection { policy: FittedPolicy::Fixed, gains },
            fitted: FittedTo { model: model.name.clone(), digest: model.digest },
        }
    }

    /// The text of the file.
    pub fn yaml(&self) -> String {
        let layers = self.delta.gains.iter().map(|gains| {
            let LayerGains { delta, decay, write } = gains;
            format!("    - {{delta: {delta}, decay: {decay}, write: {write}}}\n")
        });
        let layers: String = layers.collect();
        // JSON strings are valid YAML.
        let model = serde_json::Value::from(self.fitted.model.as_str());
        let digest = serde_json::json!(self.fitted.digest.map(|digest| digest.to_string()));
        format!("delta:\n  policy: fixed\n  gains:\n{layers}fitted:\n  model: {model}\n  digest: {digest}\n")
    }

    /// Reads such a file.
    ///
    /// # Errors
    /// [`DeltaError::File`].
    pub fn load(path: &Path) -> Result<Self, DeltaError> {
        let refuse = |why: String| DeltaError::File { path: path.to_owned(), why };
        let text = read_text(path, CONFIG_BYTES_MAX).map_err(|error| refuse(error.to_string()))?;
        let fitted: Self = serde_saphyr::from_str(&text).map_err(|error| refuse(error.to_string()))?;
        let sound = |gain: f32| (0.0..=100.0).contains(&gain);
        let all = fitted.delta.gains.iter();
        if !all.clone().all(|layer| [layer.delta, layer.decay, layer.write].into_iter().all(sound)) {
            return Err(refuse("a gain lies outside [0, 100]".to_owned()));
        }
        Ok(fitted)
    }

    /// Checks that they were fitted to `model`: the same weights if a digest is known, otherwise the same name.
    fn hold_for(&self, model: &ModelInfo) -> Result<(), DeltaError> {
        let FittedTo { model: name, digest } = &self.fitted;
        let told = |name: &str, digest: Option<Digest>| {
            digest.map_or_else(|| name.to_owned(), |digest| format!("{name} ({})", digest.short()))
        };
        let same =
            if digest.is_some() || model.digest.is_some() { *digest == model.digest } else { *name == model.name };
        let other = || DeltaError::OtherModel { fitted: told(name, *digest), model: told(&model.name, model.digest) };
        if same { Ok(()) } else { Err(other()) }
    }
}

/// The gains of the file that `config` names, if it names one.
pub(super) fn named_file(config: &PersonaConfig) -> Result<Option<FittedGains>, DeltaError> {
    let DeltaPolicy::Fitted(file) = &config.delta else { return Ok(None) };
    let beside = Path::new(&config.source).parent().unwrap_or_else(|| Path::new(""));
    FittedGains::load(&beside.join(file)).map(Some)
}

/// The policy with the file's gains instead of its name. Without them (a replay uses the recorded gains) the name is
/// retained.
pub(super) fn resolved(
    policy: &DeltaPolicy,
    fitted: Option<&FittedGains>,
    model: &ModelInfo,
) -> Result<DeltaPolicy, DeltaError> {
    let policy = match (policy, fitted) {
        (DeltaPolicy::Fitted(_), Some(fitted)) => {
            fitted.hold_for(model)?;
            DeltaPolicy::Fixed(DeltaGains::PerLayer(fitted.delta.gains.clone()))
        }
        (policy, _) => policy.clone(),
    };
    check(&policy, model)?;
    Ok(policy)
}

/// Why a Δ policy cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeltaError {
    /// The model has no Δ.
    #[error(
        "the configuration modulates Δ (`delta.policy`), which model `{0}` does not support; use a Mamba model for the \
         persona (`--persona-model bundled`) or set `delta: {{policy: off}}`"
    )]
    Unsupported(String),
    /// The policy names layers that the model does not have.
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
    #[error("the configuration's `delta` acts by layer, but the number of layers of model `{0}` is not known")]
    LayersUnknown(String),
    /// A file of fitted gains cannot be read.
    #[error("`delta.file` names {}, which is not a file of fitted gains: {why}; `loom delta calibrate` writes one", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Gains were fitted to another model.
    #[error(
        "`delta.file` holds gains that were fitted to {fitted}, and the persona's model is {model}: fit them to it (`loom \
         delta calibrate --model …`), or write them as `gains` to use them all the same"
    )]
    OtherModel {
        /// Which, with its digest.
        fitted: String,
        /// The persona's, with its digest.
        model: String,
    },
}

/// Whether `policy` can be applied to `model`.
fn check(policy: &DeltaPolicy, model: &ModelInfo) -> Result<(), DeltaError> {
    let named = match policy {
        DeltaPolicy::Off => return Ok(()),
        DeltaPolicy::Fixed(DeltaGains::PerLayer(layers)) => Some((layers.len(), format!("{} layers", layers.len()))),
        DeltaPolicy::Trajectory { layers: Some(layers), .. } => {
            layers.iter().max().map(|&layer| (layer, format!("layer {layer}")))
        }
        DeltaPolicy::Fixed(_) | DeltaPolicy::Fitted(_) | DeltaPolicy::Trajectory { .. } | DeltaPolicy::Regulator(_) => {
            None
        }
    };
    if !model.delta {
        return Err(DeltaError::Unsupported(model.name.clone()));
    }
    if named.is_none() && !matches!(policy, DeltaPolicy::Regulator(_)) {
        return Ok(());
    }
    let layers = model.layers.ok_or_else(|| DeltaError::LayersUnknown(model.name.clone()))?;
    let Some((number, named)) = named else { return Ok(()) };
    let fits = if matches!(policy, DeltaPolicy::Fixed(_)) { number == layers } else { number < layers };
    if fits { Ok(()) } else { Err(DeltaError::Layers { named, model: model.name.clone(), layers }) }
}

/// The gains of a turn with the prescribed `intensities` and the regulator's `signals` before it; `None` is no modulation.
pub(super) fn gains(
    policy: &DeltaPolicy,
    config: &PersonaConfig,
    intensities: &[(String, f64)],
    signals: &Signals,
    model: &ModelInfo,
) -> Option<DeltaGains> {
    match policy {
        // A file name remains only in a replay, which uses the recorded gains.
        DeltaPolicy::Off | DeltaPolicy::Fitted(_) => None,
        DeltaPolicy::Fixed(gains) => Some(gains.clone()),
        DeltaPolicy::Regulator(settings) => Some(delta_gains(signals, model.layers?, settings)),
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
    use crate::governance::regulator::DeltaSettings;

    #[test]
    fn fitted_gains_round_trip_and_apply_only_to_their_model() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fit: 1.yaml");
        let gains = vec![LayerGains { delta: 0.5, decay: 1.0, write: 1.25 }; 2];
        let model = |name: &str, weights: Option<&str>| ModelInfo {
            name: name.to_owned(),
            digest: weights.map(Digest::of),
            layers: Some(2),
            delta: true,
            ..ModelInfo::default()
        };
        let fitted = FittedGains::new(&model("a: \"b\"", Some("weights")), gains.clone());
        std::fs::write(&path, fitted.yaml()).unwrap();
        assert_eq!(FittedGains::load(&path).as_ref(), Ok(&fitted));
        let policy = DeltaPolicy::Fitted(path.clone());
        let of = |model: &ModelInfo| resolved(&policy, Some(&fitted), model);
        // The weights decide, not the name.
        assert_eq!(of(&model("c", Some("weights"))), Ok(DeltaPolicy::Fixed(DeltaGains::PerLayer(gains))));
        let refused = of(&model("a: \"b\"", Some("others"))).unwrap_err().to_string();
        assert!(refused.contains("were fitted to a: \"b\" ("), "{refused}");
        assert!(matches!(of(&model("a: \"b\"", None)), Err(DeltaError::OtherModel { .. })));
        for damaged in
            ["delta: {policy: fixed, gains: [{delta: -1}]}\nfitted: {model: m, digest: null}", "gains: []", ""]
        {
            std::fs::write(&path, damaged).unwrap();
            assert!(matches!(FittedGains::load(&path), Err(DeltaError::File { .. })), "{damaged}");
        }
    }

    #[test]
    fn a_policy_that_the_model_does_not_support_is_refused() {
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
            (DeltaPolicy::Regulator(DeltaSettings::default()), true),
        ] {
            assert_eq!(check(&policy, &model).is_ok(), fits, "{policy:?}");
        }
        model.layers = None;
        assert_eq!(check(&fixed(6), &model), Err(DeltaError::LayersUnknown("m".to_owned())));
        assert_eq!(
            check(&DeltaPolicy::Regulator(DeltaSettings::default()), &model),
            Err(DeltaError::LayersUnknown("m".to_owned()))
        );
        model.delta = false;
        assert_eq!(check(&trajectory(None), &model), Err(DeltaError::Unsupported("m".to_owned())));
        assert_eq!(check(&DeltaPolicy::Off, &model), Ok(()));
    }
}
