//! What the recurrent state of a state-space model did while it read: how large its steps were, how long it remembers,
//! how much it holds.

use serde::{Deserialize, Serialize};

/// Readings of one request: over every token that it read or wrote and that stayed, those of a snapshot left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SsmReading {
    /// How many tokens.
    pub tokens: u64,
    /// First layer first.
    pub layers: Vec<LayerReading>,
}

/// Readings of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LayerReading {
    /// Mean of Δ over channels (Mamba-2: heads) and tokens, after the softplus and before any gain.
    pub delta: f64,
    /// The same where it decays the state: times `g_delta` · `g_decay`.
    pub delta_decay: f64,
    /// The same where it writes to the state: times `g_delta` · `g_write`.
    pub delta_write: f64,
    /// Euclidean norm of the state after the last token.
    pub state_norm: f64,
    /// How long the state remembers.
    pub half_life: HalfLife,
}

/// After how many tokens half of what a number of the state held is gone: ln 2 / (g · Δ̄ · |A|), with Δ̄ the mean of its
/// channel's Δ over the tokens and g the gain on decay. Quantiles over all pairs of channel and state (Mamba-2: over heads).
/// `None` is never: no step, or no decay.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HalfLife {
    /// A tenth of the pairs forget faster, tokens.
    pub p10: Option<f64>,
    /// Half of the pairs do, tokens.
    pub median: Option<f64>,
    /// Nine tenths of the pairs do, tokens.
    pub p90: Option<f64>,
}
