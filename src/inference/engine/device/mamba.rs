//! Mamba-1 on an NVIDIA GPU. The weights are loaded as for the CPU and moved over; bf16 and f16 weights stay as narrow as
//! they were. States lie in slots; a fork shares its slot and the next pass writes to another, so it costs nothing.
//!
//! A pass is enqueued as a whole and waited for once, when the logits are read. Unlike the CPU's, its results agree with
//! those of another batch or another length of segment within a tolerance only.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loom_kernels::Panels;
use loom_kernels::cuda::{Batch, Buffer, Gpu, GpuConv, GpuError, GpuScan, Kind, Matrix, Sequence, View};

use super::super::config::MambaConfig;
use super::super::linear::Linear as CpuLinear;
use super::super::mamba::{Layer as CpuLayer, Mamba};
use super::super::{Architecture, Segment};
use crate::foundation::base::limits::{ACTIVE_SEQUENCES_MAX, GPU_STATES_MAX};
use crate::foundation::chat::LayerGains;

/// Why a model cannot run on a GPU.
pub(super) enum Refusal {
    /// It has this, which is not built.
    Unserved(&'static str),
    Gpu(GpuError),
}

impl From<GpuError> for Refusal {
    fn from(error: GpuError) -> Self {
        Self::Gpu(error)
    }
}

/// Kernels read weights sixteen bytes at a time: eight of the narrow ones.
const PIECE: usize = 8;

/// Slot 0 is never written: it is the state before the first token.
const START: i32 = 0;

pub(super) struct GpuMamba {
    gpu: Gpu,
    config: MambaConfig,
    table: Matrix,
    /// `None` when it is the table.
    head: Option<Matrix>,
    norm: Buffer<f32>,
    layers: Vec<(Layer, Slots)>,
    /// The residual stream after the last layer at each slot's last token, `[slots, d_model]`.
    last: Buffer<f32>,
    slots: usize,
    free: Arc<Mutex<Vec<i32>>>,
    /// The buffers of a pass, kept from one to the next, and the room for logits.
    pass: Mutex<Option<Pass>>,
    fault: Mutex<Option<String>>,
}

struct Layer {
    norm: Buffer<f32>,
    in_proj: Linear,
    conv_weight: Buffer<f32>,
    conv_bias: Option<Buffer<f32>>,
    /// To `[Δ low-rank, filled up to whole pieces | B | C]`.
    x_proj: Matrix,
    dt_proj: Matrix,
    dt_bias: Buffer<f32>,
    a: Buffer<f32>,
    d: Buffer<f32>,
    out_proj: Linear,
}

/// What one layer keeps of all sequences.
struct Slots {
    /// `[slots, d_inner, d_conv − 1]`
    tails: Buffer<f32>,
    /// `[slots, d_inner, d_state]`
    states: Buffer<f32>,
}

struct Linear {
    weight: Matrix,
    bias: Option<Buffer<f32>>,
}

struct Pass {
    rows: usize,
    x: Buffer<f32>,
    h: Buffer<f32>,
    uz: Buffer<f32>,
    u: Buffer<f32>,
    delta: Buffer<f32>,
    y: Buffer<f32>,
    dbc: Buffer<f32>,
}

/// A sequence's state: a slot of its own or shared with forks; none before the first token.
#[derive(Clone)]
pub(super) struct GpuState(Option<Arc<Slot>>);

struct Slot {
    index: i32,
    free: Arc<Mutex<Vec<i32>>>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        lock(&self.free).push(self.index);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The narrowest type that holds every value exactly.
fn narrow(gpu: &Gpu, values: &[f32]) -> Result<Kind, GpuError> {
    if values.iter().all(|x| x.to_bits().trailing_zeros() >= 16) {
        let bits: Vec<_> = values.iter().map(|x| (x.to_bits() >> 16) as u16).collect();
        return Ok(Kind::Bf16(gpu.upload(&bits)?));
    }
    let halves: Option<Vec<_>> = values.iter().copied().map(half).collect();
    Ok(match halves {
        Some(bits) => Kind::F16(gpu.upload(&bits)?),
        None => Kind::F32(gpu.upload(values)?),
    })
}

/// The bits of x as f16, if it is a normal f16 or 0.
fn half(x: f32) -> Option<u16> {
    let bits = x.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    if x == 0.0 {
        return Some(sign);
    }
    let exponent = (bits >> 23 & 0xff).checked_sub(127 - 15).filter(|exponent| (1..31).contains(exponent))?;
    (bits.trailing_zeros() >= 13).then_some(sign | (exponent << 10) as u16 | (bits >> 13 & 0x3ff) as u16)
}

fn unpack(panels: &Panels) -> Vec<f32> {
    let mut values = vec![0.0; panels.outputs() * panels.inputs()];
    for (output, row) in values.chunks_exact_mut(panels.inputs().max(1)).enumerate() {
        panels.unpack_row(output, row);
    }
    values
}

fn matrix(gpu: &Gpu, panels: &Panels) -> Result<Matrix, GpuError> {
    Ok(Matrix::new(narrow(gpu, &unpack(panels))?, panels.outputs(), panels.inputs()))
}

impl Linear {
    fn new(gpu: &Gpu, linear: &CpuLinear) -> Result<Self, GpuError> {
        let bias = linear.bias.as_deref().map(|bias| gpu.upload(bias)).transpose()?;
        Ok(Self { weight: matrix(gpu, &linear.weight)?, bias })
    }

    /// y for rows of x; both without gaps.
    fn apply(&self, gpu: &Gpu, x: (View<'_, f32>, usize), rows: usize, y: View<'_, f32>) -> Result<(), GpuError> {
        gpu.matmul(x, rows, &self.weight, self.bias.as_ref().map(Buffer::view), (y, self.weight.outputs()))
    }
}

impl Layer {
    fn new(config: &MambaConfig, layer: &CpuLayer, gpu: &Gpu) -> Result<Self, GpuError> {
        let MambaConfig { d_inner, d_state, dt_rank, .. } = *config;
        let (low, _) = rank(config);
        // Rows of zeros fill the low rank up; dt_proj weighs them with columns of zeros.
        let x_proj = unpack(&layer.x_proj);
        let (delta, bc) = x_proj.split_at(dt_rank * d_inner);
        let x_proj = [delta, &vec![0.0; (low - dt_rank) * d_inner], bc].concat();
        let dt_proj = unpack(&layer.dt_proj);
        let filled = |row: &[f32]| [row, &vec![0.0; low - dt_rank]].concat();
        let dt_proj: Vec<_> = dt_proj.chunks_exact(dt_rank).flat_map(filled).collect();
        Ok(Self {
            norm: gpu.upload(&layer.norm)?,
            in_proj: Linear::new(gpu, &layer.in_proj)?,
            conv_weight: gpu.upload(&layer.conv.by_channel())?,
            conv_bias: layer.conv.bias.as_deref().map(|bias| gpu.upload(bias)).transpose()?,
            x_proj: Matrix::new(narrow(gpu, &x_proj)?, low + 2 * d_state, d_inner),
            dt_proj: Matrix::new(narrow(gpu, &dt_proj)?, d_inner, low),
            dt_bias: gpu.upload(&layer.dt_bias)?,
            a: gpu.upload(&layer.a)?,
            d: gpu.upload(&layer.d)?,
            out_proj: Linear::new(gpu, &layer.out_proj)?,
        })
    }
}

impl Slots {
    fn new(config: &MambaConfig, slots: usize, gpu: &Gpu) -> Result<Self, GpuError> {
        let MambaConfig { d_inner, d_state, d_conv, .. } = *config;
        Ok(Self { tails: gpu.zeros(slots * d_inner * (d_conv - 1))?, states: gpu.zeros(slots * d_inner * d_state)? })
    }
}

/// Bytes of one slot.
fn slot_bytes(config: &MambaConfig) -> usize {
    let MambaConfig { layers, d_model, d_inner, d_state, d_conv, .. } = *config;
    4 * (layers * d_inner * (d_state + d_conv - 1) + d_model)
}

impl GpuMamba {
    pub(super) fn new(model: &Mamba, gpu: Gpu) -> Result<Self, Refusal> {
        let config = model.config.clone();
        let MambaConfig { d_model, d_inner, d_state, d_conv, .. } = config;
        if config.mixer_norms.is_some() {
            return Err(Refusal::Unserved("a Falcon Mamba"));
        }
        if d_conv > 8 || d_state > 128 || !d_model.is_multiple_of(PIECE) || !d_inner.is_multiple_of(PIECE) {
            return Err(Refusal::Unserved(
                "a Mamba whose convolution is longer than 8, whose state is larger than 128 or whose widths are not \
                 multiples of 8",
            ));
        }
        let table = matrix(&gpu, &model.ends.table)?;
        let head = model.ends.head.as_ref().map(|head| matrix(&gpu, head)).transpose()?;
        let layers =
            model.layers.iter().map(|layer| Layer::new(&config, layer, &gpu)).collect::<Result<Vec<_>, _>>()?;
        let norm = gpu.upload(&model.ends.norm)?;
        // What is left holds the states; a quarter is kept for the passes.
        let room = gpu.free_bytes()? / 4 * 3 / slot_bytes(&config);
        let slots = room.min(GPU_STATES_MAX);
        if slots < 2 * ACTIVE_SEQUENCES_MAX {
            return Err(Refusal::Gpu(GpuError::new(format!(
                "its memory has room for {slots} states of {} KiB beside the weights, {} are needed",
                slot_bytes(&config) / 1024,
                2 * ACTIVE_SEQUENCES_MAX
            ))));
        }
        let with_slots = |layer| Ok((layer, Slots::new(&config, slots, &gpu)?));
        let layers = layers.into_iter().map(with_slots).collect::<Result<Vec<_>, GpuError>>()?;
        let last = gpu.zeros(slots * d_model)?;
        let free = Arc::new(Mutex::new((1..i32::try_from(slots).unwrap_or(i32::MAX)).rev().collect()));
        let (pass, fault) = (Mutex::new(None), Mutex::new(None));
        Ok(Self { gpu, config, table, head, norm, layers, last, slots, free, pass, fault })
    }

    /// The slot that `state` is read from and the one for what comes after, where it then lies. What it lay in together
    /// with forks is handed out, to be let go when the pass is under way.
    fn advance(&self, state: &mut GpuState) -> Result<(i32, i32, Option<Arc<Slot>>), GpuError> {
        if let Some(slot) = state.0.as_mut().and_then(Arc::get_mut) {
            return Ok((slot.index, slot.index, None));
        }
        let index = lock(&self.free).pop().ok_or_else(|| {
            GpuError::new(format!("all {} states that fit into its memory are in use; run less at once", self.slots))
        })?;
        let old = state.0.replace(Arc::new(Slot { index, free: Arc::clone(&self.free) }));
        Ok((old.as_ref().map_or(START, |slot| slot.index), index, old))
    }

    fn pass(&self, batch: &mut [Segment<'_, GpuState>], logits: &mut Vec<f32>) -> Result<(), GpuError> {
        let MambaConfig { d_model, norm_epsilon, .. } = self.config;
        let gpu = &self.gpu;
        let mut sequences = Vec::with_capacity(batch.len());
        let (mut row, mut wanted, mut lasts) = (0, Vec::new(), Vec::new());
        let mut shared = Vec::new();
        for segment in batch.iter_mut() {
            let (from, to, old) = self.advance(segment.state)?;
            shared.push(old);
            let len = i32::try_from(segment.ids.len()).unwrap_or(i32::MAX);
            sequences.push(Sequence { row, len, from, to, gain_decay: 1.0, gain_write: 1.0 });
            wanted.extend(segment.logits.clone().filter_map(|at| Some(row + i32::try_from(at).ok()?)));
            lasts.push(row + len - 1);
            row += len;
        }
        let rows = usize::try_from(row).unwrap_or_default();
        let mut pass = lock(&self.pass);
        if pass.as_ref().is_none_or(|pass| pass.rows < rows) {
            *pass = None;
            *pass = Some(Pass::new(&self.config, rows, gpu)?);
        }
        let Some(pass) = &*pass else { return Ok(()) };
        let ids: Vec<_> = batch.iter().flat_map(|segment| segment.ids).copied().collect();
        gpu.embed(&ids, &self.table, pass.x.view())?;
        let plain = Batch::new(gpu, &sequences, self.slots)?;
        let mut added = None;
        for (index, (layer, slots)) in self.layers.iter().enumerate() {
            let gains = batch.iter().map(|segment| segment.gains.and_then(|gains| gains.layer(index)));
            let gains: Vec<_> = gains.map(|gains| gains.unwrap_or(LayerGains::ONE)).collect();
            let modulated = if gains.iter().any(|gains| *gains != LayerGains::ONE) {
                let with = |(sequence, gains): (&Sequence, &LayerGains)| Sequence {
                    gain_decay: gains.on_decay(),
                    gain_write: gains.on_write(),
                    ..*sequence
                };
                let sequences: Vec<_> = sequences.iter().zip(&gains).map(with).collect();
                Some(Batch::new(gpu, &sequences, self.slots)?)
            } else {
                None
            };
            self.layer(layer, slots, modulated.as_ref().unwrap_or(&plain), added, pass)?;
            added = Some(pass.h.view());
        }
        if let Some(added) = added {
            gpu.add_to(pass.x.view(), added, rows * d_model)?;
        }
        let targets: Vec<_> = sequences.iter().map(|sequence| sequence.to).collect();
        gpu.copy_rows((pass.x.view(), &lasts), (self.last.view(), Some(&targets)), d_model)?;
        gpu.copy_rows((pass.x.view(), &wanted), (pass.h.view(), None), d_model)?;
        drop(shared);
        self.head(pass.h.view(), wanted.len(), norm_epsilon, logits)
    }

    /// What one layer adds to the residual stream, into `pass.h`; first adds what the one before it left there.
    fn layer(
        &self,
        layer: &Layer,
        slots: &Slots,
        batch: &Batch,
        added: Option<View<'_, f32>>,
        pass: &Pass,
    ) -> Result<(), GpuError> {
        let MambaConfig { d_model, d_inner, d_state, d_conv, norm_epsilon, .. } = self.config;
        let (gpu, rows) = (&self.gpu, batch.rows());
        let Pass { x, h, uz, u, delta, y, dbc, .. } = pass;
        let (low, width) = rank(&self.config);
        gpu.rms_norm(x.view(), added, layer.norm.view(), norm_epsilon, y.view(), [rows, d_model])?;
        layer.in_proj.apply(gpu, (y.view(), d_model), rows, uz.view())?;
        let conv = GpuConv {
            weight: layer.conv_weight.view(),
            bias: layer.conv_bias.as_ref().map(Buffer::view),
            channels: d_inner,
            taps: d_conv,
        };
        gpu.conv_silu(batch, &conv, (uz.view(), 2 * d_inner), slots.tails.view(), u.view())?;
        gpu.matmul((u.view(), d_inner), rows, &layer.x_proj, None, (dbc.view(), width))?;
        gpu.matmul((dbc.view(), width), rows, &layer.dt_proj, None, (delta.view(), d_inner))?;
        let scan = GpuScan {
            u: u.view(),
            delta_raw: delta.view(),
            dt_bias: layer.dt_bias.view(),
            a: layer.a.view(),
            bc: dbc.from(low),
            bc_stride: width,
            d: layer.d.view(),
            z: Some((uz.from(d_inner), 2 * d_inner)),
            channels: d_inner,
            d_state,
        };
        gpu.selective_scan(batch, &scan, slots.states.view(), y.view())?;
        layer.out_proj.apply(gpu, (y.view(), d_inner), rows, h.view())
    }

    /// Replaces `logits` by those after `rows` rows of the residual stream.
    fn head(&self, x: View<'_, f32>, rows: usize, epsilon: f32, logits: &mut Vec<f32>) -> Result<(), GpuError> {
        let (d_model, vocabulary) = (self.config.d_model, self.config.vocabulary);
        logits.clear();
        logits.resize(rows * vocabulary, 0.0);
        if rows == 0 {
            return Ok(());
        }
        let (normed, out) = (self.gpu.room(rows * d_model)?, self.gpu.room(rows * vocabulary)?);
        self.gpu.rms_norm(x, None, self.norm.view(), epsilon, normed.view(), [rows, d_model])?;
        let head = self.head.as_ref().unwrap_or(&self.table);
        self.gpu.matmul((normed.view(), d_model), rows, head, None, (out.view(), vocabulary))?;
        out.read(logits)
    }

    fn note(&self, outcome: Result<(), GpuError>) {
        if let Err(error) = outcome {
            *lock(&self.fault) = Some(format!("the GPU failed: {error}"));
        }
    }
}

/// Where B begins in a row behind the low rank of Δ, and the row's width.
fn rank(config: &MambaConfig) -> (usize, usize) {
    let low = config.dt_rank.next_multiple_of(PIECE);
    (low, (low + 2 * config.d_state).next_multiple_of(4))
}

impl Pass {
    fn new(config: &MambaConfig, rows: usize, gpu: &Gpu) -> Result<Self, GpuError> {
        let MambaConfig { d_model, d_inner, .. } = *config;
        let room = |width: usize| gpu.room(rows * width);
        Ok(Self {
            rows,
            x: room(d_model)?,
            h: room(d_model)?,
            uz: room(2 * d_inner)?,
            u: room(d_inner)?,
            delta: room(d_inner)?,
            // Also what goes into a layer.
            y: room(d_inner.max(d_model))?,
            dbc: room(rank(config).1)?,
        })
    }
}

impl Architecture for GpuMamba {
    type State = GpuState;

    const DELTA: bool = true;

    fn layers(&self) -> usize {
        self.config.layers
    }

    fn vocabulary(&self) -> usize {
        self.config.vocabulary
    }

    fn window(&self) -> Option<usize> {
        None
    }

    fn state_bytes(&self, _tokens: usize) -> usize {
        slot_bytes(&self.config)
    }

    fn start(&self) -> GpuState {
        GpuState(None)
    }

    fn forward(&self, batch: &mut [Segment<'_, GpuState>], logits: &mut Vec<f32>) {
        self.note(self.pass(batch, logits));
    }

    fn next(&self, state: &GpuState, logits: &mut Vec<f32>) {
        let slot = state.0.as_ref().map_or(START, |slot| slot.index);
        let at = usize::try_from(slot).unwrap_or_default() * self.config.d_model;
        self.note(self.head(self.last.part(at, self.config.d_model), 1, self.config.norm_epsilon, logits));
    }

    fn fault(&self) -> Option<String> {
        lock(&self.fault).take()
    }
}
