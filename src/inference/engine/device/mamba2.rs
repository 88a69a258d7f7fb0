//! The layers of Mamba-2 on a GPU: a step is the recurrence, a longer segment the paper's chunked form.

use loom_kernels::cuda::{Buffer, Gpu, GpuError, GpuHeadScan, Heads, Sequence};

use super::super::Segment;
use super::super::config::Mamba2Config;
use super::super::mamba2::{Layer as CpuLayer, Mamba2};
use super::Refusal;
use super::memory::Needs;
use super::network::{Body, GpuState, Stream};
use super::recurrent::{Conv, Plan, Slots, TAPS_MAX};
use super::weights::{Linear, PIECE};

pub(super) struct GpuMamba2 {
    config: Mamba2Config,
    layers: Vec<Layer>,
    slots: Vec<Slots>,
    count: usize,
    pass: Pass,
}

struct Layer {
    norm: Buffer<f32>,
    in_proj: Linear,
    conv: Conv,
    dt_bias: Buffer<f32>,
    a: Buffer<f32>,
    d: Buffer<f32>,
    gated_norm: Buffer<f32>,
    out_proj: Linear,
}

struct Pass {
    /// `[rows, projected]`
    zxbcdt: Buffer<f32>,
    /// `[rows, d_convolved]`
    xbc: Buffer<f32>,
    /// `[rows, d_inner]`
    y: Buffer<f32>,
    /// `[rows, d_inner]`; also what goes into a layer.
    normed: Buffer<f32>,
}

impl Layer {
    fn new(layer: &CpuLayer, gpu: &Gpu) -> Result<Self, GpuError> {
        Ok(Self {
            norm: gpu.upload(&layer.norm)?,
            in_proj: Linear::new(gpu, &layer.in_proj)?,
            conv: Conv::new(gpu, &layer.conv)?,
            dt_bias: gpu.upload(&layer.dt_bias)?,
            a: gpu.upload(&layer.a)?,
            d: gpu.upload(&layer.d)?,
            gated_norm: gpu.upload(&layer.gated_norm)?,
            out_proj: Linear::new(gpu, &layer.out_proj)?,
        })
    }
}

impl GpuMamba2 {
    pub(super) fn new(model: &Mamba2, gpu: &Gpu) -> Result<Self, Refusal> {
        let config = model.config.clone();
        let wide = config.d_model.is_multiple_of(PIECE) && config.d_inner().is_multiple_of(PIECE);
        if config.d_conv > TAPS_MAX || !wide {
            return Err(Refusal::Unserved(
                "a Mamba-2 whose convolution is longer than 8 or whose widths are not multiples of 8",
            ));
        }
        let layers = model.layers.iter().map(|layer| Layer::new(layer, gpu)).collect::<Result<Vec<_>, _>>()?;
        let pass = Pass::new(&config, 0, gpu)?;
        Ok(Self { config, layers, slots: Vec::new(), count: 0, pass })
    }
}

fn widths(config: &Mamba2Config) -> [usize; 4] {
    let inner = config.d_inner();
    [config.projected(), config.d_convolved(), inner, inner.max(config.d_model)]
}

impl Pass {
    fn new(config: &Mamba2Config, rows: usize, gpu: &Gpu) -> Result<Self, GpuError> {
        let [zxbcdt, xbc, y, normed] = widths(config).map(|width| gpu.room(rows * width));
        Ok(Self { zxbcdt: zxbcdt?, xbc: xbc?, y: y?, normed: normed? })
    }
}

impl Body for GpuMamba2 {
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
        let Mamba2Config { d_model, heads, head_dim, d_state, groups, dt_limit, norm_epsilon, .. } = self.config;
        let (inner, projected) = (self.config.d_inner(), self.config.projected());
        let (Some(layer), Some(slots)) = (self.layers.get(index), self.slots.get(index)) else { return Ok(()) };
        let (batch, rows) = (plan.at(index), stream.rows);
        let Pass { zxbcdt, xbc, y, normed } = &self.pass;
        gpu.rms_norm(stream.x, stream.added, layer.norm.view(), norm_epsilon, normed.view(), [rows, d_model])?;
        layer.in_proj.apply(gpu, normed.view(), rows, zxbcdt.view())?;
        layer.conv.apply(gpu, batch, slots, (zxbcdt.from(inner), projected), xbc.view())?;
        let [h, p, n, g] = [heads, head_dim, d_state, groups].map(|dim| i32::try_from(dim).unwrap_or(i32::MAX));
        let scan = GpuHeadScan {
            xbc: xbc.view(),
            delta_raw: zxbcdt.from(projected - heads),
            delta_stride: projected,
            dt_bias: layer.dt_bias.view(),
            a: layer.a.view(),
            d: layer.d.view(),
            dims: Heads { heads: h, head_dim: p, d_state: n, groups: g, least: dt_limit.0, most: dt_limit.1 },
        };
        gpu.head_scan(batch, &scan, slots.states.view(), y.view())?;
        gpu.gated_rms_norm(
            y.view(),
            (zxbcdt.view(), projected),
            layer.gated_norm.view(),
            norm_epsilon,
            normed.view(),
            [rows, inner, groups],
        )?;
        layer.out_proj.apply(gpu, normed.view(), rows, stream.h)
    }
}
