//! What the layers of a network must provide on a GPU.

use std::sync::Arc;

use loom_kernels::cuda::{Gpu, GpuError, SequenceRows, View};

use super::super::architecture::Segment;
use super::super::network::NetworkConfig;
use super::super::steps::Steps;
use super::memory::MemoryNeeds;
use super::slots::PoolIndex;
use super::weights::OnGpu;
use crate::foundation::chat::{DeltaGains, SsmStats};

/// A network that also has kernels for a GPU. Its tensors are those of the CPU, stored elsewhere.
pub(in super::super) trait GpuNetworkConfig: NetworkConfig {
    type Gpu: GpuLayers;

    /// Names what the kernels do not support, if there is something.
    fn unsupported(&self) -> Option<&'static str>;

    /// The layers on `gpu`.
    fn gpu_layers(self, gpu: &Gpu, layers: Vec<Self::Layer<OnGpu>>) -> Result<Self::Gpu, GpuError>;
}

/// The layers of a network.
pub(in super::super) trait GpuLayers: Send + Sync + 'static {
    const DELTA: bool;

    /// Data of a sequence in addition to its slot; the default before the first token.
    type SequenceData: Clone + Default + Send + Sync + 'static;

    /// Inputs of the layers for one pass.
    type PassPlan: Send;

    fn layers(&self) -> usize;

    fn window(&self) -> Option<usize>;

    fn memory_needs(&self) -> MemoryNeeds;

    /// Allocates memory for passes of `rows` rows, `slots` slots and `pages` pages.
    fn allocate(&mut self, gpu: &Gpu, rows: usize, slots: usize, pages: usize) -> Result<(), GpuError>;

    /// Allocates what `batch` adds to its states.
    fn reserve(&self, gpu: &Gpu, batch: &mut [Segment<'_, GpuState<Self::SequenceData>>]) -> Result<(), GpuError>;

    /// The plan of a pass over `batch`, whose slots are in `sequences`. Called after [`reserve`](Self::reserve).
    fn plan(
        &self,
        gpu: &Gpu,
        batch: &[Segment<'_, GpuState<Self::SequenceData>>],
        sequences: &[SequenceRows],
    ) -> Result<Self::PassPlan, GpuError>;

    /// A plan at fixed addresses for up to `rows` sequences of one token each.
    fn allocate_plan(&self, gpu: &Gpu, rows: usize) -> Result<Self::PassPlan, GpuError>;

    /// Fills such a plan, padded to `rows` rows. Returns what determines the kernel launches in addition to `rows`, or
    /// `None` if the batch is not a plain decoding step.
    fn set_decode_plan(
        &self,
        plan: &mut Self::PassPlan,
        batch: &[Segment<'_, GpuState<Self::SequenceData>>],
        sequences: &[SequenceRows],
        rows: usize,
    ) -> Result<Option<usize>, GpuError>;

    /// Layer `index`: adds `added` to the residual stream x and stores its own output in `h`.
    fn layer(
        &self,
        gpu: &Gpu,
        index: usize,
        plan: &Self::PassPlan,
        stream: &ResidualStream<'_>,
    ) -> Result<(), GpuError>;

    /// Adds the values of Δ of an enqueued pass to the sequences that record them. Waits for the pass if there are any.
    fn collect_steps(
        &self,
        _: &Self::PassPlan,
        _: &mut [Segment<'_, GpuState<Self::SequenceData>>],
    ) -> Result<(), GpuError> {
        Ok(())
    }

    /// Like [`Architecture::ssm_stats`](super::super::architecture::Architecture::ssm_stats), for the state in `slot`.
    fn ssm_stats(
        &self,
        _: &Gpu,
        _slot: usize,
        _: &Steps,
        _gains: Option<&DeltaGains>,
    ) -> Result<Option<SsmStats>, GpuError> {
        Ok(None)
    }
}

/// Buffers of the residual stream, `[rows, d_model]` each.
pub(in super::super) struct ResidualStream<'a> {
    pub(in super::super) rows: usize,
    pub(in super::super) x: View<'a, f32>,
    /// `None` before the first layer.
    pub(in super::super) added: Option<View<'a, f32>>,
    pub(in super::super) h: View<'a, f32>,
}

/// State of a sequence: a slot, possibly shared with forks (`None` before the first token), and the layers' own data.
#[derive(Clone, Default)]
pub(in super::super) struct GpuState<R> {
    pub(in super::super) slot: Option<Arc<PoolIndex>>,
    pub(in super::super) data: R,
}

/// Slot 0 is never written: it holds the state before the first token.
pub(super) const START: i32 = 0;

impl<R> GpuState<R> {
    pub(in super::super) fn slot(&self) -> usize {
        usize::try_from(self.slot.as_ref().map_or(START, |slot| slot.index())).unwrap_or_default()
    }
}
