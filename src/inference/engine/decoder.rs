//! A decoder in the style of Llama (Touvron et al. 2023, arXiv:2302.13971). The families that use it differ in norms,
//! biases, constants and names, in positions and windows, in the kinds of their layers and of the networks in them; their
//! files in `models/` fill in a [`DecoderConfig`].
//!
//! The tensors of a layer are in `decoder/layer.rs`, mixtures of experts in `decoder/experts.rs`, rotary positions in
//! `decoder/rope.rs`. The KV cache consists of pages that forks share (`decoder/cache.rs`). Layers of Mamba-2 keep a
//! recurrent state instead, or beside it.

mod cache;
mod experts;
mod layer;
mod rope;

use loom_kernels::{Attention as Heads, AttentionMask, Rows, attend, gelu_tanh_gate, rms_norm, silu_gate};

use self::cache::Cache;
use self::experts::ExpertScratch;
pub(super) use self::layer::{Attention, DecoderNames, ExpertNames, Feed, FeedNames, Fused, Gated, Layer, Mixer};
use self::rope::RopeTable;
pub(super) use self::rope::{Rotary, Scaling};
use super::architecture::{Architecture, Segment};
use super::embedding_and_head::{EmbeddingAndHead, EmbeddingDims, EmbeddingNames, Scales};
use super::error::LoadError;
use super::linear::{add, scale};
use super::logit_query::Scratch;
use super::mamba2::{self, Mamba2Config, MixerPass, Place};
use super::network::{NetworkConfig, SequenceMemory};
use super::recurrent::{SsmState, StateDims, check_taps};
use super::steps::Steps;
use super::tensors::{OnCpu, Storage, TensorSource};
use crate::foundation::chat::{DeltaGains, SsmStats};

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
    /// Rotary positions of layers whose window slides, if they have others.
    pub(super) local_rotary: Option<Rotary>,
    /// Layers without rotary positions, one entry per layer; empty if all have them.
    pub(super) without_rotary: Vec<bool>,
    /// Sliding-window attention, in some or all layers.
    pub(super) sliding: Option<Sliding>,
    /// Norms of queries and keys.
    pub(super) qk_norms: Option<QkNorms>,
    /// Norms of layers.
    pub(super) norms: NormPlaces,
    /// The weights of norms are stored as their differences from 1.
    pub(super) centred_norms: bool,
    /// Multiplies the products of queries and keys.
    pub(super) attention_scale: f32,
    /// Soft cap of these products.
    pub(super) attention_cap: Option<f32>,
    /// The function of the gate of feed-forward networks.
    pub(super) activation: Activation,
    /// Multiplies what a mixer or a feed-forward network adds to the residual stream.
    pub(super) residual_scale: f32,
    /// Factors of embeddings and logits.
    pub(super) scales: Scales,
    /// Layers with a mixture of experts.
    pub(super) experts: Option<ExpertsConfig>,
    /// Layers with Mamba-2 in place of attention, or beside it.
    pub(super) mamba: Option<MambaLayers>,
    /// Factors inside layers.
    pub(super) multipliers: Option<Multipliers>,
    /// What layers have if none has both a mixer and a feed-forward network, one entry per layer; empty if all have both.
    pub(super) halves: Vec<Half>,
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

/// Over what queries and keys are normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QkNorms {
    /// Each head.
    PerHead,
    /// All heads together.
    Whole,
}

/// Where the norms of a layer are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NormPlaces {
    /// Before attention and feed-forward network.
    Before,
    /// After them, before the residual stream.
    After,
    Both,
}

/// The function of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activation {
    Silu,
    /// GELU in its approximation by tanh.
    GeluTanh,
    /// The square of the positive part, in a feed-forward network without a gate.
    SquaredRelu,
}

/// Dimensions of a mixture of experts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ExpertsConfig {
    pub(super) count: usize,
    /// How many experts compute a row.
    pub(super) chosen: usize,
    /// Inner width of an expert.
    pub(super) d_feed: usize,
    /// Inner width of an expert that every row uses, if there is one.
    pub(super) d_shared: Option<usize>,
    pub(super) weighting: Weighting,
    /// Layers that have a dense network instead, one entry per layer; empty if none.
    pub(super) dense: Vec<bool>,
}

/// The weights of the chosen experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weighting {
    /// Their probabilities among all experts.
    AmongAll,
    /// Their probabilities among the chosen ones.
    AmongChosen,
}

/// Layers with Mamba-2.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MambaLayers {
    pub(super) config: Mamba2Config,
    /// One entry per layer.
    pub(super) listed: Vec<bool>,
    /// These layers have attention, too: both read the same input, and their outputs are added.
    pub(super) beside_attention: bool,
}

/// What a layer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    Mixer,
    Feed,
}

/// Factors inside a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Multipliers {
    /// Of the input and the output of attention, and of its keys.
    pub(super) attention_in: f32,
    pub(super) attention_out: f32,
    pub(super) key: f32,
    /// Of the gate before its function, and of the output of the feed-forward network.
    pub(super) gate: f32,
    pub(super) down: f32,
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

/// The network on the CPU.
pub(super) struct Decoder {
    config: DecoderConfig,
    embedding_and_head: EmbeddingAndHead<OnCpu>,
    rope: RopeTable,
    local_rope: Option<RopeTable>,
    layers: Vec<Layer<OnCpu>>,
}

impl NetworkConfig for DecoderConfig {
    type Layer<S: Storage> = Layer<S>;

    type Network = Decoder;

    fn layers(&self) -> usize {
        self.layers
    }

    fn embedding_names(&self) -> EmbeddingNames {
        EmbeddingNames { tables: self.names.tables, norms: self.names.norms }
    }

    fn embedding_dims(&self) -> EmbeddingDims {
        let &Self { vocabulary, d_model, norm_epsilon, tied, centred_norms: centred_norm, scales, .. } = self;
        EmbeddingDims { vocabulary, d_model, norm_epsilon, tied, centred_norm, scales }
    }

    fn sequence_memory(&self) -> SequenceMemory {
        let cache = 2u64.saturating_mul((self.attention_layers() * self.kv_heads) as u64);
        SequenceMemory {
            state: self.state_dims().memory().state,
            cache_per_token: cache.saturating_mul(self.head_dim as u64),
        }
    }

    fn window(&self) -> Option<usize> {
        Some(self.window)
    }

    fn others(&self) -> &'static [&'static str] {
        self.names.others
    }

    fn layer_kinds(&self) -> Vec<(usize, usize)> {
        if self.experts.is_none() && self.mamba.is_none() {
            return vec![(0, self.layers)];
        }
        let kind = |index| (self.recurrent(index).is_some(), self.experts(index).is_some(), self.half(index));
        let mut kinds: Vec<(usize, usize)> = Vec::new();
        for index in 0..self.layers {
            match kinds.iter_mut().find(|(first, _)| kind(*first) == kind(index)) {
                Some((_, count)) => *count += 1,
                None => kinds.push((index, 1)),
            }
        }
        kinds
    }

    fn check(&self) -> Result<(), LoadError> {
        self.mamba.as_ref().map_or(Ok(()), |mamba| check_taps(mamba.config.d_conv))
    }

    fn layer<T: TensorSource>(&self, index: usize, source: &mut T) -> Result<Layer<T::Storage>, LoadError> {
        Layer::load(self, index, source)
    }

    fn network(self, embedding_and_head: EmbeddingAndHead<OnCpu>, layers: Vec<Layer<OnCpu>>) -> Decoder {
        let local_rope = self.local_rotary.as_ref().map(RopeTable::new);
        Decoder { rope: self.rope(), local_rope, config: self, embedding_and_head, layers }
    }
}

impl DecoderConfig {
    /// Mamba-2 of layer `index`, if it is one.
    fn recurrent(&self, index: usize) -> Option<&Mamba2Config> {
        self.mamba.as_ref().filter(|mamba| mamba.listed.get(index) == Some(&true)).map(|mamba| &mamba.config)
    }

    /// The mixture of experts of layer `index`, if it has one.
    fn experts(&self, index: usize) -> Option<&ExpertsConfig> {
        self.experts.as_ref().filter(|experts| experts.dense.get(index) != Some(&true))
    }

    /// Number of layers with attention before layer `index`.
    fn attention_before(&self, index: usize) -> usize {
        let has = |layer: &usize| self.half(*layer) != Some(Half::Feed);
        let mixers = (0..index).filter(has).count();
        if self.beside_attention() { mixers } else { mixers - self.recurrent_before(index) }
    }

    /// What layer `index` has, if not both halves.
    fn half(&self, index: usize) -> Option<Half> {
        self.halves.get(index).copied()
    }

    fn beside_attention(&self) -> bool {
        self.mamba.as_ref().is_some_and(|mamba| mamba.beside_attention)
    }

    /// Number of layers with Mamba-2 before layer `index`.
    fn recurrent_before(&self, index: usize) -> usize {
        let listed = self.mamba.iter().flat_map(|mamba| mamba.listed.iter().take(index));
        listed.filter(|recurrent| **recurrent).count()
    }

    fn attention_layers(&self) -> usize {
        self.attention_before(self.layers)
    }

    /// Lengths of the recurrent states.
    fn state_dims(&self) -> StateDims {
        let none = StateDims { layers: 0, conv: 0, ssm: 0, d_model: self.d_model };
        let layers = self.recurrent_before(self.layers);
        self.mamba.as_ref().map_or(none, |mamba| StateDims { layers, ..mamba.config.state_dims() })
    }

    fn slides(&self, index: usize) -> Option<usize> {
        self.sliding.as_ref().filter(|sliding| sliding.layers.has(index)).map(|sliding| sliding.tokens)
    }

    /// What the rows after `before` positions see in layer `index`.
    fn mask(&self, index: usize, before: usize) -> AttentionMask {
        match self.slides(index) {
            Some(window) => AttentionMask::Sliding { before, window },
            None => AttentionMask::Causal { before },
        }
    }

    pub(super) fn rope(&self) -> RopeTable {
        RopeTable::new(&self.rotary)
    }
}

impl SlidingLayers {
    fn has(&self, index: usize) -> bool {
        match self {
            Self::From(first) => index >= *first,
            Self::Listed(each) => each.get(index).copied().unwrap_or(false),
        }
    }
}

/// State of a sequence.
#[derive(Debug, Clone)]
pub(super) struct DecoderState {
    /// Keys and values of layers with attention.
    cache: Cache,
    /// States of layers with Mamba-2, and the residual stream after the last layer at the last token.
    recurrent: SsmState,
}

/// The buffers of one pass, reused by every layer.
struct Pass<'a> {
    /// `[rows, d_model]`: the residual stream, the input and output of a layer, and the latter normalised.
    x: &'a mut [f32],
    h: &'a mut [f32],
    normed: &'a mut [f32],
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
    /// Cosines and sines of every row's position, `[rows, rotary dims]`, and those of layers whose window slides.
    rope: &'a mut [f32],
    local_rope: &'a mut [f32],
    /// Buffers of Mamba-2 (`h` is the above).
    mamba: [&'a mut [f32]; 4],
    experts: ExpertScratch,
}

impl Architecture for Decoder {
    type State = DecoderState;

    fn layers(&self) -> usize {
        self.config.layers
    }

    fn has_delta(&self) -> bool {
        self.config.mamba.is_some()
    }

    fn vocabulary(&self) -> usize {
        self.embedding_and_head.vocabulary()
    }

    fn window(&self) -> Option<usize> {
        Some(self.config.window)
    }

    fn state_bytes(&self, tokens: usize) -> usize {
        let DecoderConfig { kv_heads, head_dim, .. } = self.config;
        Cache::bytes(tokens, self.config.attention_layers(), kv_heads, head_dim) + self.config.state_dims().bytes()
    }

    fn start(&self) -> DecoderState {
        DecoderState { cache: Cache::default(), recurrent: self.config.state_dims().start() }
    }

    fn forward(&self, batch: &mut [Segment<'_, DecoderState>], scratch: &mut Scratch) {
        let DecoderConfig { d_model, d_feed, heads, kv_heads, head_dim, .. } = self.config;
        let rows: usize = batch.iter().map(|segment| segment.ids.len()).sum();
        let (queries, keys) = (heads * head_dim, kv_heads * head_dim);
        let (turned, local) =
            (self.config.rotary.dims, self.config.local_rotary.as_ref().map_or(0, |rotary| rotary.dims));
        let [zxbcdt, xbc, inner, gated] =
            self.config.mamba.as_ref().map_or([0; 4], |mamba| mamba.config.mixer_widths());
        let widths = [
            d_model, d_model, d_model, queries, queries, keys, keys, keys, d_feed, d_feed, turned, local, zxbcdt, xbc,
            inner, gated,
        ];
        let [x, h, normed, query, out, key, value, k_raw, gate, up, rope, local_rope, zxbcdt, xbc, inner, gated] =
            scratch.work.parts(rows, widths);
        let mut pass = Pass {
            x,
            h,
            normed,
            q: query,
            y: out,
            k: key,
            v: value,
            k_raw,
            gate,
            up,
            rope,
            local_rope,
            mamba: [zxbcdt, xbc, inner, gated],
            experts: ExpertScratch::default(),
        };
        let tables = [(Some(&self.rope), &mut *pass.rope), (self.local_rope.as_ref(), &mut *pass.local_rope)];
        for (table, turns) in tables {
            let Some(table) = table else { continue };
            let mut turns = turns.chunks_exact_mut(turns.len() / rows.max(1));
            for segment in &*batch {
                let read = segment.state.cache.len();
                let positions = read..read + segment.ids.len();
                positions.zip(&mut turns).for_each(|(position, turns)| table.at(position, turns));
            }
        }
        let layers = self.config.attention_layers();
        for segment in batch.iter_mut() {
            segment.state.cache.extend(segment.ids.len(), layers, kv_heads, head_dim);
        }
        self.embedding_and_head.embed(batch, pass.x);
        for (index, layer) in self.layers.iter().enumerate() {
            if !matches!(layer.mixer, Mixer::None) {
                self.norm(layer.norm.as_deref(), &mut pass);
            }
            match &layer.mixer {
                Mixer::None => {}
                Mixer::Attention(attention) => self.attention(attention, index, batch, &mut pass),
                Mixer::Mamba2(mixer) => self.recurrence(mixer, index, batch, &mut pass),
                Mixer::Both(both) => {
                    let (attention, mixer) = &**both;
                    pass.normed.copy_from_slice(pass.h);
                    self.recurrence(mixer, index, batch, &mut pass);
                    pass.normed.swap_with_slice(pass.h);
                    self.attention(attention, index, batch, &mut pass);
                    add(pass.h, pass.normed);
                }
            }
            if !matches!(layer.mixer, Mixer::None) {
                self.add(layer.output_norm.as_deref(), &mut pass);
            }
            if matches!(layer.feed, Feed::None) {
                continue;
            }
            self.norm(layer.feed_norm.as_deref(), &mut pass);
            match &layer.feed {
                Feed::None => {}
                Feed::Plain([up_proj, down_proj]) => {
                    up_proj.apply(pass.h, rows, pass.up);
                    pass.up.iter_mut().for_each(|x| *x = x.max(0.0).powi(2));
                    down_proj.apply(pass.up, rows, pass.h);
                }
                Feed::Dense(gated) => self.gated(gated, d_feed, rows, &mut pass),
                Feed::Experts(experts) => {
                    if let Some(config) = self.config.experts(index) {
                        let activation = self.config.activation;
                        experts.apply(config, activation, d_model, pass.h, &mut pass.experts);
                    }
                }
            }
            self.add(layer.feed_output_norm.as_deref(), &mut pass);
        }
        self.embedding_and_head.finish(batch, pass.x, |state| &mut state.recurrent.last, &mut scratch.logits);
    }

    fn next(&self, state: &DecoderState, logits: &mut Vec<f32>) {
        self.embedding_and_head.logits(&state.recurrent.last, logits);
    }

    fn ssm_stats(&self, state: &DecoderState, steps: &Steps, gains: Option<&DeltaGains>) -> Option<SsmStats> {
        let mixers = self.layers.iter().enumerate().filter_map(|(index, layer)| match &layer.mixer {
            Mixer::Mamba2(mixer) => Some((index, mixer)),
            Mixer::Both(both) => Some((index, &both.1)),
            Mixer::Attention(_) | Mixer::None => None,
        });
        let config = &self.config.mamba.as_ref()?.config;
        Some(config.stats(mixers, &state.recurrent, steps, gains))
    }
}

impl Decoder {
    /// The input of a mixer or feed-forward network: the residual stream, normalised if there is a norm before it.
    fn norm(&self, weight: Option<&[f32]>, pass: &mut Pass<'_>) {
        match weight {
            Some(weight) => rms_norm(pass.x, weight, self.config.norm_epsilon, pass.h),
            None => pass.h.copy_from_slice(pass.x),
        }
    }

    /// Adds the output of a mixer or feed-forward network to the residual stream, normalised if there is a norm after it.
    fn add(&self, weight: Option<&[f32]>, pass: &mut Pass<'_>) {
        let factor = self.config.residual_scale;
        let out = match weight {
            Some(weight) => {
                rms_norm(pass.h, weight, self.config.norm_epsilon, pass.normed);
                &mut *pass.normed
            }
            None => &mut *pass.h,
        };
        scale(out, factor);
        add(pass.x, out);
    }

    /// Mamba-2 of layer `index`.
    fn recurrence(
        &self,
        mixer: &mamba2::Mixer<OnCpu>,
        index: usize,
        batch: &mut [Segment<'_, DecoderState>],
        pass: &mut Pass<'_>,
    ) {
        let Some(config) = self.config.recurrent(index) else { return };
        let place = Place { layer: index, state: self.config.recurrent_before(index) };
        let [zxbcdt, xbc, y, normed] = pass.mamba.each_mut().map(|buffer| &mut **buffer);
        let mut pass = MixerPass { h: pass.h, zxbcdt, xbc, y, normed };
        mixer.apply(config, place, batch, |state| &mut state.recurrent, &mut pass);
    }

    fn attention(
        &self,
        layer: &Attention<OnCpu>,
        index: usize,
        batch: &mut [Segment<'_, DecoderState>],
        pass: &mut Pass<'_>,
    ) {
        let DecoderConfig { d_model, heads, kv_heads, head_dim, norm_epsilon, .. } = self.config;
        let rows = pass.x.len() / d_model;
        if let Some(multipliers) = &self.config.multipliers {
            scale(pass.h, multipliers.attention_in);
        }
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
        if let Some(multipliers) = &self.config.multipliers {
            scale(pass.k, multipliers.key);
        }
        if !self.config.without_rotary.get(index).copied().unwrap_or(false) {
            let (rotary, turns) = match &self.config.local_rotary {
                Some(local) if self.config.slides(index).is_some() => (local, &*pass.local_rope),
                _ => (&self.config.rotary, &*pass.rope),
            };
            rope::rotate(pass.q, turns, rotary.dims, heads, head_dim);
            rope::rotate(pass.k, turns, rotary.dims, kv_heads, head_dim);
        }

        let width = kv_heads * head_dim;
        let (mut k, mut v) = (pass.k.chunks_exact(width), pass.v.chunks_exact(width));
        let (mut q, mut y) = (&*pass.q, &mut *pass.y);
        let cached = self.config.attention_before(index);
        for segment in batch {
            let len = segment.ids.len();
            let cache = &mut segment.state.cache;
            cache.write(cached, k.by_ref().take(len).zip(v.by_ref().take(len)));
            let pages = cache.pages(cached);
            let attention = Heads {
                pages: &pages,
                heads,
                scale: self.config.attention_scale,
                cap: self.config.attention_cap,
                mask: self.config.mask(index, cache.len() - len),
            };
            let size = len * heads * head_dim;
            attend(&attention, q.split_off(..size).unwrap_or_default(), y.split_off_mut(..size).unwrap_or_default());
        }
        layer.o_proj.apply(pass.y, rows, pass.h);
        if let Some(multipliers) = &self.config.multipliers {
            scale(pass.h, multipliers.attention_out);
        }
    }

    fn gated(&self, layer: &Gated<OnCpu>, d_feed: usize, rows: usize, pass: &mut Pass<'_>) {
        let [h, gate, up] = [&mut *pass.h, &mut *pass.gate, &mut *pass.up];
        layer.gate_proj.apply(h, rows, gate);
        if let Some(multipliers) = &self.config.multipliers {
            scale(gate, multipliers.gate);
        }
        layer.finish(self.config.activation, d_feed, rows, [&mut *h, gate, up]);
        if let Some(multipliers) = &self.config.multipliers {
            scale(h, multipliers.down);
        }
    }
}

impl Gated<OnCpu> {
    /// Replaces the rows of h by the output; `gate` and `up` are buffers, `[rows, d_feed]`.
    fn apply(&self, activation: Activation, d_feed: usize, rows: usize, [h, gate, up]: [&mut [f32]; 3]) {
        self.gate_proj.apply(h, rows, gate);
        self.finish(activation, d_feed, rows, [h, gate, up]);
    }

    /// The rest of [`apply`](Self::apply), after the product of h and `gate_proj` in `gate`.
    fn finish(&self, activation: Activation, d_feed: usize, rows: usize, [h, gate, up]: [&mut [f32]; 3]) {
        self.up_proj.apply(h, rows, up);
        match activation {
            Activation::Silu => silu_gate(Rows::new(gate, d_feed), d_feed, up),
            Activation::GeluTanh => gelu_tanh_gate(Rows::new(gate, d_feed), d_feed, up),
            // Networks of this kind are `Feed::Plain`.
            Activation::SquaredRelu => {}
        }
        self.down_proj.apply(up, rows, h);
    }
}
