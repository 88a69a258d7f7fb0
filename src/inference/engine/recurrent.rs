//! Code shared by Mamba-1 and Mamba-2: names of the embedding and head, the convolution before the scan, and the layout
//! of states.

use loom_kernels::{CONV_TAPS_MAX, Rows, causal_conv_silu};
use rayon::prelude::*;

use super::embedding_and_head::{EmbeddingAndHead, EmbeddingAndHeadConfig};
use super::linear::ScopedWeights;
use super::weights::Weights;
use super::{LoadError, Segment};

/// State of a sequence in a recurrent network; all layers of a part are contiguous.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SsmState {
    /// The convolutions' last inputs, `[layers, d_conv − 1, channels]`.
    pub(super) conv: Vec<f32>,
    /// The recurrent states of all layers.
    pub(super) ssm: Vec<f32>,
    /// The residual stream after the last layer at the last token, `[d_model]`: the input of the head.
    pub(super) last: Vec<f32>,
}

/// Lengths of the parts of a state.
#[derive(Clone, Copy)]
pub(super) struct StateDims {
    pub(super) layers: usize,
    /// Per layer: last inputs of the convolution, and the recurrent state.
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

    /// Size of a state in bytes, independent of its number of tokens.
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
    /// Loads `conv1d` from `scope`; the file stores its weight as `[channels, 1, taps]`.
    pub(super) fn load(
        scope: &mut ScopedWeights<'_, '_>,
        channels: usize,
        taps: usize,
        bias: bool,
    ) -> Result<Self, LoadError> {
        let weight = scope.take("mixer.conv1d.weight", &[channels, 1, taps])?;
        let bias = scope.take_if(bias, "mixer.conv1d.bias", &[channels])?;
        Ok(Self { weight: transposed(&weight, taps), bias, taps })
    }

    fn channels(&self) -> usize {
        self.weight.len() / self.taps
    }

    /// Computes y `[rows, channels]` for every segment from inputs with row stride `stride`, and updates the states'
    /// last inputs of layer `index`.
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
            // The rows of the last segment may be shorter than the stride.
            inputs = inputs.split_at(inputs.len().min(rows * stride)).1;
            let y = outputs.split_off_mut(..rows * channels).unwrap_or_default();
            tasks.push((u, layer_of(&mut segment.state.conv, index, channels * (self.taps - 1)), y));
        }
        tasks.into_par_iter().for_each(|(u, tail, y)| {
            causal_conv_silu(Rows::new(u, stride), &self.weight, self.bias.as_deref(), self.taps, tail, y);
        });
    }
}

/// Transposes a matrix with rows of `width` numbers.
fn transposed(x: &[f32], width: usize) -> Vec<f32> {
    (0..width).flat_map(|column| x.iter().skip(column).step_by(width)).copied().collect()
}

/// The part of a state that belongs to layer `index`; `len` numbers per layer.
pub(super) fn layer_of<T>(state: &mut [T], index: usize, len: usize) -> &mut [T] {
    state.split_at_mut(index * len).1.split_at_mut(len).0
}

/// Embedding and head of a network whose tensors are under `backbone.`.
pub(super) fn embedding_and_head(
    weights: &mut Weights<'_>,
    vocabulary: usize,
    d_model: usize,
    norm_epsilon: f32,
    tied: bool,
) -> Result<EmbeddingAndHead, LoadError> {
    // Older files name the table `embedding`.
    let names = ["backbone.embeddings.weight", "backbone.embedding.weight"];
    let table = names.into_iter().find(|name| weights.has(name)).unwrap_or("backbone.embeddings.weight");
    EmbeddingAndHead::load(
        &EmbeddingAndHeadConfig { table, norm: "backbone.norm_f.weight", vocabulary, d_model, norm_epsilon, tied },
        weights,
    )
}

/// Refuses a convolution that is longer than the kernel supports.
pub(super) fn check_taps(taps: usize) -> Result<(), LoadError> {
    if taps <= CONV_TAPS_MAX {
        return Ok(());
    }
    Err(LoadError::Unsupported { what: format!("a convolution over {taps} tokens"), supported: "up to 16" })
}
