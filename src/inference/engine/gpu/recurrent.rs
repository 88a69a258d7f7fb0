//! Code shared by both Mambas on a GPU: slots with states, convolutions, and the frame around a layer. The differences
//! are a [`Mixer`]: `mamba.rs`, `mamba2.rs`.

use loom_kernels::cuda::{Buffer, Gpu, GpuConv, GpuError, SequenceBatch, SequenceRows, View};

use super::super::architecture::Segment;
use super::super::recurrent::{Convolution, StateDims};
use super::super::steps::Steps;
use super::layers::{GpuLayers, GpuState, ResidualStream};
use super::memory::MemoryNeeds;
use super::plan::PassPlan;
use super::weights::OnGpu;
use crate::foundation::chat::{DeltaGains, SsmStats};

/// Longest convolution that the kernel supports, tokens.
pub(super) const TAPS_MAX: usize = 8;

/// What is specific to a kind of Mamba: dims, layers, and the buffers of a pass.
pub(in super::super) trait Mixer: Send + Sync + 'static {
    type Layer: Send + Sync;
    type Pass: Send + Sync;

    fn dims(&self) -> StateDims;

    /// Values of Δ per layer and token.
    fn channels(&self) -> usize;

    /// Elements per row of a pass.
    fn width(&self) -> usize;

    fn pass(&self, gpu: &Gpu, rows: usize) -> Result<Self::Pass, GpuError>;

    /// −exp(`A_log`), `[channels, …]`.
    fn decay(layer: &Self::Layer) -> &Buffer<f32>;

    /// Like [`GpuLayers::layer`], with the layer's index.
    fn layer(
        &self,
        gpu: &Gpu,
        layer: (usize, &Self::Layer),
        slots: &Slots,
        pass: &Self::Pass,
        plan: &PassPlan,
        stream: &ResidualStream<'_>,
    ) -> Result<(), GpuError>;
}

pub(in super::super) struct Recurrent<M: Mixer> {
    mixer: M,
    layers: Vec<M::Layer>,
    slots: Vec<Slots>,
    count: usize,
    pass: M::Pass,
}

/// States of one layer for all slots.
pub(in super::super) struct Slots {
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

impl<M: Mixer> GpuLayers for Recurrent<M> {
    const DELTA: bool = true;

    type SequenceData = ();

    type PassPlan = PassPlan;

    fn layers(&self) -> usize {
        self.layers.len()
    }

    fn window(&self) -> Option<usize> {
        None
    }

    fn memory_needs(&self) -> MemoryNeeds {
        let dims = self.mixer.dims();
        let slot = size_of::<f32>() * dims.layers * (dims.conv + dims.ssm);
        MemoryNeeds { slot, page: 0, longest: 0, row: size_of::<f32>() * self.mixer.width(), fixed: 0 }
    }

    fn allocate(&mut self, gpu: &Gpu, rows: usize, slots: usize, _: usize) -> Result<(), GpuError> {
        let dims = self.mixer.dims();
        self.slots = self.layers.iter().map(|_| Slots::new(gpu, dims, slots)).collect::<Result<_, _>>()?;
        self.count = slots;
        self.pass = self.mixer.pass(gpu, rows)?;
        Ok(())
    }

    fn reserve(&self, _: &Gpu, _: &mut [Segment<'_, GpuState<()>>]) -> Result<(), GpuError> {
        Ok(())
    }

    fn plan(
        &self,
        gpu: &Gpu,
        batch: &[Segment<'_, GpuState<()>>],
        sequences: &[SequenceRows],
    ) -> Result<PassPlan, GpuError> {
        PassPlan::new(gpu, batch, sequences, self.count, [self.layers.len(), self.mixer.channels()])
    }

    fn allocate_plan(&self, gpu: &Gpu, rows: usize) -> Result<PassPlan, GpuError> {
        PassPlan::allocate(gpu, rows, self.count)
    }

    fn set_decode_plan(
        &self,
        plan: &mut PassPlan,
        batch: &[Segment<'_, GpuState<()>>],
        sequences: &[SequenceRows],
        rows: usize,
    ) -> Result<Option<usize>, GpuError> {
        plan.set_decode_plan(batch, sequences, self.layers.len(), rows)
    }

    fn layer(&self, gpu: &Gpu, index: usize, plan: &PassPlan, stream: &ResidualStream<'_>) -> Result<(), GpuError> {
        let (Some(layer), Some(slots)) = (self.layers.get(index), self.slots.get(index)) else { return Ok(()) };
        self.mixer.layer(gpu, (index, layer), slots, &self.pass, plan, stream)
    }

    fn collect_steps(&self, plan: &PassPlan, batch: &mut [Segment<'_, GpuState<()>>]) -> Result<(), GpuError> {
        plan.collect_steps(batch)
    }

    fn ssm_stats(
        &self,
        gpu: &Gpu,
        slot: usize,
        steps: &Steps,
        gains: Option<&DeltaGains>,
    ) -> Result<Option<SsmStats>, GpuError> {
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
        let layers = layers.iter().enumerate().map(|(index, (a, state))| (index, a.as_slice(), state.as_slice()));
        Ok(Some(steps.stats(&layers.collect::<Vec<_>>(), gains)))
    }
}

impl Convolution<OnGpu> {
    /// Computes y `[rows, channels]` from inputs with row stride `stride`.
    pub(super) fn apply(
        &self,
        gpu: &Gpu,
        batch: &SequenceBatch,
        slots: &Slots,
        inputs: (View<'_, f32>, usize),
        y: View<'_, f32>,
    ) -> Result<(), GpuError> {
        let bias = self.bias.as_ref().map(Buffer::view);
        let conv = GpuConv { weight: self.weight.view(), bias, channels: self.channels, taps: self.taps };
        gpu.conv_silu(batch, &conv, inputs, slots.tails.view(), y)
    }
}
