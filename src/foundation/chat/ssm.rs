//! Statistics of a state-space model's recurrent state during one request: step sizes, half-lives, state norms.

use serde::{Deserialize, Serialize};

/// Statistics over all tokens that one request read or generated and that remain in the state; tokens of the snapshot that
/// it continued from are excluded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SsmStats {
    /// Number of tokens.
    pub tokens: u64,
    /// The layers with a recurrent state, first layer first.
    pub layers: Vec<SsmLayerStats>,
}

/// Statistics of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SsmLayerStats {
    /// Index of the layer in the model, from 0.
    pub layer: usize,
    /// Mean of Δ over channels (Mamba-2: heads) and tokens, after the softplus and before any gain.
    pub delta: f64,
    /// The same for the decay: times `g_delta` · `g_decay`.
    pub delta_decay: f64,
    /// The same for the input: times `g_delta` · `g_write`.
    pub delta_write: f64,
    /// Euclidean norm of the state after the last token.
    pub state_norm: f64,
    /// Half-lives of the state.
    pub half_life: HalfLife,
}

/// Half-life of state elements in tokens: ln 2 / (g · Δ̄ · |A|), with Δ̄ the channel's mean Δ over the tokens and g the gain
/// on decay. Quantiles over all pairs of channel and state (Mamba-2: over heads). `None` means infinite: no step, or no
/// decay.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HalfLife {
    /// 10th percentile, tokens.
    pub p10: Option<f64>,
    /// Median, tokens.
    pub median: Option<f64>,
    /// 90th percentile, tokens.
    pub p90: Option<f64>,
}
