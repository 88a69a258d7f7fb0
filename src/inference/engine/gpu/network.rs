//! The parts of a network on a GPU that do not depend on its family: embeddings, residual stream, state slots, head,
//! and logit queries, which are answered on the GPU. The layers are a [`GpuLayers`]: `mamba.rs`, `mamba2.rs`,
//! `decoder.rs`.
//!
//! A pass is enqueued as a whole, and the host waits once, for the answers (some 180 bytes per row). Unlike on a CPU,
//! results of different batches or segment lengths agree only within a tolerance.
//!
//! Memory is allocated when a model is opened (`memory.rs`).

mod rows;

use std::sync::{Arc, Mutex};

use loom_kernels::cuda::{Buffer, Gpu, GpuError, Matrix, PAGE, RowList, RowStats, SequenceRows, TOP_MAX};

use super::super::architecture::{Architecture, Segment};
use super::super::device::Device;
use super::super::embedding_and_head::EmbeddingAndHead;
use super::super::error::LoadError;
use super::super::logit_query::{LogitQuery, Scratch, TokenStats};
use super::super::network::Tensors;
use super::super::steps::Steps;
use super::super::weights::Weights;
use super::decode::{self, Decode};
use super::layers::{GpuLayers, GpuNetworkConfig, GpuState, ResidualStream, START};
use super::memory::{MemoryNeeds, MemoryPlan};
use super::query::{kernel_query, token_stats};
use super::slots::{Pool, PoolIndex, lock};
use super::weights::{GpuUpload, OnGpu};
use crate::foundation::base::limits::GPU_PASS_TOKENS_MAX;
use crate::foundation::chat::{DeltaGains, SsmStats};

/// A GPU that a model is about to be loaded onto.
pub(in super::super) struct GpuDevice {
    gpu: Gpu,
    device: Device,
    /// Free memory in bytes, before anything is loaded.
    free: usize,
}

impl GpuDevice {
    pub(in super::super) fn open(ordinal: usize) -> Result<Self, LoadError> {
        let device = Device::Cuda(ordinal);
        let gpu = Gpu::open(ordinal).map_err(|error| device.failed(&error))?;
        let free = gpu.free_bytes().map_err(|error| device.failed(&error))?;
        Ok(Self { gpu, device, free })
    }

    /// Loads a network, tensor by tensor.
    pub(in super::super) fn load<N: GpuNetworkConfig>(
        self,
        config: N,
        weights: &mut Weights<'_>,
    ) -> Result<Network<N::Gpu>, LoadError> {
        let Self { gpu, device, free } = self;
        if let Some(what) = config.unsupported() {
            return Err(LoadError::Start(format!("{what} is not supported on a GPU; use the device `cpu`")));
        }
        let library = gpu.library().unwrap_or_else(|why| format!("no cuBLAS ({why})"));
        let name = format!("{device} {}, {library}", gpu.info().name);
        let Tensors { embedding_and_head, layers } = config.load(&mut GpuUpload { gpu: &gpu, device, weights })?;
        let layers = config.gpu_layers(&gpu, layers).map_err(|error| device.failed(&error))?;
        Network::new(gpu, name, embedding_and_head, layers, free).map_err(|error| device.failed(&error))
    }
}

impl Device {
    /// The error of a GPU as that of loading a model.
    pub(super) fn failed(self, error: &GpuError) -> LoadError {
        LoadError::Start(format!("{self}: {error}; or use the device `cpu`"))
    }
}

pub(in super::super) struct Network<B: GpuLayers> {
    gpu: Gpu,
    /// For display.
    device_name: String,
    gpu_layers: B,
    d_model: usize,
    vocabulary: usize,
    epsilon: f32,
    table: Matrix,
    /// `None` if the head is the table.
    head: Option<Matrix>,
    norm: Buffer<f32>,
    slots: Pool,
    /// Recorded decoding steps and their inputs.
    decode: Mutex<Decode<B::PassPlan>>,
    /// The residual stream after the last layer at the last token of each slot, `[slots, d_model]`.
    last: Buffer<f32>,
    /// `[rows, d_model]`
    x: Buffer<f32>,
    h: Buffer<f32>,
    /// Number of rows that the head processes at once, and its buffers: normed rows, logits, work space.
    head_rows: usize,
    normed: Buffer<f32>,
    logits: Buffer<f32>,
    weights: Buffer<f32>,
    /// One per row of a pass.
    row_stats: Buffer<RowStats>,
    sequences_max: usize,
    states_bytes: u64,
    fault: Mutex<Option<String>>,
}

impl<B: GpuLayers> Network<B> {
    /// A network on `device_name`. `free` is the free memory before the weights of `gpu_layers` were loaded.
    fn new(
        gpu: Gpu,
        device_name: String,
        embedding_and_head: EmbeddingAndHead<OnGpu>,
        mut gpu_layers: B,
        free: usize,
    ) -> Result<Self, GpuError> {
        let EmbeddingAndHead { table, norm, head, dims } = embedding_and_head;
        let (d_model, vocabulary) = (dims.d_model, dims.vocabulary);
        let workspace = gpu.workspace_bytes();
        let plan =
            MemoryPlan::new(&gpu_layers.memory_needs(), d_model, vocabulary, workspace, [free, gpu.free_bytes()?])?;
        let MemoryPlan { rows, head_rows, slots, pages, sequences_max, states_bytes } = plan;
        gpu_layers.allocate(&gpu, rows, slots, pages)?;
        let decode = Decode::new(&gpu, &gpu_layers, slots, vocabulary)?;
        Ok(Self {
            slots: Pool::new("states", 1, slots),
            decode: Mutex::new(decode),
            last: gpu.zeros(slots * d_model)?,
            x: gpu.uninit(rows * d_model)?,
            h: gpu.uninit(rows * d_model)?,
            normed: gpu.uninit(head_rows * d_model)?,
            logits: gpu.uninit(head_rows * vocabulary)?,
            weights: gpu.uninit(head_rows * vocabulary)?,
            row_stats: gpu.uninit(rows)?,
            epsilon: dims.norm_epsilon,
            fault: Mutex::new(None),
            states_bytes: states_bytes as u64,
            gpu,
            device_name,
            gpu_layers,
            d_model,
            vocabulary,
            table,
            head,
            norm,
            head_rows,
            sequences_max,
        })
    }

    /// The slot to read a state from and the slot to write to. If the old slot is shared with forks, a new one is taken
    /// and the old one is returned, to be released when the pass is enqueued.
    fn advance(&self, slot: &mut Option<Arc<PoolIndex>>) -> Result<(i32, i32, Option<Arc<PoolIndex>>), GpuError> {
        if let Some(slot) = slot.as_mut().and_then(Arc::get_mut) {
            return Ok((slot.index(), slot.index(), None));
        }
        let new = self.slots.take()?;
        let index = new.index();
        let old = slot.replace(new);
        Ok((old.as_ref().map_or(START, |slot| slot.index()), index, old))
    }

    /// Enqueues a pass over `batch` and gathers the requested rows in `h`; returns their number.
    fn pass(
        &self,
        batch: &mut [Segment<'_, GpuState<B::SequenceData>>],
        sequences: &[SequenceRows],
    ) -> Result<usize, GpuError> {
        let gpu = &self.gpu;
        let (mut row, mut wanted, mut lasts) = (0, Vec::new(), Vec::new());
        for segment in &*batch {
            let len = u32::try_from(segment.ids.len()).unwrap_or(u32::MAX);
            wanted.extend(segment.logits.clone().filter_map(|last_row| Some(row + u32::try_from(last_row).ok()?)));
            row += len;
            lasts.push(row - 1);
        }
        let rows = row as usize;
        let ids: Vec<_> = batch.iter().flat_map(|segment| segment.ids).copied().collect();
        let plan = self.gpu_layers.plan(gpu, batch, sequences)?;
        self.layers(&RowList::new(gpu, &ids, self.vocabulary)?, &plan, rows)?;
        let (lasts, wanted) = (RowList::new(gpu, &lasts, rows)?, (RowList::new(gpu, &wanted, rows)?, wanted.len()));
        let targets = RowList::new(gpu, &targets(sequences), self.slots.count())?;
        let last = (self.last.view(), Some(&targets));
        gpu.copy_rows((self.x.view(), Some(&lasts)), last, [sequences.len(), self.d_model])?;
        gpu.copy_rows((self.x.view(), Some(&wanted.0)), (self.h.view(), None), [wanted.1, self.d_model])?;
        self.gpu_layers.collect_steps(&plan, batch)?;
        Ok(wanted.1)
    }

    /// Runs all layers: from ids to the residual stream, in `x`.
    fn layers(&self, ids: &RowList, plan: &B::PassPlan, rows: usize) -> Result<(), GpuError> {
        let gpu = &self.gpu;
        gpu.embed(ids, &self.table, self.x.view())?;
        let mut stream = ResidualStream { rows, x: self.x.view(), added: None, h: self.h.view() };
        for index in 0..self.gpu_layers.layers() {
            self.gpu_layers.layer(gpu, index, plan, &stream)?;
            stream.added = Some(stream.h);
        }
        stream.added.map_or(Ok(()), |added| gpu.add_to(self.x.view(), added, rows * self.d_model))
    }

    /// Assigns slots and other memory to every sequence. Shared slots that are only read are returned, to be released
    /// when the pass is enqueued.
    fn begin(
        &self,
        batch: &mut [Segment<'_, GpuState<B::SequenceData>>],
    ) -> Result<(Vec<SequenceRows>, SharedSlots), GpuError> {
        let (mut sequences, mut shared, mut row) = (Vec::with_capacity(batch.len()), Vec::new(), 0);
        for segment in batch.iter_mut() {
            let (from, to, old) = self.advance(&mut segment.state.slot)?;
            shared.push(old);
            let len = i32::try_from(segment.ids.len()).unwrap_or(i32::MAX);
            sequences.push(SequenceRows { row, len, from, to, gain_decay: 1.0, gain_write: 1.0 });
            row += len;
        }
        self.gpu_layers.reserve(&self.gpu, batch)?;
        Ok((sequences, shared))
    }

    /// Runs a decoding step of one token per sequence by replaying recorded launches; `None` if the batch is not such a
    /// step.
    fn step(
        &self,
        batch: &[Segment<'_, GpuState<B::SequenceData>>],
        sequences: &[SequenceRows],
    ) -> Result<Option<Vec<Option<TokenStats>>>, GpuError> {
        let plain =
            |segment: &Segment<'_, _>| segment.ids.len() == 1 && segment.queries.iter().all(|ask| ask.top <= TOP_MAX);
        if !batch.iter().all(plain) {
            return Ok(None);
        }
        let mut decode = lock(&self.decode);
        let Some(rows) = decode::rows(batch.len()) else { return Ok(None) };
        let Some(kind) = self.gpu_layers.set_decode_plan(decode.plan(), batch, sequences, rows)? else {
            return Ok(None);
        };
        let ids: Vec<_> = batch.iter().flat_map(|segment| segment.ids).copied().collect();
        let queries: Vec<_> = batch.iter().map(|segment| segment.queries.first().map(kernel_query)).collect();
        if !decode.set(&ids, &targets(sequences), &queries, rows)? {
            return Ok(None);
        }
        decode.run(&self.gpu, (rows, kind), |decode| {
            self.layers(&decode.ids, &decode.plan, rows)?;
            let last = (self.last.view(), Some(&decode.targets));
            self.gpu.copy_rows((self.x.view(), None), last, [rows, self.d_model])?;
            for first in (0..rows).step_by(self.head_rows) {
                self.query_rows(
                    self.x.from(first * self.d_model),
                    &decode.queries,
                    first,
                    self.head_rows.min(rows - first),
                )?;
            }
            Ok(())
        })?;
        let mut row_stats = vec![RowStats::NONE; batch.len()];
        self.row_stats.read(&mut row_stats)?;
        let kernel_query =
            row_stats.iter().zip(batch).filter_map(|(reading, segment)| Some((reading, segment.queries.first()?)));
        Ok(Some(kernel_query.map(|(reading, ask)| token_stats(reading, ask.top.min(self.vocabulary))).collect()))
    }

    fn record_fault<T>(&self, outcome: Result<T, GpuError>) -> Option<T> {
        outcome.map_err(|error| *lock(&self.fault) = Some(format!("the GPU failed: {error}"))).ok()
    }
}

/// Slots to release when a pass is enqueued.
type SharedSlots = Vec<Option<Arc<PoolIndex>>>;

/// The slots that a pass writes.
fn targets(sequences: &[SequenceRows]) -> Vec<u32> {
    sequences.iter().filter_map(|sequence| u32::try_from(sequence.to).ok()).collect()
}

impl<B: GpuLayers> Architecture for Network<B> {
    type State = GpuState<B::SequenceData>;

    fn layers(&self) -> usize {
        self.gpu_layers.layers()
    }

    fn has_delta(&self) -> bool {
        B::DELTA
    }

    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn window(&self) -> Option<usize> {
        self.gpu_layers.window()
    }

    fn state_bytes(&self, tokens: usize) -> usize {
        let MemoryNeeds { slot, page, .. } = self.gpu_layers.memory_needs();
        if page == 0 { slot + size_of::<f32>() * self.d_model } else { tokens.div_ceil(PAGE) * page }
    }

    fn start(&self) -> Self::State {
        GpuState::default()
    }

    fn forward(&self, batch: &mut [Segment<'_, Self::State>], scratch: &mut Scratch) {
        let rows = self.begin(batch).and_then(|(sequences, _shared)| self.pass(batch, &sequences));
        self.record_fault(rows.and_then(|rows| self.copy_logits(self.h.view(), rows, &mut scratch.logits)));
    }

    fn next(&self, state: &Self::State, logits: &mut Vec<f32>) {
        self.record_fault(self.copy_logits(self.last_row(state), 1, logits));
    }

    fn read(&self, batch: &mut [Segment<'_, Self::State>], _: &mut Scratch) -> Vec<Option<TokenStats>> {
        let read = |batch: &mut [Segment<'_, Self::State>]| {
            let (sequences, _shared) = self.begin(batch)?;
            if let Some(row_stats) = self.step(batch, &sequences)? {
                return Ok(row_stats);
            }
            self.pass(batch, &sequences)?;
            let queries: Vec<_> = batch.iter().flat_map(|segment| &segment.queries).collect();
            self.answer_queries(self.h.view(), &queries)
        };
        self.record_fault(read(batch)).unwrap_or_default()
    }

    fn read_next(&self, state: &Self::State, queries: &[&LogitQuery], _: &mut Scratch) -> Vec<Option<TokenStats>> {
        queries.iter().map(|ask| self.record_fault(self.answer_queries(self.last_row(state), &[ask]))?.pop()?).collect()
    }

    fn sequences_max(&self) -> usize {
        self.sequences_max
    }

    fn pass_tokens_max(&self) -> usize {
        GPU_PASS_TOKENS_MAX
    }

    fn states_bytes(&self) -> Option<u64> {
        Some(self.states_bytes)
    }

    fn ssm_stats(&self, state: &Self::State, steps: &Steps, gains: Option<&DeltaGains>) -> Option<SsmStats> {
        self.record_fault(self.gpu_layers.ssm_stats(&self.gpu, state.slot(), steps, gains))?
    }

    fn device_name(&self) -> String {
        self.device_name.clone()
    }

    fn fault(&self) -> Option<String> {
        lock(&self.fault).take()
    }
}
