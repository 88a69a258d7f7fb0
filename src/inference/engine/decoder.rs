//! A decoder in the style of Llama (Touvron et al. 2023, arXiv:2302.13971). The families that use it differ in norms,
//! biases, constants and names; their files in `models/` fill in a [`DecoderConfig`].
//!
//! The KV cache consists of pages that forks share (`decoder/cache.rs`); rotary positions are in `decoder/rope.rs`.

mod cache;
mod rope;

use loom_kernels::{Attention, AttentionMask, Rows, attend, rms_norm, silu_gate};

use self::cache::Cache;
use self::rope::RopeTable;
pub(super) use self::rope::{Rotary, Scaling};
use super::architecture::{Architecture, Segment};
use super::embedding_and_head::{EmbeddingAndHead, EmbeddingDims, EmbeddingNames};
use super::error::LoadError;
use super::linear::add;
use super::logit_query::Scratch;
use super::network::{NetworkConfig, SequenceMemory};
use super::tensors::{Linear, OnCpu, Scope, Storage, TensorSource};

/// Dimensions of a decoder with rotary positions, grouped-query attention and a gated feed-forward network.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each tells whether a group of tensors exists")]
pub(super) struct DecoderConfig {
    pub(super) vocabulary: usize,
    pub(super) d_model: usize,
    pub(super) d_feed: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    /// Number of key-value heads; each serves `heads / kv_heads` query heads.
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) norm_epsilon: f32,
    /// Longest sequence in tokens.
    pub(super) window: usize,
    pub(super) rotary: Rotary,
    /// Layers without rotary positions, one entry per layer; empty if all have them.
    pub(super) without_rotary: Vec<bool>,
    /// Sliding-window attention, in some or all layers.
    pub(super) sliding: Option<Sliding>,
    /// Queries and keys are normalised per head (Qwen3).
    pub(super) qk_norms: bool,
    /// The projections to queries, keys and values have biases.
    pub(super) qkv_bias: bool,
    /// The projection out of attention has a bias.
    pub(super) out_bias: bool,
    /// The feed-forward's projections have biases.
    pub(super) feed_bias: bool,
    /// The head is the embedding table.
    pub(super) tied: bool,
    /// Names of its tensors.
    pub(super) names: &'static DecoderNames,
}

/// Sliding-window attention.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sliding {
    /// Positions that a row sees, its own included.
    pub(super) tokens: usize,
    pub(super) layers: SlidingLayers,
}

/// The layers whose window slides; the others see everything before.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SlidingLayers {
    /// Those from this one on.
    From(usize),
    /// One entry per layer.
    Listed(Vec<bool>),
}

/// Names of a decoder's tensors. Pairs are names in safetensors and in GGUF, inside a layer and without `.weight`.
#[derive(Debug, PartialEq)]
pub(super) struct DecoderNames {
    pub(super) table: &'static str,
    pub(super) norm: &'static str,
    /// The prefix of layers in safetensors.
    pub(super) layers: &'static str,
    pub(super) input_norm: (&'static str, &'static str),
    pub(super) q_proj: (&'static str, &'static str),
    pub(super) k_proj: (&'static str, &'static str),
    pub(super) v_proj: (&'static str, &'static str),
    pub(super) o_proj: (&'static str, &'static str),
    pub(super) q_norm: (&'static str, &'static str),
    pub(super) k_norm: (&'static str, &'static str),
    pub(super) feed_norm: (&'static str, &'static str),
    pub(super) gate_proj: (&'static str, &'static str),
    pub(super) up_proj: (&'static str, &'static str),
    pub(super) down_proj: (&'static str, &'static str),
    /// Frequencies that older files contain.
    pub(super) frequencies: &'static str,
}

/// The network on the CPU.
pub(super) struct Decoder {
    config: DecoderConfig,
    embedding_and_head: EmbeddingAndHead<OnCpu>,
    rope: RopeTable,
    layers: Vec<Layer<OnCpu>>,
}

/// The tensors of a layer.
pub(super) struct Layer<S: Storage> {
    /// Weights of the norms of queries and keys, `[head_dim]` each.
    pub(super) qk_norms: Option<(S::Vector, S::Vector)>,
    pub(super) norm: S::Vector,
    pub(super) q_proj: Linear<S>,
    pub(super) k_proj: Linear<S>,
    pub(super) v_proj: Linear<S>,
    pub(super) o_proj: Linear<S>,
    pub(super) feed_norm: S::Vector,
    pub(super) gate_proj: Linear<S>,
    pub(super) up_proj: Linear<S>,
    pub(super) down_proj: Linear<S>,
}

impl NetworkConfig for DecoderConfig {
    type Layer<S: Storage> = Layer<S>;

    type Network = Decoder;

    fn layers(&self) -> usize {
        self.layers
    }

    fn embedding_names(&self) -> EmbeddingNames {
        EmbeddingNames { tables: std::slice::from_ref(&self.names.table), norm: self.names.norm }
    }

    fn embedding_dims(&self) -> EmbeddingDims {
        let &Self { vocabulary, d_model, norm_epsilon, tied, .. } = self;
        EmbeddingDims { vocabulary, d_model, norm_epsilon, tied }
    }

    fn sequence_memory(&self) -> SequenceMemory {
        let cache = 2u64.saturating_mul((self.layers * self.kv_heads) as u64).saturating_mul(self.head_dim as u64);
        SequenceMemory { state: 0, cache_per_token: cache }
    }

    fn layer<T: TensorSource>(&self, index: usize, source: &mut T) -> Result<Layer<T::Storage>, LoadError> {
        let &Self { d_model, d_feed, heads, kv_heads, head_dim, qkv_bias, out_bias, feed_bias, names, .. } = self;
        let (queries, keys) = (heads.saturating_mul(head_dim), kv_heads.saturating_mul(head_dim));
        let mut scope = Scope::new(source, format!("{}.{index}.", names.layers), format!("blk.{index}."));
        // Older files contain the frequencies; they are computed from the config instead.
        if scope.has(names.frequencies) {
            scope.unused((names.frequencies, ""), &[head_dim / 2])?;
        }
        let qk_norms = if self.qk_norms {
            let mut norm = |name: (&str, &str)| scope.norm(name, head_dim);
            Some((norm(names.q_norm)?, norm(names.k_norm)?))
        } else {
            None
        };
        Ok(Layer {
            qk_norms,
            norm: scope.norm(names.input_norm, d_model)?,
            q_proj: scope.rotary_linear(names.q_proj, heads, [queries, d_model], qkv_bias)?,
            k_proj: scope.rotary_linear(names.k_proj, kv_heads, [keys, d_model], qkv_bias)?,
            v_proj: scope.linear(names.v_proj, keys, d_model, qkv_bias)?,
            o_proj: scope.linear(names.o_proj, d_model, queries, out_bias)?,
            feed_norm: scope.norm(names.feed_norm, d_model)?,
            gate_proj: scope.linear(names.gate_proj, d_feed, d_model, feed_bias)?,
            up_proj: scope.linear(names.up_proj, d_feed, d_model, feed_bias)?,
            down_proj: scope.linear(names.down_proj, d_model, d_feed, feed_bias)?,
        })
    }

    fn network(self, embedding_and_head: EmbeddingAndHead<OnCpu>, layers: Vec<Layer<OnCpu>>) -> Decoder {
        Decoder { rope: self.rope(), config: self, embedding_and_head, layers }
    }
}

impl DecoderConfig {
    /// What the rows after `before` positions see in layer `index`.
    fn mask(&self, index: usize, before: usize) -> AttentionMask {
        let slides = |layers: &SlidingLayers| match layers {
            SlidingLayers::From(first) => index >= *first,
            SlidingLayers::Listed(each) => each.get(index).copied().unwrap_or(false),
        };
        match &self.sliding {
            Some(Sliding { tokens, layers }) if slides(layers) => AttentionMask::Sliding { before, window: *tokens },
            _ => AttentionMask::Causal { before },
        }
    }

    pub(super) fn rope(&self) -> RopeTable {
        RopeTable::new(self.rotary, self.head_dim)
    }
}

/// State of a sequence.
#[derive(Debug, Clone)]
pub(super) struct DecoderState {
    cache: Cache,
    /// The residual stream after the last layer at the last token, `[d_model]`: the input of the head.
    last: Vec<f32>,
}

/// The buffers of one pass, reused by every layer.
struct Pass<'a> {
    /// `[rows, d_model]`: the residual stream, and the input and output of a layer.
    x: &'a mut [f32],
    h: &'a mut [f32],
    /// `[rows, heads · head_dim]`: queries, and the output of attention (before that, the queries before their norm).
    q: &'a mut [f32],
    y: &'a mut [f32],
    /// `[rows, kv_heads · head_dim]`
    k: &'a mut [f32],
    v: &'a mut [f32],
    k_raw: &'a mut [f32],
    /// `[rows, d_feed]`
    gate: &'a mut [f32],
    up: &'a mut [f32],
    /// Cosines and sines of every row's position, `[rows, head_dim]`.
    rope: &'a mut [f32],
}

impl Architecture for Decoder {
    type State = DecoderState;

    const DELTA: bool = false;

    fn layers(&self) -> usize {
        self.config.layers
    }

    fn vocabulary(&self) -> usize {
        self.embedding_and_head.vocabulary()
    }

    fn window(&self) -> Option<usize> {
        Some(self.config.window)
    }

    fn state_bytes(&self, tokens: usize) -> usize {
        let DecoderConfig { layers, kv_heads, head_dim, d_model, .. } = self.config;
        Cache::bytes(tokens, layers, kv_heads, head_dim) + size_of::<f32>() * d_model
    }

    fn start(&self) -> DecoderState {
        DecoderState { cache: Cache::default(), last: vec![0.0; self.config.d_model] }
    }

    fn forward(&self, batch: &mut [Segment<'_, DecoderState>], scratch: &mut Scratch) {
        let DecoderConfig { d_model, d_feed, layers, heads, kv_heads, head_dim, .. } = self.config;
        let rows: usize = batch.iter().map(|segment| segment.ids.len()).sum();
        let (queries, keys) = (heads * head_dim, kv_heads * head_dim);
        let widths = [d_model, d_model, queries, queries, keys, keys, keys, d_feed, d_feed, head_dim];
        let [x, h, query, out, key, value, k_raw, gate, up, rope] = scratch.work.parts(rows, widths);
        let mut pass = Pass { x, h, q: query, y: out, k: key, v: value, k_raw, gate, up, rope };
        let mut rope = pass.rope.chunks_exact_mut(head_dim);
        for segment in batch.iter_mut() {
            let cache = &mut segment.state.cache;
            let positions = cache.len()..cache.len() + segment.ids.len();
            positions.zip(&mut rope).for_each(|(position, rope)| self.rope.at(position, rope));
            cache.extend(segment.ids.len(), layers, kv_heads, head_dim);
        }
        self.embedding_and_head.embed(batch, pass.x);
        for (index, layer) in self.layers.iter().enumerate() {
            self.attention(layer, index, batch, &mut pass);
            self.feed(layer, rows, &mut pass);
        }
        self.embedding_and_head.finish(batch, pass.x, |state| &mut state.last, &mut scratch.logits);
    }

    fn next(&self, state: &DecoderState, logits: &mut Vec<f32>) {
        self.embedding_and_head.logits(&state.last, logits);
    }
}

impl Decoder {
    fn attention(
        &self,
        layer: &Layer<OnCpu>,
        index: usize,
        batch: &mut [Segment<'_, DecoderState>],
        pass: &mut Pass<'_>,
    ) {
        let DecoderConfig { d_model, heads, kv_heads, head_dim, norm_epsilon, .. } = self.config;
        let rows = pass.x.len() / d_model;
        rms_norm(pass.x, &layer.norm, norm_epsilon, pass.h);
        layer.v_proj.apply(pass.h, rows, pass.v);
        if let Some((q_norm, k_norm)) = &layer.qk_norms {
            layer.q_proj.apply(pass.h, rows, pass.y);
            layer.k_proj.apply(pass.h, rows, pass.k_raw);
            rms_norm(pass.y, q_norm, norm_epsilon, pass.q);
            rms_norm(pass.k_raw, k_norm, norm_epsilon, pass.k);
        } else {
            layer.q_proj.apply(pass.h, rows, pass.q);
            layer.k_proj.apply(pass.h, rows, pass.k);
        }
        if !self.config.without_rotary.get(index).copied().unwrap_or(false) {
            rope::rotate(pass.q, pass.rope, heads, head_dim);
            rope::rotate(pass.k, pass.rope, kv_heads, head_dim);
        }

        let width = kv_heads * head_dim;
        let (mut k, mut v) = (pass.k.chunks_exact(width), pass.v.chunks_exact(width));
        let (mut q, mut y) = (&*pass.q, &mut *pass.y);
        for segment in batch {
            let len = segment.ids.len();
            let cache = &mut segment.state.cache;
            cache.write(index, k.by_ref().take(len).zip(v.by_ref().take(len)));
            let pages = cache.pages(index);
            let attention = Attention {
                pages: &pages,
                heads,
                scale: 1.0 / (head_dim as f32).sqrt(),
                mask: self.config.mask(index, cache.len() - len),
            };
            let size = len * heads * head_dim;
            attend(&attention, q.split_off(..size).unwrap_or_default(), y.split_off_mut(..size).unwrap_or_default());
        }
        layer.o_proj.apply(pass.y, rows, pass.h);
        add(pass.x, pass.h);
    }

    fn feed(&self, layer: &Layer<OnCpu>, rows: usize, pass: &mut Pass<'_>) {
        let DecoderConfig { d_feed, norm_epsilon, .. } = self.config;
        rms_norm(pass.x, &layer.feed_norm, norm_epsilon, pass.h);
        layer.gate_proj.apply(pass.h, rows, pass.gate);
        layer.up_proj.apply(pass.h, rows, pass.up);
        silu_gate(Rows::new(pass.gate, d_feed), d_feed, pass.up);
        layer.down_proj.apply(pass.up, rows, pass.h);
        add(pass.x, pass.h);
    }
}
