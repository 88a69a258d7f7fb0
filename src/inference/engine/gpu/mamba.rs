//! The layers of Mamba-1 and Falcon Mamba on a GPU. Weights are loaded as for the CPU and uploaded.

use loom_kernels::cuda::{Buffer, Gpu, GpuError, GpuScan};

use super::super::mamba::{Layer as MambaLayer, MambaConfig};
use super::super::recurrent::StateDims;
use super::layers::{GpuNetworkConfig, ResidualStream};
use super::plan::PassPlan;
use super::recurrent::{Mixer, Recurrent, Slots, TAPS_MAX};
use super::weights::{OnGpu, PIECE};

/// Largest state per channel that the kernel supports.
const STATE_MAX: usize = 128;

pub(in super::super) struct Pass {
    uz: Buffer<f32>,
    u: Buffer<f32>,
    delta: Buffer<f32>,
    y: Buffer<f32>,
    dbc: Buffer<f32>,
}

impl GpuNetworkConfig for MambaConfig {
    type Gpu = Recurrent<Self>;

    fn unsupported(&self) -> Option<&'static str> {
        let wide = self.d_conv > TAPS_MAX || self.d_state > STATE_MAX;
        wide.then_some("a Mamba whose convolution is longer than 8 or whose state is larger than 128")
    }

    fn gpu_layers(self, gpu: &Gpu, layers: Vec<MambaLayer<OnGpu>>) -> Result<Recurrent<Self>, GpuError> {
        Recurrent::new(gpu, self, layers)
    }
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
    type Layer = MambaLayer<OnGpu>;

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

    fn decay(layer: &MambaLayer<OnGpu>) -> &Buffer<f32> {
        &layer.a
    }

    fn layer(
        &self,
        gpu: &Gpu,
        (index, layer): (usize, &MambaLayer<OnGpu>),
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
