//! Code shared by Mamba-1 and Mamba-2: names of the embedding and head, the convolution before the scan, and the layout
//! of states.

use loom_kernels::{CONV_TAPS_MAX, Rows, causal_conv_silu};
use rayon::prelude::*;

use super::architecture::Segment;
use super::embedding_and_head::EmbeddingNames;
use super::error::LoadError;
use super::linear::layer_of;
use super::network::SequenceMemory;
use super::tensors::{OnCpu, Scope, Storage, TensorSource};

/// Names of the embedding and the final norm. Older files name the table `embedding`.
pub(super) const EMBEDDING_NAMES: EmbeddingNames = EmbeddingNames {
    tables: &["backbone.embeddings.weight", "backbone.embedding.weight"],
    norms: &["backbone.norm_f.weight"],
};

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

    /// Memory of a sequence; its last row is not counted.
    pub(super) fn memory(self) -> SequenceMemory {
        let per_layer = (self.conv as u64).saturating_add(self.ssm as u64);
        SequenceMemory { state: per_layer.saturating_mul(self.layers as u64), cache_per_token: 0 }
    }

    /// Size of a state in bytes, independent of its number of tokens.
    pub(super) fn bytes(self) -> usize {
        size_of::<f32>() * (self.layers * (self.conv + self.ssm) + self.d_model)
    }
}

/// The causal convolution of one layer, depthwise.
pub(super) struct Convolution<S: Storage> {
    /// `[taps, channels]`
    pub(super) weight: S::Vector,
    pub(super) bias: Option<S::Vector>,
    pub(super) taps: usize,
    pub(super) channels: usize,
}

impl<S: Storage> Convolution<S> {
    /// Takes `{prefix}.conv1d` from `scope`.
    pub(super) fn load<T: TensorSource<Storage = S>>(
        scope: &mut Scope<'_, T>,
        prefix: &str,
        [channels, taps]: [usize; 2],
        bias: bool,
    ) -> Result<Self, LoadError> {
        let [weight, bias_name] = ["weight", "bias"].map(|part| format!("{prefix}.conv1d.{part}"));
        let weight = scope.convolution((&weight, "ssm_conv1d.weight"), channels, taps)?;
        let bias = scope.vector_if(bias, (&bias_name, "ssm_conv1d.bias"), &[channels])?;
        Ok(Self { weight, bias, taps, channels })
    }
}

impl Convolution<OnCpu> {
    /// Computes y `[rows, channels]` for every segment from inputs with a row stride, and updates the last inputs of
    /// recurrent layer `index` in the states, which `of` selects.
    pub(super) fn apply<S>(
        &self,
        batch: &mut [Segment<'_, S>],
        of: impl Fn(&mut S) -> &mut SsmState,
        index: usize,
        (mut inputs, stride): (&[f32], usize),
        mut outputs: &mut [f32],
    ) {
        let channels = self.channels;
        let mut tasks = Vec::with_capacity(batch.len());
        for segment in batch {
            let rows = segment.ids.len();
            let u = inputs;
            // The rows of the last segment may be shorter than the stride.
            inputs = inputs.split_at(inputs.len().min(rows * stride)).1;
            let y = outputs.split_off_mut(..rows * channels).unwrap_or_default();
            tasks.push((u, layer_of(&mut of(segment.state).conv, index, channels * (self.taps - 1)), y));
        }
        tasks.into_par_iter().for_each(|(u, tail, y)| {
            causal_conv_silu(Rows::new(u, stride), &self.weight, self.bias.as_deref(), self.taps, tail, y);
        });
    }
}

/// Refuses a convolution that is longer than the kernel supports.
pub(super) fn check_taps(taps: usize) -> Result<(), LoadError> {
    if taps <= CONV_TAPS_MAX {
        return Ok(());
    }
    Err(LoadError::Unsupported { what: format!("a convolution over {taps} tokens"), supported: "up to 16".to_owned() })
}
