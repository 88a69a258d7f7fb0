//! Gains on Δ in a request: `{"g_delta": 0.8, "g_decay": 1, "g_write": 1, "layers": [0, 2]}`.

use serde::Deserialize;

use crate::foundation::chat::{DeltaGains, LayerGains, ModelInfo};

/// Gains for all layers, or for some.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::app) struct Gains {
    /// Gain on both effects of Δ.
    #[serde(default = "one")]
    pub(in crate::app) g_delta: f32,
    /// Gain on the decay.
    #[serde(default = "one")]
    pub(in crate::app) g_decay: f32,
    /// Gain on the write.
    #[serde(default = "one")]
    pub(in crate::app) g_write: f32,
    /// The layers, from 0; all if absent. The other layers keep their Δ.
    pub(in crate::app) layers: Option<Vec<usize>>,
}

const fn one() -> f32 {
    1.0
}

impl Gains {
    /// The gains in the form of this model.
    ///
    /// # Errors
    /// A message if the model supports no gains, or has no such layer.
    pub(in crate::app) fn on(&self, model: &ModelInfo) -> Result<DeltaGains, String> {
        if !model.delta {
            return Err(format!("model `{}` has no Δ: gains need a Mamba", model.name));
        }
        let gains = LayerGains { delta: self.g_delta, decay: self.g_decay, write: self.g_write };
        let Some(named) = &self.layers else { return Ok(DeltaGains::Uniform(gains)) };
        let count = model.layers.unwrap_or_default();
        if let Some(layer) = named.iter().find(|&&layer| layer >= count) {
            return Err(format!(
                "there is no layer {layer}: model `{}` has layers 0 to {}",
                model.name,
                count.max(1) - 1
            ));
        }
        let of = |layer| if named.contains(&layer) { gains } else { LayerGains::ONE };
        Ok(DeltaGains::PerLayer((0..count).map(of).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expected: Result<DeltaGains, &str>) {
        let mut info = ModelInfo { layers: Some(3), delta: true, ..ModelInfo::default() };
        "m".clone_into(&mut info.name);
        let gains: Gains = serde_json::from_str(json).unwrap();
        assert_eq!(gains.on(&info), expected.map_err(str::to_owned), "{json}");
    }

    #[test]
    fn gains_apply_to_the_named_layers_only() {
        let half = LayerGains { delta: 0.5, ..LayerGains::ONE };
        check(r#"{"g_delta": 0.5}"#, Ok(DeltaGains::Uniform(half)));
        let one = LayerGains::ONE;
        check(r#"{"g_delta": 0.5, "layers": [1]}"#, Ok(DeltaGains::PerLayer(vec![one, half, one])));
        check(r#"{"layers": [3]}"#, Err("there is no layer 3: model `m` has layers 0 to 2"));
        assert!(serde_json::from_str::<Gains>(r#"{"delta": 1}"#).unwrap_err().to_string().contains("unknown field"));
    }
}
