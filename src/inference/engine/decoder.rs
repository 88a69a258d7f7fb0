//! The Llama family: one decoder for Llama, Qwen2 and Qwen3 (Touvron et al. 2023, arXiv:2302.13971; Yang et al. 2024,
//! arXiv:2412.15115; Yang et al. 2025, arXiv:2505.09388), with weights in the layout of Hugging Face's
//! `LlamaForCausalLM`. They differ in norms, biases and constants, which `config.json` determines.
//!
//! The KV cache consists of pages that forks share (`decoder/cache.rs`); rotary positions are in `decoder/rope.rs`.

mod cache;
mod rope;

use loom_kernels::{Attention, AttentionMask, Rows, attend, rms_norm, silu_gate};

use self::cache::Cache;
use self::rope::RopeTable;
use super::config::DecoderConfig;
use super::embedding_and_head::{EmbeddingAndHead, EmbeddingAndHeadConfig};
use super::linear::{Linear, ScopedWeights, add};
use super::logit_query::Scratch;
use super::weights::Weights;
use super::{Architecture, LoadError, Segment};

pub(super) struct Decoder {
    pub(super) config: DecoderConfig,
    pub(super) embedding_and_head: EmbeddingAndHead,
    pub(super) rope: RopeTable,
    pub(super) layers: Vec<Layer>,
}

pub(super) struct Layer {
    pub(super) norm: Vec<f32>,
    pub(super) q_proj: Linear,
    pub(super) k_proj: Linear,
    pub(super) v_proj: Linear,
    /// Weights of the norms of queries and keys, `[head_dim]` each.
    pub(super) qk_norms: Option<(Vec<f32>, Vec<f32>)>,
    pub(super) o_proj: Linear,
    pub(super) feed_norm: Vec<f32>,
    pub(super) gate_proj: Linear,
    pub(super) up_proj: Linear,
    pub(super) down_proj: Linear,
}

/// State of a sequence.
#[derive(Debug, Clone)]
pub(super) struct DecoderState {
    cache: Cache,
    /// The residual stream after the last layer at the last token, `[d_model]`: the input of the head.
    last: Vec<f32>,
}

impl Decoder {
    /// Takes the weights that `config` describes. The caller checks that none is left over.
    pub(super) fn load(config: DecoderConfig, weights: &mut Weights<'_>) -> Result<Self, LoadError> {
        let embedding_and_head = EmbeddingAndHeadConfig {
            table: "model.embed_tokens.weight",
            norm: "model.norm.weight",
            vocabulary: config.vocabulary,
            d_model: config.d_model,
            norm_epsilon: config.norm_epsilon,
            tied: config.tied,
        };
        let embedding_and_head = EmbeddingAndHead::load(&embedding_and_head, weights)?;
        let layers = (0..config.layers).map(|index| Layer::load(&config, index, weights)).collect::<Result<_, _>>()?;
        Ok(Self { rope: RopeTable::new(config.rotary, config.head_dim), config, embedding_and_head, layers })
    }
}

impl Layer {
    fn load(config: &DecoderConfig, index: usize, weights: &mut Weights<'_>) -> Result<Self, LoadError> {
        let &DecoderConfig { d_model, d_feed, heads, kv_heads, head_dim, qkv_bias, out_bias, feed_bias, .. } = config;
        // Older files contain the frequencies; they are computed from the config instead.
        let frequencies = format!("model.layers.{index}.self_attn.rotary_emb.inv_freq");
        if weights.has(&frequencies) {
            weights.take(&frequencies, &[head_dim / 2])?;
        }
        let mut scope = ScopedWeights::new(weights, format!("model.layers.{index}."));
        let qk_norms = if config.qk_norms {
            let mut norm = |name: &str| scope.take(name, &[head_dim]);
            Some((norm("self_attn.q_norm.weight")?, norm("self_attn.k_norm.weight")?))
        } else {
            None
        };
        Ok(Self {
            norm: scope.take("input_layernorm.weight", &[d_model])?,
            q_proj: scope.linear("self_attn.q_proj", heads * head_dim, d_model, qkv_bias)?,
            k_proj: scope.linear("self_attn.k_proj", kv_heads * head_dim, d_model, qkv_bias)?,
            v_proj: scope.linear("self_attn.v_proj", kv_heads * head_dim, d_model, qkv_bias)?,
            qk_norms,
            o_proj: scope.linear("self_attn.o_proj", d_model, heads * head_dim, out_bias)?,
            feed_norm: scope.take("post_attention_layernorm.weight", &[d_model])?,
            gate_proj: scope.linear("mlp.gate_proj", d_feed, d_model, feed_bias)?,
            up_proj: scope.linear("mlp.up_proj", d_feed, d_model, feed_bias)?,
            down_proj: scope.linear("mlp.down_proj", d_model, d_feed, feed_bias)?,
        })
    }
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
    fn attention(&self, layer: &Layer, index: usize, batch: &mut [Segment<'_, DecoderState>], pass: &mut Pass<'_>) {
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
        rope::rotate(pass.q, pass.rope, heads, head_dim);
        rope::rotate(pass.k, pass.rope, kv_heads, head_dim);

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
                mask: AttentionMask::Causal { before: cache.len() - len },
            };
            let scope = len * heads * head_dim;
            attend(&attention, q.split_off(..scope).unwrap_or_default(), y.split_off_mut(..scope).unwrap_or_default());
        }
        layer.o_proj.apply(pass.y, rows, pass.h);
        add(pass.x, pass.h);
    }

    fn feed(&self, layer: &Layer, rows: usize, pass: &mut Pass<'_>) {
        let DecoderConfig { d_feed, norm_epsilon, .. } = self.config;
        rms_norm(pass.x, &layer.feed_norm, norm_epsilon, pass.h);
        layer.gate_proj.apply(pass.h, rows, pass.gate);
        layer.up_proj.apply(pass.h, rows, pass.up);
        silu_gate(Rows::new(pass.gate, d_feed), d_feed, pass.up);
        layer.down_proj.apply(pass.up, rows, pass.h);
        add(pass.x, pass.h);
    }
}
