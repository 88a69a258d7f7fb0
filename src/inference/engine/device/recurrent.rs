//! What both Mambas have on a GPU: convolutions, slots with their states, and a batch under each layer's gains.

use loom_kernels::cuda::{Batch, Buffer, Gpu, GpuConv, GpuError, Sequence, View};

use super::super::Segment;
use super::super::recurrent::{Convolution, StateDims, transposed};
use super::network::GpuState;
use super::weights::maybe;
use crate::foundation::chat::{DeltaGains, LayerGains};

/// Longest convolution of the kernel, tokens.
pub(super) const TAPS_MAX: usize = 8;

/// What one layer keeps of all sequences.
pub(super) struct Slots {
    /// `[slots, channels, taps − 1]`
    tails: Buffer<f32>,
    /// `[slots, ssm]`
    pub(super) states: Buffer<f32>,
}

impl Slots {
    pub(super) fn new(gpu: &Gpu, dims: StateDims, slots: usize) -> Result<Self, GpuError> {
        Ok(Self { tails: gpu.zeros(slots * dims.conv)?, states: gpu.zeros(slots * dims.ssm)? })
    }
}

/// The causal convolution of one layer, depthwise.
pub(super) struct Conv {
    weight: Buffer<f32>,
    bias: Option<Buffer<f32>>,
    channels: usize,
    taps: usize,
}

impl Conv {
    pub(super) fn new(gpu: &Gpu, conv: &Convolution) -> Result<Self, GpuError> {
        let channels = conv.weight.len() / conv.taps;
        // The kernel has the taps of a channel side by side.
        let weight = gpu.upload(&transposed(&conv.weight, channels))?;
        Ok(Self { weight, bias: maybe(gpu, conv.bias.as_deref())?, channels, taps: conv.taps })
    }

    /// y `[rows, channels]` out of inputs that lie `stride` apart.
    pub(super) fn apply(
        &self,
        gpu: &Gpu,
        batch: &Batch,
        slots: &Slots,
        inputs: (View<'_, f32>, usize),
        y: View<'_, f32>,
    ) -> Result<(), GpuError> {
        let bias = self.bias.as_ref().map(Buffer::view);
        let conv = GpuConv { weight: self.weight.view(), bias, channels: self.channels, taps: self.taps };
        gpu.conv_silu(batch, &conv, inputs, slots.tails.view(), y)
    }
}

/// The sequences of a pass, and under gains wherever a layer has some.
pub(super) struct Plan {
    plain: Batch,
    modulated: Vec<Option<Batch>>,
}

impl Plan {
    pub(super) fn new(
        gpu: &Gpu,
        batch: &[Segment<'_, GpuState<()>>],
        sequences: &[Sequence],
        layers: usize,
        slots: usize,
    ) -> Result<Self, GpuError> {
        let plain = Batch::new(gpu, sequences, slots)?;
        let modulated = (0..layers).map(|index| {
            let gains = batch.iter().map(|segment| segment.gains.and_then(|gains| gains.layer(index)));
            let gains: Vec<_> = gains.map(|gains| gains.unwrap_or(LayerGains::ONE)).collect();
            if gains.iter().all(|gains| *gains == LayerGains::ONE) {
                return Ok(None);
            }
            let gains: Vec<_> = gains.iter().map(|gains| (gains.on_decay(), gains.on_write())).collect();
            plain.under(gpu, &gains).map(Some)
        });
        let modulated = modulated.collect::<Result<_, _>>()?;
        Ok(Self { plain, modulated })
    }

    /// Room for steps of up to `rows` sequences.
    pub(super) fn room(gpu: &Gpu, rows: usize, slots: usize) -> Result<Self, GpuError> {
        Ok(Self { plain: Batch::room(gpu, rows, slots)?, modulated: Vec::new() })
    }

    /// Puts a step there; none under gains, which every layer would have to be told of.
    pub(super) fn tell(
        &mut self,
        batch: &[Segment<'_, GpuState<()>>],
        sequences: &[Sequence],
        layers: usize,
        rows: usize,
    ) -> Result<Option<usize>, GpuError> {
        let plain = |gains: &DeltaGains| {
            (0..layers).all(|index| gains.layer(index).is_none_or(|gains| gains == LayerGains::ONE))
        };
        if !batch.iter().filter_map(|segment| segment.gains).all(plain) {
            return Ok(None);
        }
        self.plain.set(sequences, rows)?;
        Ok(Some(0))
    }

    /// The batch as layer `index` sees it.
    pub(super) fn at(&self, index: usize) -> &Batch {
        self.modulated.get(index).and_then(Option::as_ref).unwrap_or(&self.plain)
    }
}
