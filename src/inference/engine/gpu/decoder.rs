//! The layers of the Llama family on a GPU. The KV cache consists of pages of 64 positions, with all layers of a page
//! contiguous. Forks share pages; the last page is copied on write.

use std::sync::Arc;

use loom_kernels::cuda::{AttentionPass, Buffer, Gpu, GpuError, PAGE, RowPosition as At, SequenceRows};

use super::super::architecture::Segment;
use super::super::decoder::{Activation, Attention, DecoderConfig, Feed, Gated, Layer, Mixer, NormPlaces};
use super::super::embedding_and_head::Scales;
use super::layers::{GpuLayers, GpuNetworkConfig, GpuState, ResidualStream};
use super::memory::MemoryNeeds;
use super::slots::{Pool, PoolIndex};
use super::weights::OnGpu;

/// Widest head that the kernel supports.
const HEAD_DIM_MAX: usize = 256;

pub(in super::super) struct GpuDecoder {
    config: DecoderConfig,
    layers: Vec<DenseLayer>,
    /// Cosines and sines of every position, `[window, head_dim]`.
    rope: Buffer<f32>,
    pages: Pool,
    /// `[pages, layers, kv_heads, head_dim, PAGE]` and `[pages, layers, kv_heads, PAGE, head_dim]`.
    keys: Buffer<f32>,
    values: Buffer<f32>,
    pass: Pass,
}

/// A layer with norms before attention and before a dense feed-forward network.
struct DenseLayer {
    norm: Buffer<f32>,
    attention: Attention<OnGpu>,
    feed_norm: Buffer<f32>,
    feed: Gated<OnGpu>,
}

impl DenseLayer {
    fn new(layer: Layer<OnGpu>) -> Result<Self, GpuError> {
        match layer {
            Layer {
                norm: Some(norm),
                output_norm: None,
                mixer: Mixer::Attention(attention),
                feed_norm: Some(feed_norm),
                feed_output_norm: None,
                feed: Feed::Dense(feed),
            } => Ok(Self { norm, attention, feed_norm, feed }),
            _ => Err(GpuError::new("a layer that is not supported on a GPU")),
        }
    }
}

struct Pass {
    /// Input of a layer, `[rows, d_model]`.
    normed: Buffer<f32>,
    /// `[rows, heads · head_dim]`: queries, and the output of attention (before that, the queries before their norm).
    q: Buffer<f32>,
    y: Buffer<f32>,
    /// `[rows, kv_heads · head_dim]`
    k: Buffer<f32>,
    v: Buffer<f32>,
    k_raw: Buffer<f32>,
    /// `[rows, d_feed]`
    gate: Buffer<f32>,
    up: Buffer<f32>,
    scratch: Buffer<f32>,
}

/// The KV cache of a sequence.
#[derive(Clone, Default)]
pub(in super::super) struct Cache {
    pages: Vec<Arc<PoolIndex>>,
    len: usize,
}

impl GpuDecoder {
    /// Size of one layer's keys in a page, in elements; values have the same size.
    fn unit(&self) -> usize {
        self.config.kv_heads * self.config.head_dim * PAGE
    }

    /// Allocates `new` positions at the end of `cache`, copying a shared last page.
    fn extend(&self, gpu: &Gpu, cache: &mut Cache, new: usize) -> Result<(), GpuError> {
        if let Some(shared) = cache.pages.last_mut().filter(|_| !cache.len.is_multiple_of(PAGE))
            && Arc::get_mut(shared).is_none()
        {
            let own = self.pages.take()?;
            let len = self.layers.len() * self.unit();
            let at = |page: &PoolIndex| usize::try_from(page.index()).unwrap_or_default() * len;
            for cache in [&self.keys, &self.values] {
                gpu.copy(cache.part(at(shared), len), cache.part(at(&own), len), len)?;
            }
            *shared = own;
        }
        cache.len += new;
        while cache.pages.len() < cache.len.div_ceil(PAGE) {
            cache.pages.push(self.pages.take()?);
        }
        Ok(())
    }

    /// Positions of the rows of `batch`, and page tables of its sequences.
    fn places(&self, batch: &[Segment<'_, GpuState<Cache>>]) -> Result<(Vec<At>, Vec<i32>), GpuError> {
        let number =
            |n: usize| i32::try_from(n).map_err(|_| GpuError::new("an index beyond 2³¹: run fewer sequences at once"));
        let (mut places, mut tables) = (Vec::new(), Vec::new());
        for segment in batch {
            let cache = &segment.state.data;
            let table = number(tables.len())?;
            for position in cache.len - segment.ids.len()..cache.len {
                places.push(At { position: number(position)?, table });
            }
            // The kernels count pages per layer.
            for page in &cache.pages {
                tables.push(number(usize::try_from(page.index()).unwrap_or_default() * self.layers.len())?);
            }
        }
        Ok((places, tables))
    }

    /// Number of addressable pages of the first layer in the kernels' numbering; each layer is offset by one.
    fn entries(&self) -> usize {
        self.pages.count().saturating_sub(1) * self.layers.len() + 1
    }

    fn dims(&self) -> [usize; 3] {
        let DecoderConfig { heads, kv_heads, head_dim, .. } = self.config;
        [heads, kv_heads, head_dim]
    }

    fn attention(
        &self,
        gpu: &Gpu,
        index: usize,
        layer: &Attention<OnGpu>,
        plan: &AttentionPass,
        rows: usize,
    ) -> Result<(), GpuError> {
        let DecoderConfig { heads, kv_heads, head_dim, norm_epsilon, .. } = self.config;
        let Pass { normed, q, y, k, v, k_raw, scratch, .. } = &self.pass;
        layer.v_proj.apply(gpu, normed.view(), rows, v.view())?;
        if let Some((q_norm, k_norm)) = &layer.qk_norms {
            layer.q_proj.apply(gpu, normed.view(), rows, y.view())?;
            layer.k_proj.apply(gpu, normed.view(), rows, k_raw.view())?;
            // Over each head, or over all of them.
            let dims = |heads: usize, width: usize| [rows * heads * head_dim / width.max(1), width];
            let (q_dims, k_dims) = (dims(heads, q_norm.len()), dims(kv_heads, k_norm.len()));
            gpu.rms_norm(y.view(), None, q_norm.view(), norm_epsilon, q.view(), q_dims)?;
            gpu.rms_norm(k_raw.view(), None, k_norm.view(), norm_epsilon, k.view(), k_dims)?;
        } else {
            layer.q_proj.apply(gpu, normed.view(), rows, q.view())?;
            layer.k_proj.apply(gpu, normed.view(), rows, k.view())?;
        }
        let cache = [&self.keys, &self.values].map(|cache| cache.from(index * self.unit()));
        gpu.rotary_write(plan, q.view(), [k.view(), v.view()], self.rope.view(), cache)?;
        gpu.attend(plan, q.view(), cache, self.config.attention_scale, scratch.view(), y.view())
    }
}

/// Widths of the buffers of a pass, in the order normed, q, y, k, v, k before its norm, gate, up.
fn widths(config: &DecoderConfig) -> [usize; 8] {
    let &DecoderConfig { d_model, d_feed, heads, kv_heads, head_dim, qk_norms, .. } = config;
    let (queries, keys) = (heads * head_dim, kv_heads * head_dim);
    [d_model, queries, queries, keys, keys, if qk_norms.is_some() { keys } else { 0 }, d_feed, d_feed]
}

impl Pass {
    fn new(config: &DecoderConfig, rows: usize, gpu: &Gpu) -> Result<Self, GpuError> {
        let [normed, q, y, k, v, k_raw, gate, up] = widths(config).map(|width| gpu.uninit(rows * width));
        let scratch = gpu.uninit(AttentionPass::scratch_max(rows, config.heads, config.head_dim))?;
        Ok(Self { normed: normed?, q: q?, y: y?, k: k?, v: v?, k_raw: k_raw?, gate: gate?, up: up?, scratch })
    }
}

impl GpuNetworkConfig for DecoderConfig {
    type Gpu = GpuDecoder;

    fn unsupported(&self) -> Option<&'static str> {
        let each = [
            (self.head_dim > HEAD_DIM_MAX, "a transformer whose heads are wider than 256"),
            (self.sliding.is_some(), "sliding-window attention"),
            (self.without_rotary.contains(&true), "a transformer with layers without rotary positions"),
            (self.rotary.dims < self.head_dim, "a transformer with rotary positions on part of each head"),
            (self.mamba.is_some(), "a hybrid of attention and Mamba-2"),
            (self.experts.is_some(), "a mixture of experts"),
            (self.norms != NormPlaces::Before, "a transformer with norms after attention"),
            (self.attention_cap.is_some() || self.scales.logit_cap.is_some(), "a transformer with soft caps"),
            (self.activation != Activation::Silu, "a transformer with a GELU gate"),
            (
                self.residual_scale.to_bits() != 1f32.to_bits() || self.scales != Scales::ONE,
                "a transformer with multipliers",
            ),
        ];
        each.into_iter().find(|(unsupported, _)| *unsupported).map(|(_, what)| what)
    }

    fn gpu_layers(self, gpu: &Gpu, layers: Vec<Layer<OnGpu>>) -> Result<GpuDecoder, GpuError> {
        let Self { head_dim, window, .. } = self;
        let table = self.rope();
        let mut rope = vec![0.0; window * head_dim];
        rope.chunks_exact_mut(head_dim).enumerate().for_each(|(position, rope)| table.at(position, rope));
        let none = || gpu.uninit(0);
        let (keys, values, pass) = (none()?, none()?, Pass::new(&self, 0, gpu)?);
        let pages = Pool::new("pages of keys and values", 0, 0);
        let layers = layers.into_iter().map(DenseLayer::new).collect::<Result<_, _>>()?;
        Ok(GpuDecoder { rope: gpu.upload(&rope)?, config: self, layers, pages, keys, values, pass })
    }
}

impl GpuLayers for GpuDecoder {
    const DELTA: bool = false;

    type SequenceData = Cache;

    type PassPlan = AttentionPass;

    fn layers(&self) -> usize {
        self.layers.len()
    }

    fn window(&self) -> Option<usize> {
        Some(self.config.window)
    }

    fn memory_needs(&self) -> MemoryNeeds {
        let DecoderConfig { heads, head_dim, window, .. } = self.config;
        let float = size_of::<f32>();
        let scratch = |rows| float * AttentionPass::scratch_max(rows, heads, head_dim);
        MemoryNeeds {
            slot: 0,
            page: 2 * float * self.layers.len() * self.unit(),
            longest: window.div_ceil(PAGE),
            row: float * widths(&self.config).iter().sum::<usize>() + scratch(1) - scratch(0),
            fixed: scratch(0),
        }
    }

    fn allocate(&mut self, gpu: &Gpu, rows: usize, _: usize, pages: usize) -> Result<(), GpuError> {
        self.pages = Pool::new("pages of keys and values", 0, pages);
        let len = pages * self.layers.len() * self.unit();
        (self.keys, self.values) = (gpu.uninit(len)?, gpu.uninit(len)?);
        self.pass = Pass::new(&self.config, rows, gpu)?;
        Ok(())
    }

    fn reserve(&self, gpu: &Gpu, batch: &mut [Segment<'_, GpuState<Cache>>]) -> Result<(), GpuError> {
        batch.iter_mut().try_for_each(|segment| self.extend(gpu, &mut segment.state.data, segment.ids.len()))
    }

    fn plan(
        &self,
        gpu: &Gpu,
        batch: &[Segment<'_, GpuState<Cache>>],
        _: &[SequenceRows],
    ) -> Result<AttentionPass, GpuError> {
        let (places, tables) = self.places(batch)?;
        AttentionPass::new(gpu, &places, &tables, self.entries(), self.dims())
    }

    fn allocate_plan(&self, gpu: &Gpu, rows: usize) -> Result<AttentionPass, GpuError> {
        // Tables for sequences that on average fill an eighth of the window.
        let entries = rows * self.config.window.div_ceil(8 * PAGE).max(4);
        AttentionPass::with_capacity(gpu, [rows, self.config.window, entries], self.entries(), self.dims())
    }

    fn set_decode_plan(
        &self,
        plan: &mut AttentionPass,
        batch: &[Segment<'_, GpuState<Cache>>],
        _: &[SequenceRows],
        rows: usize,
    ) -> Result<Option<usize>, GpuError> {
        let (places, tables) = self.places(batch)?;
        plan.set(&places, &tables, rows)
    }

    fn layer(
        &self,
        gpu: &Gpu,
        index: usize,
        plan: &AttentionPass,
        stream: &ResidualStream<'_>,
    ) -> Result<(), GpuError> {
        let DecoderConfig { d_model, d_feed, norm_epsilon, .. } = self.config;
        let Some(layer) = self.layers.get(index) else { return Ok(()) };
        let &ResidualStream { rows, x, added, h } = stream;
        let Pass { normed, y, gate, up, .. } = &self.pass;
        gpu.rms_norm(x, added, layer.norm.view(), norm_epsilon, normed.view(), [rows, d_model])?;
        self.attention(gpu, index, &layer.attention, plan, rows)?;
        layer.attention.o_proj.apply(gpu, y.view(), rows, h)?;
        gpu.rms_norm(x, Some(h), layer.feed_norm.view(), norm_epsilon, normed.view(), [rows, d_model])?;
        layer.feed.gate_proj.apply(gpu, normed.view(), rows, gate.view())?;
        layer.feed.up_proj.apply(gpu, normed.view(), rows, up.view())?;
        gpu.silu_gate(gate.view(), up.view(), rows * d_feed)?;
        layer.feed.down_proj.apply(gpu, up.view(), rows, h)
    }
}
