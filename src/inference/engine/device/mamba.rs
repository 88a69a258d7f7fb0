//! The layers of Mamba-1 and Falcon Mamba on a GPU. Weights are loaded as for the CPU and uploaded.

use loom_kernels::cuda::{Buffer, Gpu, GpuError, GpuScan, Matrix};

use super::super::config::MambaConfig;
use super::super::mamba::{Layer as CpuLayer, Mamba};
use super::super::recurrent::StateDims;
use super::GpuRefusal;
use super::network::ResidualStream;
use super::plan::PassPlan;
use super::recurrent::{Conv, Mixer, Recurrent, Slots, TAPS_MAX};
use super::weights::{Linear, PIECE, narrow, unpack};

/// Largest state per channel that the kernel supports.
const STATE_MAX: usize = 128;

pub(super) struct Layer {
    norm: Buffer<f32>,
    in_proj: Linear,
    conv: Conv,
    /// Projection to `[Δ low-rank, padded to whole pieces | B | C]`.
    x_proj: Matrix,
    dt_proj: Matrix,
    dt_bias: Buffer<f32>,
    a: Buffer<f32>,
    d: Buffer<f32>,
    out_proj: Linear,
}

pub(super) struct Pass {
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
        // The low rank is padded with rows of zeros, and `dt_proj` with columns of zeros.
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
            x_proj: narrow(gpu, &x_proj, low + 2 * d_state, d_inner)?,
            dt_proj: narrow(gpu, &dt_proj, d_inner, low)?,
            dt_bias: gpu.upload(&layer.dt_bias)?,
            a: gpu.upload(&layer.a)?,
            d: gpu.upload(&layer.d)?,
            out_proj: Linear::new(gpu, &layer.out_proj)?,
        })
    }
}

/// Uploads the layers of `model`.
pub(super) fn load(model: &Mamba, gpu: &Gpu) -> Result<Recurrent<MambaConfig>, GpuRefusal> {
    let config = &model.config;
    if config.d_conv > TAPS_MAX || config.d_state > STATE_MAX {
        return Err(GpuRefusal::NotImplemented(
            "a Mamba whose convolution is longer than 8 or whose state is larger than 128",
        ));
    }
    let layers = model.layers.iter().map(|layer| Layer::new(config, layer, gpu)).collect::<Result<Vec<_>, _>>()?;
    Ok(Recurrent::new(gpu, config.clone(), layers)?)
}

/// Offset of B in a row behind the padded low rank, and the row's width.
fn rank(config: &MambaConfig) -> (usize, usize) {
    let low = config.dt_rank.next_multiple_of(PIECE);
    (low, (low + 2 * config.d_state).next_multiple_of(4))
}

/// Widths of the buffers of a pass: uz, u, Δ, y, dbc. y also holds the input of a layer.
fn widths(config: &MambaConfig) -> [usize; 5] {
    let MambaConfig { d_model, d_inner, .. } = *config;
    [2 * d_inner, d_inner, d_inner, d_inner.max(d_model), rank(config).1]
}

impl Mixer for MambaConfig {
    type Layer = Layer;

    type Pass = Pass;

    fn dims(&self) -> StateDims {
        self.state_dims()
    }

    fn channels(&self) -> usize {
        self.d_inner
    }

    fn width(&self) -> usize {
        widths(self).iter().sum()
    }

    fn pass(&self, gpu: &Gpu, rows: usize) -> Result<Pass, GpuError> {
        let [uz, u, delta, y, dbc] = widths(self).map(|width| gpu.uninit(rows * width));
        Ok(Pass { uz: uz?, u: u?, delta: delta?, y: y?, dbc: dbc? })
    }

    fn decay(layer: &Layer) -> &Buffer<f32> {
        &layer.a
    }

    fn layer(
        &self,
        gpu: &Gpu,
        (index, layer): (usize, &Layer),
        slots: &Slots,
        pass: &Pass,
        plan: &PassPlan,
        stream: &ResidualStream<'_>,
    ) -> Result<(), GpuError> {
        let &MambaConfig { d_model, d_inner, d_state, dt_rank, norm_epsilon, mixer_norms, .. } = self;
        let (batch, rows) = (plan.at(index), stream.rows);
        let Pass { uz, u, delta, y, dbc } = pass;
        let (low, width) = rank(self);
        gpu.rms_norm(stream.x, stream.added, layer.norm.view(), norm_epsilon, y.view(), [rows, d_model])?;
        layer.in_proj.apply(gpu, y.view(), rows, uz.view())?;
        layer.conv.apply(gpu, batch, slots, (uz.view(), 2 * d_inner), u.view())?;
        gpu.matmul((u.view(), d_inner), rows, &layer.x_proj, None, (dbc.view(), width))?;
        if let Some(epsilon) = mixer_norms {
            gpu.norm_parts((dbc.view(), width), rows, [dt_rank, low, d_state], epsilon)?;
        }
        gpu.matmul((dbc.view(), width), rows, &layer.dt_proj, None, (delta.view(), d_inner))?;
        plan.add_steps(gpu, index, (delta.view(), d_inner), layer.dt_bias.view(), (0.0, f32::INFINITY))?;
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
