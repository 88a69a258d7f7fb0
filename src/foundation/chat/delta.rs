//! Gains on a state-space model's discretisation step Δ.

use serde::{Deserialize, Serialize};

/// The three gains of one layer, dimensionless, applied after the softplus: with Δ = softplus(`dt_proj`(x) + bias),
/// the state is multiplied by exp(`delta`·`decay`·Δ·A) and `delta`·`write`·Δ·B·x is added to it.
///
/// Three, because one gain on Δ confounds how fast the model forgets with how much it writes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerGains {
    /// Multiplies both effects.
    #[serde(default = "one")]
    pub delta: f32,
    /// Multiplies the decay only (Δ·A).
    #[serde(default = "one")]
    pub decay: f32,
    /// Multiplies the input only (Δ·B).
    #[serde(default = "one")]
    pub write: f32,
}

const fn one() -> f32 {
    1.0
}

impl LayerGains {
    /// No modulation.
    pub const ONE: Self = Self { delta: 1.0, decay: 1.0, write: 1.0 };

    /// The factor on Δ where it meets A.
    pub fn on_decay(self) -> f32 {
        self.delta * self.decay
    }

    /// The factor on Δ where it meets B.
    pub fn on_write(self) -> f32 {
        self.delta * self.write
    }
}

impl Default for LayerGains {
    fn default() -> Self {
        Self::ONE
    }
}

/// Gains for all layers of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DeltaGains {
    /// The same in every layer.
    Uniform(LayerGains),
    /// One entry per layer, first layer first; a model with a different number of layers rejects them.
    PerLayer(Vec<LayerGains>),
}

impl DeltaGains {
    /// The gains of layer `index`; `None` past the end of a per-layer list.
    pub fn layer(&self, index: usize) -> Option<LayerGains> {
        match self {
            Self::Uniform(gains) => Some(*gains),
            Self::PerLayer(layers) => layers.get(index).copied(),
        }
    }
}
