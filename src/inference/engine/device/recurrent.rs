//! What both Mambas have on a GPU: slots with their states, convolutions, and the frame around a layer. A [`Mixer`] is what
//! each has of its own: `mamba.rs`, `mamba2.rs`.

use loom_kernels::cuda::{Batch, Buffer, Gpu, GpuConv, GpuError, Sequence, View};

use super::super::Segment;
use super::super::recurrent::{Convolution, StateDims};
use super::super::steps::Steps;
use super::memory::Needs;
use super::network::{Body, GpuState, Stream};
use super::plan::Plan;
use super::weights::maybe;
use crate::foundation::chat::{DeltaGains, SsmReading};

/// Longest convolution of the kernel, tokens.
pub(super) const TAPS_MAX: usize = 8;

/// What one kind of Mamba has of its own: its dims, its layers and the buffers of a pass.
pub(super) trait Mixer: Send + Sync + 'static {
    type Layer: Send + Sync;
    type Pass: Send + Sync;

    fn dims(&self) -> StateDims;

    /// Steps Δ of a layer at one token.
    fn channels(&self) -> usize;

    /// Numbers in a row of a pass.
    fn width(&self) -> usize;

    fn pass(&self, gpu: &Gpu, rows: usize) -> Result<Self::Pass, GpuError>;

    /// −exp(`A_log`), `[channels, …]`.
    fn decay(layer: &Self::Layer) -> &Buffer<f32>;

    /// As [`Body::layer`]; the layer comes with its number.
    fn layer(
        &self,
        gpu: &Gpu,
        layer: (usize, &Self::Layer),
        slots: &Slots,
        pass: &Self::Pass,
        plan: &Plan,
        stream: &Stream<'_>,
    ) -> Result<(), GpuError>;
}

pub(super) struct Recurrent<M: Mixer> {
    mixer: M,
    layers: Vec<M::Layer>,
    slots: Vec<Slots>,
    count: usize,
    pass: M::Pass,
}

/// What one layer keeps of all sequences.
pub(super) struct Slots {
    /// `[slots, taps − 1, channels]`
    tails: Buffer<f32>,
    /// `[slots, ssm]`
    pub(super) states: Buffer<f32>,
}

impl Slots {
    fn new(gpu: &Gpu, dims: StateDims, slots: usize) -> Result<Self, GpuError> {
        Ok(Self { tails: gpu.zeros(slots * dims.conv)?, states: gpu.zeros(slots * dims.ssm)? })
    }
}

impl<M: Mixer> Recurrent<M> {
    pub(super) fn new(gpu: &Gpu, mixer: M, layers: Vec<M::Layer>) -> Result<Self, GpuError> {
        let pass = mixer.pass(gpu, 0)?;
        Ok(Self { mixer, layers, slots: Vec::new(), count: 0, pass })
    }
}

impl<M: Mixer> Body for Recurrent<M> {
    const DELTA: bool = true;

    type Rest = ();

    type Plan = Plan;

    fn layers(&self) -> usize {
        self.layers.len()
    }

    fn window(&self) -> Option<usize> {
        None
    }

    fn needs(&self) -> Needs {
        let dims = self.mixer.dims();
        let slot = size_of::<f32>() * dims.layers * (dims.conv + dims.ssm);
        Needs { slot, page: 0, longest: 0, row: size_of::<f32>() * self.mixer.width(), fixed: 0 }
    }

    fn settle(&mut self, gpu: &Gpu, rows: usize, slots: usize, _: usize) -> Result<(), GpuError> {
        let dims = self.mixer.dims();
        self.slots = self.layers.iter().map(|_| Slots::new(gpu, dims, slots)).collect::<Result<_, _>>()?;
        self.count = slots;
        self.pass = self.mixer.pass(gpu, rows)?;
        Ok(())
    }

    fn grow(&self, _: &Gpu, _: &mut [Segment<'_, GpuState<()>>]) -> Result<(), GpuError> {
        Ok(())
    }

    fn plan(&self, gpu: &Gpu, batch: &[Segment<'_, GpuState<()>>], sequences: &[Sequence]) -> Result<Plan, GpuError> {
        Plan::new(gpu, batch, sequences, self.count, [self.layers.len(), self.mixer.channels()])
    }

    fn room(&self, gpu: &Gpu, rows: usize) -> Result<Plan, GpuError> {
        Plan::room(gpu, rows, self.count)
    }

    fn tell(
        &self,
        plan: &mut Plan,
        batch: &[Segment<'_, GpuState<()>>],
        sequences: &[Sequence],
        rows: usize,
    ) -> Result<Option<usize>, GpuError> {
        plan.tell(batch, sequences, self.layers.len(), rows)
    }

    fn layer(&self, gpu: &Gpu, index: usize, plan: &Plan, stream: &Stream<'_>) -> Result<(), GpuError> {
        let (Some(layer), Some(slots)) = (self.layers.get(index), self.slots.get(index)) else { return Ok(()) };
        self.mixer.layer(gpu, (index, layer), slots, &self.pass, plan, stream)
    }

    fn look_on(&self, plan: &Plan, batch: &mut [Segment<'_, GpuState<()>>]) -> Result<(), GpuError> {
        plan.look_on(batch)
    }

    fn look(
        &self,
        gpu: &Gpu,
        slot: usize,
        steps: &Steps,
        gains: Option<&DeltaGains>,
    ) -> Result<Option<SsmReading>, GpuError> {
        let len = self.mixer.dims().ssm;
        let down = |view: View<'_, f32>, len: usize| {
            let mut values = vec![0.0; len];
            gpu.read(view, &mut values).map(|()| values)
        };
        let layers = self.layers.iter().zip(&self.slots).map(|(layer, slots)| {
            let decay = M::decay(layer);
            Ok((down(decay.view(), decay.len())?, down(slots.states.part(slot * len, len), len)?))
        });
        let layers = layers.collect::<Result<Vec<_>, GpuError>>()?;
        Ok(Some(steps.reading(layers.iter().map(|(a, state)| (a.as_slice(), state.as_slice())), gains)))
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
        Ok(Self {
            weight: gpu.upload(&conv.weight)?,
            bias: maybe(gpu, conv.bias.as_deref())?,
            channels,
            taps: conv.taps,
        })
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
