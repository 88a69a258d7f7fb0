//! The layers of Mamba-2 on a GPU: decoding uses the recurrence, longer segments the paper's chunked form.

use loom_kernels::cuda::{Buffer, Gpu, GpuError, GpuHeadScan, HeadDims};

use super::super::mamba2::{Layer as Mamba2Layer, Mamba2Config};
use super::super::recurrent::StateDims;
use super::layers::{GpuNetworkConfig, ResidualStream};
use super::plan::PassPlan;
use super::recurrent::{Mixer, Recurrent, Slots, TAPS_MAX};
use super::weights::OnGpu;

pub(in super::super) struct Pass {
    /// `[rows, projected]`
    zxbcdt: Buffer<f32>,
    /// `[rows, d_convolved]`
    xbc: Buffer<f32>,
    /// `[rows, d_inner]`
    y: Buffer<f32>,
    /// `[rows, d_inner]`; also holds the input of a layer.
    normed: Buffer<f32>,
}

impl GpuNetworkConfig for Mamba2Config {
    type Gpu = Recurrent<Self>;

    fn unsupported(&self) -> Option<&'static str> {
        (self.d_conv > TAPS_MAX).then_some("a Mamba-2 whose convolution is longer than 8")
    }

    fn gpu_layers(self, gpu: &Gpu, layers: Vec<Mamba2Layer<OnGpu>>) -> Result<Recurrent<Self>, GpuError> {
        Recurrent::new(gpu, self, layers)
    }
}

fn widths(config: &Mamba2Config) -> [usize; 4] {
    let inner = config.d_inner();
    [config.projected(), config.d_convolved(), inner, inner.max(config.d_model)]
}

impl Mixer for Mamba2Config {
    type Layer = Mamba2Layer<OnGpu>;

    type Pass = Pass;

    fn dims(&self) -> StateDims {
        self.state_dims()
    }

    fn channels(&self) -> usize {
        self.heads
    }

    fn width(&self) -> usize {
        widths(self).iter().sum()
    }

    fn pass(&self, gpu: &Gpu, rows: usize) -> Result<Pass, GpuError> {
        let [zxbcdt, xbc, y, normed] = widths(self).map(|width| gpu.uninit(rows * width));
        Ok(Pass { zxbcdt: zxbcdt?, xbc: xbc?, y: y?, normed: normed? })
    }

    fn decay(layer: &Mamba2Layer<OnGpu>) -> &Buffer<f32> {
        &layer.mixer.a
    }

    fn layer(
        &self,
        gpu: &Gpu,
        (index, layer): (usize, &Mamba2Layer<OnGpu>),
        slots: &Slots,
        pass: &Pass,
        plan: &PassPlan,
        stream: &ResidualStream<'_>,
    ) -> Result<(), GpuError> {
        let &Mamba2Config { d_model, heads, head_dim, d_state, groups, dt_limit, norm_epsilon, .. } = self;
        let (inner, projected) = (self.d_inner(), self.projected());
        let (batch, rows) = (plan.at(index), stream.rows);
        let Pass { zxbcdt, xbc, y, normed } = pass;
        gpu.rms_norm(stream.x, stream.added, layer.norm.view(), norm_epsilon, normed.view(), [rows, d_model])?;
        layer.mixer.in_proj.apply(gpu, normed.view(), rows, zxbcdt.view())?;
        layer.mixer.conv.apply(gpu, batch, slots, (zxbcdt.from(inner), projected), xbc.view())?;
        let delta_raw = zxbcdt.from(projected - heads);
        plan.add_steps(gpu, index, (delta_raw, projected), layer.mixer.dt_bias.view(), dt_limit)?;
        let [h, p, n, g] = [heads, head_dim, d_state, groups].map(|dim| i32::try_from(dim).unwrap_or(i32::MAX));
        let scan = GpuHeadScan {
            xbc: xbc.view(),
            delta_raw,
            delta_stride: projected,
            dt_bias: layer.mixer.dt_bias.view(),
            a: layer.mixer.a.view(),
            d: layer.mixer.d.view(),
            dims: HeadDims { heads: h, head_dim: p, d_state: n, groups: g, least: dt_limit.0, most: dt_limit.1 },
        };
        gpu.head_scan(batch, &scan, slots.states.view(), y.view())?;
        let without = || GpuError::new("a Mamba-2 without a gated norm");
        gpu.gated_rms_norm(
            y.view(),
            (zxbcdt.view(), projected),
            layer.mixer.gated_norm.as_ref().ok_or_else(without)?.view(),
            norm_epsilon,
            normed.view(),
            [rows, inner, groups],
        )?;
        layer.mixer.out_proj.apply(gpu, normed.view(), rows, stream.h)
    }
}
