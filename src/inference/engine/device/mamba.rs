//! The layers of Mamba-1 on a GPU. The weights are loaded as for the CPU and moved over.

use loom_kernels::cuda::{Buffer, Gpu, GpuError, GpuScan, Matrix, Sequence};

use super::super::Segment;
use super::super::config::MambaConfig;
use super::super::mamba::{Layer as CpuLayer, Mamba};
use super::Refusal;
use super::memory::Needs;
use super::network::{Body, GpuState, Stream};
use super::recurrent::{Conv, Plan, Slots, TAPS_MAX};
use super::weights::{Linear, PIECE, narrow, unpack};

pub(super) struct GpuMamba {
    config: MambaConfig,
    layers: Vec<Layer>,
    slots: Vec<Slots>,
    count: usize,
    pass: Pass,
}

struct Layer {
    norm: Buffer<f32>,
    in_proj: Linear,
    conv: Conv,
    /// To `[Δ low-rank, filled up to whole pieces | B | C]`.
    x_proj: Matrix,
    dt_proj: Matrix,
    dt_bias: Buffer<f32>,
    a: Buffer<f32>,
    d: Buffer<f32>,
    out_proj: Linear,
}

struct Pass {
    uz: Buffer<f32>,
    u: Buffer<f32>,
    delta: Buffer<f32>,
    y: Buffer<f32>,
    dbc: Buffer<f32>,
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
            conv: Conv::new(gpu, &layer.conv)?,
            x_proj: Matrix::new(narrow(gpu, &x_proj)?, low + 2 * d_state, d_inner),
            dt_proj: Matrix::new(narrow(gpu, &dt_proj)?, d_inner, low),
            dt_bias: gpu.upload(&layer.dt_bias)?,
            a: gpu.upload(&layer.a)?,
            d: gpu.upload(&layer.d)?,
            out_proj: Linear::new(gpu, &layer.out_proj)?,
        })
    }
}

impl GpuMamba {
    pub(super) fn new(model: &Mamba, gpu: &Gpu) -> Result<Self, Refusal> {
        let config = model.config.clone();
        let MambaConfig { d_model, d_inner, d_state, d_conv, .. } = config;
        if config.mixer_norms.is_some() {
            return Err(Refusal::Unserved("a Falcon Mamba"));
        }
        if d_conv > TAPS_MAX || d_state > 128 || !d_model.is_multiple_of(PIECE) || !d_inner.is_multiple_of(PIECE) {
            return Err(Refusal::Unserved(
                "a Mamba whose convolution is longer than 8, whose state is larger than 128 or whose widths are not \
                 multiples of 8",
            ));
        }
        let layers = model.layers.iter().map(|layer| Layer::new(&config, layer, gpu)).collect::<Result<Vec<_>, _>>()?;
        let pass = Pass::new(&config, 0, gpu)?;
        Ok(Self { config, layers, slots: Vec::new(), count: 0, pass })
    }
}

/// Where B begins in a row behind the low rank of Δ, and the row's width.
fn rank(config: &MambaConfig) -> (usize, usize) {
    let low = config.dt_rank.next_multiple_of(PIECE);
    (low, (low + 2 * config.d_state).next_multiple_of(4))
}

/// Widths of the buffers of a pass: uz, u, Δ, y, dbc. In y lies also what goes into a layer.
fn widths(config: &MambaConfig) -> [usize; 5] {
    let MambaConfig { d_model, d_inner, .. } = *config;
    [2 * d_inner, d_inner, d_inner, d_inner.max(d_model), rank(config).1]
}

impl Pass {
    fn new(config: &MambaConfig, rows: usize, gpu: &Gpu) -> Result<Self, GpuError> {
        let [uz, u, delta, y, dbc] = widths(config).map(|width| gpu.room(rows * width));
        Ok(Self { uz: uz?, u: u?, delta: delta?, y: y?, dbc: dbc? })
    }
}

impl Body for GpuMamba {
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
        let dims = self.config.state_dims();
        let row = size_of::<f32>() * widths(&self.config).iter().sum::<usize>();
        let slot = size_of::<f32>() * dims.layers * (dims.conv + dims.ssm);
        Needs { slot, page: 0, longest: 0, row, fixed: 0 }
    }

    fn settle(&mut self, gpu: &Gpu, rows: usize, slots: usize, _: usize) -> Result<(), GpuError> {
        let dims = self.config.state_dims();
        self.slots = self.layers.iter().map(|_| Slots::new(gpu, dims, slots)).collect::<Result<_, _>>()?;
        self.count = slots;
        self.pass = Pass::new(&self.config, rows, gpu)?;
        Ok(())
    }

    fn grow(&self, _: &Gpu, _: &mut [Segment<'_, GpuState<()>>]) -> Result<(), GpuError> {
        Ok(())
    }

    fn plan(&self, gpu: &Gpu, batch: &[Segment<'_, GpuState<()>>], sequences: &[Sequence]) -> Result<Plan, GpuError> {
        Plan::new(gpu, batch, sequences, self.layers.len(), self.count)
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
        let MambaConfig { d_model, d_inner, d_state, norm_epsilon, .. } = self.config;
        let (Some(layer), Some(slots)) = (self.layers.get(index), self.slots.get(index)) else { return Ok(()) };
        let (batch, rows) = (plan.at(index), stream.rows);
        let Pass { uz, u, delta, y, dbc } = &self.pass;
        let (low, width) = rank(&self.config);
        gpu.rms_norm(stream.x, stream.added, layer.norm.view(), norm_epsilon, y.view(), [rows, d_model])?;
        layer.in_proj.apply(gpu, y.view(), rows, uz.view())?;
        layer.conv.apply(gpu, batch, slots, (uz.view(), 2 * d_inner), u.view())?;
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
        layer.out_proj.apply(gpu, y.view(), rows, stream.h)
    }
}
