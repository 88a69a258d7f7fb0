//! What Mamba-1 and Mamba-2 share: where their ends are, the convolution in front of the scan, the layout of states.

use loom_kernels::{CONV_TAPS_MAX, Rows, causal_conv_silu};
use rayon::prelude::*;

use super::ends::{Ends, EndsConfig};
use super::linear::Part;
use super::weights::Weights;
use super::{LoadError, Segment};

/// What a recurrent network keeps of a sequence, all layers in one piece each.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SsmState {
    /// The convolutions' last inputs, `[layers, d_conv − 1, channels]`.
    pub(super) conv: Vec<f32>,
    /// The recurrent states, layer by layer.
    pub(super) ssm: Vec<f32>,
    /// The residual stream after the last layer at the last token, `[d_model]`: what the head makes logits of.
    pub(super) last: Vec<f32>,
}

/// How long the parts of a state are: what a fresh one is made of, and what one costs.
#[derive(Clone, Copy)]
pub(super) struct StateDims {
    pub(super) layers: usize,
    /// Of one layer: the convolution's last inputs, and the recurrent state.
    pub(super) conv: usize,
    pub(super) ssm: usize,
    pub(super) d_model: usize,
}

impl StateDims {
    /// The state before the first token.
    pub(super) fn start(self) -> SsmState {
        let Self { layers, conv, ssm, d_model } = self;
        SsmState { conv: vec![0.0; layers * conv], ssm: vec![0.0; layers * ssm], last: vec![0.0; d_model] }
    }

    /// Bytes of a state, however much it has read.
    pub(super) fn bytes(self) -> usize {
        size_of::<f32>() * (self.layers * (self.conv + self.ssm) + self.d_model)
    }
}

/// The causal convolution of one layer, depthwise.
pub(super) struct Convolution {
    /// `[taps, channels]`
    pub(super) weight: Vec<f32>,
    pub(super) bias: Option<Vec<f32>>,
    pub(super) taps: usize,
}

impl Convolution {
    /// `conv1d` of `part`, whose weight files keep as `[channels, 1, taps]`.
    pub(super) fn load(part: &mut Part<'_, '_>, channels: usize, taps: usize, bias: bool) -> Result<Self, LoadError> {
        let weight = part.take("mixer.conv1d.weight", &[channels, 1, taps])?;
        let bias = part.take_if(bias, "mixer.conv1d.bias", &[channels])?;
        Ok(Self { weight: transposed(&weight, taps), bias, taps })
    }

    fn channels(&self) -> usize {
        self.weight.len() / self.taps
    }

    /// y `[rows, channels]` of every segment, from inputs that lie `stride` apart; the tails in layer `index` move on.
    pub(super) fn apply(
        &self,
        batch: &mut [Segment<'_, SsmState>],
        index: usize,
        mut inputs: &[f32],
        stride: usize,
        mut outputs: &mut [f32],
    ) {
        let channels = self.channels();
        let mut tasks = Vec::with_capacity(batch.len());
        for segment in batch {
            let rows = segment.ids.len();
            let u = inputs;
            // The last segment's rows may end before their stride does.
            inputs = inputs.split_at(inputs.len().min(rows * stride)).1;
            let y = outputs.split_off_mut(..rows * channels).unwrap_or_default();
            tasks.push((u, layer_of(&mut segment.state.conv, index, channels * (self.taps - 1)), y));
        }
        tasks.into_par_iter().for_each(|(u, tail, y)| {
            causal_conv_silu(Rows::new(u, stride), &self.weight, self.bias.as_deref(), self.taps, tail, y);
        });
    }
}

/// Rows of `width` numbers as columns.
fn transposed(x: &[f32], width: usize) -> Vec<f32> {
    (0..width).flat_map(|column| x.iter().skip(column).step_by(width)).copied().collect()
}

/// The part of a state that belongs to layer `index`, `len` numbers a layer.
pub(super) fn layer_of<T>(state: &mut [T], index: usize, len: usize) -> &mut [T] {
    state.split_at_mut(index * len).1.split_at_mut(len).0
}

/// The ends of a network whose tensors lie under `backbone.`.
pub(super) fn ends(
    weights: &mut Weights<'_>,
    vocabulary: usize,
    d_model: usize,
    norm_epsilon: f32,
    tied: bool,
) -> Result<Ends, LoadError> {
    // Older files call the table `embedding`.
    let names = ["backbone.embeddings.weight", "backbone.embedding.weight"];
    let table = names.into_iter().find(|name| weights.has(name)).unwrap_or("backbone.embeddings.weight");
    Ends::load(&EndsConfig { table, norm: "backbone.norm_f.weight", vocabulary, d_model, norm_epsilon, tied }, weights)
}

/// Refuses a convolution longer than the kernel serves.
pub(super) fn check_taps(taps: usize) -> Result<(), LoadError> {
    if taps <= CONV_TAPS_MAX {
        return Ok(());
    }
    Err(LoadError::Unsupported { what: format!("a convolution over {taps} tokens"), supported: "up to 16" })
}
