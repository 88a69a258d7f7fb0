//! Mamba-2 (Dao and Gu 2024, arXiv:2405.21060), with weights in the layout of Hugging Face's `Mamba2ForCausalLM`. One
//! forward pass serves prefill, decoding, scoring and batches, as for Mamba-1.
//!
//! The scan is computed as a recurrence, even for a long prompt. The paper's chunked form uses matrix products, but its
//! sums depend on chunk boundaries: prefill, decoding and continuation from a snapshot would differ in their last bits.
//! On a CPU, equality is required; the chunked form is used on a GPU, where a tolerance is stated.

use loom_kernels::{HeadScan, Rows, head_scan, rms_norm, silu_gate};
use rayon::prelude::*;

use super::architecture::{Architecture, Segment};
use super::embedding_and_head::{EmbeddingAndHead, EmbeddingDims, EmbeddingNames, Scales};
use super::error::LoadError;
use super::linear::{add, layer_of, scale};
use super::logit_query::Scratch;
use super::network::{NetworkConfig, SequenceMemory};
use super::recurrent::{Convolution, EMBEDDING_NAMES, SsmState, StateDims, check_taps};
use super::steps::Steps;
use super::tensors::{Linear, OnCpu, Scope, Storage, TensorSource};
use crate::foundation::chat::{DeltaGains, LayerGains, SsmStats};

/// Dimensions of a Mamba-2 (Dao and Gu 2024).
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each tells whether a tensor exists")]
pub(super) struct Mamba2Config {
    pub(super) vocabulary: usize,
    pub(super) d_model: usize,
    pub(super) heads: usize,
    pub(super) head_dim: usize,
    pub(super) d_state: usize,
    /// Number of groups of heads that share B and C.
    pub(super) groups: usize,
    /// Length of the causal convolution, including the current token.
    pub(super) d_conv: usize,
    pub(super) layers: usize,
    pub(super) norm_epsilon: f32,
    /// Range that Δ is clamped to.
    pub(super) dt_limit: (f32, f32),
    /// `in_proj` has a bias.
    pub(super) use_bias: bool,
    /// `out_proj` has a bias.
    pub(super) out_bias: bool,
    pub(super) use_conv_bias: bool,
    pub(super) gated_norm: GatedNorm,
    pub(super) scales: Option<MixerScales>,
    /// The head is the embedding table.
    pub(super) tied: bool,
}

/// Where the norm of a mixer's output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GatedNorm {
    /// There is none.
    None,
    /// Before the gate multiplies the output.
    BeforeGate,
    AfterGate,
}

/// Factors inside a mixer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MixerScales {
    pub(super) input: f32,
    /// Of z, x, B, C and Δ, before the convolution.
    pub(super) parts: [f32; 5],
    pub(super) output: f32,
}

impl Mamba2Config {
    pub(super) fn d_inner(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Channels of the convolution: the heads, and B and C of every group.
    pub(super) fn d_convolved(&self) -> usize {
        self.d_inner() + 2 * self.groups * self.d_state
    }

    /// Row width of the output of `in_proj`: gate, convolution input, and Δ.
    pub(super) fn projected(&self) -> usize {
        self.d_inner() + self.d_convolved() + self.heads
    }
}

/// The network on the CPU.
pub(super) struct Mamba2 {
    config: Mamba2Config,
    embedding_and_head: EmbeddingAndHead<OnCpu>,
    layers: Vec<Layer<OnCpu>>,
}

/// The tensors of a layer.
pub(super) struct Layer<S: Storage> {
    pub(super) norm: S::Vector,
    pub(super) mixer: Mixer<S>,
}

/// The tensors between the norm and the residual stream.
pub(super) struct Mixer<S: Storage> {
    /// Projection to `[z | x | B | C | Δ]`: `d_inner`, `d_inner`, twice `groups · d_state`, and `heads` wide.
    pub(super) in_proj: Linear<S>,
    /// Over x, B and C.
    pub(super) conv: Convolution<S>,
    /// `[heads]`
    pub(super) dt_bias: S::Vector,
    /// −exp(`A_log`), `[heads]`.
    pub(super) a: S::Vector,
    pub(super) d: S::Vector,
    /// Weights of the norm of the gated output, which normalises each group of heads separately; `[d_inner]`.
    pub(super) gated_norm: Option<S::Vector>,
    pub(super) out_proj: Linear<S>,
}

impl NetworkConfig for Mamba2Config {
    type Layer<S: Storage> = Layer<S>;

    type Network = Mamba2;

    fn layers(&self) -> usize {
        self.layers
    }

    fn embedding_names(&self) -> EmbeddingNames {
        EMBEDDING_NAMES
    }

    fn embedding_dims(&self) -> EmbeddingDims {
        let &Self { vocabulary, d_model, norm_epsilon, tied, .. } = self;
        EmbeddingDims { vocabulary, d_model, norm_epsilon, tied, centred_norm: false, scales: Scales::ONE }
    }

    fn sequence_memory(&self) -> SequenceMemory {
        self.state_dims().memory()
    }

    fn check(&self) -> Result<(), LoadError> {
        check_taps(self.d_conv)
    }

    fn layer<T: TensorSource>(&self, index: usize, source: &mut T) -> Result<Layer<T::Storage>, LoadError> {
        let mut scope = Scope::new(source, format!("backbone.layers.{index}."), format!("blk.{index}."));
        Ok(Layer {
            norm: scope.norm(("norm", "attn_norm"), self.d_model)?,
            mixer: Mixer::load(self, "mixer", &mut scope)?,
        })
    }

    fn network(self, embedding_and_head: EmbeddingAndHead<OnCpu>, layers: Vec<Layer<OnCpu>>) -> Mamba2 {
        Mamba2 { config: self, embedding_and_head, layers }
    }
}

impl<S: Storage> Mixer<S> {
    /// Takes the tensors whose names in safetensors begin with `prefix`.
    pub(super) fn load<T: TensorSource<Storage = S>>(
        config: &Mamba2Config,
        prefix: &str,
        scope: &mut Scope<'_, T>,
    ) -> Result<Self, LoadError> {
        let &Mamba2Config { d_model, heads, d_conv, use_bias, out_bias, use_conv_bias, .. } = config;
        let (d_inner, convolved) = (config.d_inner(), config.d_convolved());
        let name = |part: &str| format!("{prefix}.{part}");
        Ok(Self {
            in_proj: scope.linear((&name("in_proj"), "ssm_in"), config.projected(), d_model, use_bias)?,
            conv: Convolution::load(scope, prefix, [convolved, d_conv], use_conv_bias)?,
            dt_bias: scope.vector((&name("dt_bias"), "ssm_dt.bias"), &[heads])?,
            a: scope.decay((&name("A_log"), "ssm_a"), &[heads])?,
            d: scope.vector((&name("D"), "ssm_d"), &[heads])?,
            gated_norm: match config.gated_norm {
                GatedNorm::None => None,
                _ => Some(scope.norm((&name("norm"), "ssm_norm"), d_inner)?),
            },
            out_proj: scope.linear((&name("out_proj"), "ssm_out"), d_model, d_inner, out_bias)?,
        })
    }
}

/// The buffers of a mixer in one pass, reused by every layer.
pub(super) struct MixerPass<'a> {
    /// `[rows, d_model]`: the input and output of a mixer.
    pub(super) h: &'a mut [f32],
    /// `[rows, projected]`
    pub(super) zxbcdt: &'a mut [f32],
    /// `[rows, d_convolved]`
    pub(super) xbc: &'a mut [f32],
    /// `[rows, d_inner]`
    pub(super) y: &'a mut [f32],
    pub(super) normed: &'a mut [f32],
}

/// The place of a mixer in the network.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Index of its layer, for gains.
    pub(super) layer: usize,
    /// How many layers before it have a recurrent state.
    pub(super) state: usize,
}

impl Architecture for Mamba2 {
    type State = SsmState;

    fn layers(&self) -> usize {
        self.config.layers
    }

    fn has_delta(&self) -> bool {
        true
    }

    fn vocabulary(&self) -> usize {
        self.embedding_and_head.vocabulary()
    }

    fn window(&self) -> Option<usize> {
        None
    }

    fn state_bytes(&self, _tokens: usize) -> usize {
        self.config.state_dims().bytes()
    }

    fn start(&self) -> SsmState {
        self.config.state_dims().start()
    }

    fn forward(&self, batch: &mut [Segment<'_, SsmState>], scratch: &mut Scratch) {
        let Mamba2Config { d_model, norm_epsilon, .. } = self.config;
        let rows: usize = batch.iter().map(|segment| segment.ids.len()).sum();
        let [zxbcdt, xbc, y, normed] = self.config.mixer_widths();
        let [x, h, zxbcdt, xbc, y, normed] = scratch.work.parts(rows, [d_model, d_model, zxbcdt, xbc, y, normed]);
        let mut pass = MixerPass { h, zxbcdt, xbc, y, normed };
        self.embedding_and_head.embed(batch, x);
        for (index, layer) in self.layers.iter().enumerate() {
            rms_norm(x, &layer.norm, norm_epsilon, pass.h);
            layer.mixer.apply(&self.config, Place { layer: index, state: index }, batch, |state| state, &mut pass);
            add(x, pass.h);
        }
        self.embedding_and_head.finish(batch, x, |state| &mut state.last, &mut scratch.logits);
    }

    fn next(&self, state: &SsmState, logits: &mut Vec<f32>) {
        self.embedding_and_head.logits(&state.last, logits);
    }

    fn ssm_stats(&self, state: &SsmState, steps: &Steps, gains: Option<&DeltaGains>) -> Option<SsmStats> {
        Some(self.config.stats(self.layers.iter().map(|layer| &layer.mixer).enumerate(), state, steps, gains))
    }
}

impl Mamba2Config {
    pub(super) fn state_dims(&self) -> StateDims {
        let &Self { layers, d_model, d_conv, d_state, .. } = self;
        StateDims { layers, conv: self.d_convolved() * (d_conv - 1), ssm: self.d_inner() * d_state, d_model }
    }
}

impl Mamba2Config {
    /// Multiplies z, x, B, C and Δ by their factors, if there are any.
    fn scale_parts(&self, zxbcdt: &mut [f32]) {
        let Some(scales) = self.scales else { return };
        let (inner, states) = (self.d_inner(), self.groups * self.d_state);
        for mut row in zxbcdt.chunks_exact_mut(self.projected()) {
            for (factor, width) in scales.parts.into_iter().zip([inner, inner, states, states, self.heads]) {
                scale(row.split_off_mut(..width).unwrap_or_default(), factor);
            }
        }
    }

    /// Widths of the buffers of a [`MixerPass`] after `h`.
    pub(super) fn mixer_widths(&self) -> [usize; 4] {
        [self.projected(), self.d_convolved(), self.d_inner(), self.d_inner()]
    }

    /// Statistics of Δ and of `state` for mixers with the indices of their layers.
    pub(super) fn stats<'a>(
        &self,
        mixers: impl Iterator<Item = (usize, &'a Mixer<OnCpu>)>,
        state: &'a SsmState,
        steps: &Steps,
        gains: Option<&DeltaGains>,
    ) -> SsmStats {
        let parts = state.ssm.chunks_exact(self.d_inner() * self.d_state);
        let layers: Vec<_> = mixers.zip(parts).map(|((layer, mixer), part)| (layer, &*mixer.a, part)).collect();
        steps.stats(&layers, gains)
    }
}

impl Mixer<OnCpu> {
    /// Replaces the rows of `pass.h` by the mixer's output, and advances the states of `batch`, which `of` selects.
    pub(super) fn apply<S>(
        &self,
        config: &Mamba2Config,
        place: Place,
        batch: &mut [Segment<'_, S>],
        of: impl Fn(&mut S) -> &mut SsmState + Copy,
        pass: &mut MixerPass<'_>,
    ) {
        let (d_inner, projected) = (config.d_inner(), config.projected());
        let rows: usize = batch.iter().map(|segment| segment.ids.len()).sum();
        if let Some(scales) = config.scales {
            scale(pass.h, scales.input);
        }
        self.in_proj.apply(pass.h, rows, pass.zxbcdt);
        config.scale_parts(pass.zxbcdt);
        let (_, xbc) = pass.zxbcdt.split_at(d_inner);
        self.conv.apply(batch, of, place.state, (xbc, projected), pass.xbc);
        self.scan(config, place, batch, of, pass);
        let gate = Rows::new(pass.zxbcdt, projected);
        match config.gated_norm {
            GatedNorm::AfterGate => {
                silu_gate(gate, d_inner, pass.y);
                self.norm_groups(config, pass.y, pass.normed);
            }
            GatedNorm::BeforeGate => {
                self.norm_groups(config, pass.y, pass.normed);
                silu_gate(gate, d_inner, pass.normed);
            }
            GatedNorm::None => {
                pass.normed.copy_from_slice(pass.y);
                silu_gate(gate, d_inner, pass.normed);
            }
        }
        self.out_proj.apply(pass.normed, rows, pass.h);
        if let Some(scales) = config.scales {
            scale(pass.h, scales.output);
        }
    }

    fn scan<S>(
        &self,
        config: &Mamba2Config,
        place: Place,
        batch: &mut [Segment<'_, S>],
        of: impl Fn(&mut S) -> &mut SsmState,
        pass: &mut MixerPass<'_>,
    ) {
        let &Mamba2Config { heads, head_dim, d_state, groups, dt_limit, .. } = config;
        let (d_inner, convolved, projected) = (config.d_inner(), config.d_convolved(), config.projected());
        let (mut zxbcdt, mut xbc) = (&*pass.zxbcdt, &*pass.xbc);
        let mut outputs = &mut *pass.y;
        let mut tasks = Vec::with_capacity(batch.len());
        for segment in batch {
            let len = segment.ids.len();
            let gains = segment.gains.and_then(|gains| gains.layer(place.layer)).unwrap_or(LayerGains::ONE);
            let row = zxbcdt.split_off(..len * projected).unwrap_or_default();
            let x = xbc.split_off(..len * convolved).unwrap_or_default();
            let (_, b) = x.split_at(d_inner);
            let scan = HeadScan {
                x: Rows::new(x, convolved),
                delta_raw: Rows::new(row.split_at(projected - heads).1, projected),
                dt_bias: &self.dt_bias,
                dt_limit,
                a: &self.a,
                b: Rows::new(b, convolved),
                c: Rows::new(b.split_at(groups * d_state).1, convolved),
                d: &self.d,
                head_dim,
                d_state,
                groups,
                gain_decay: gains.on_decay(),
                gain_write: gains.on_write(),
            };
            let y = outputs.split_off_mut(..len * d_inner).unwrap_or_default();
            if let Some(steps) = segment.steps.as_deref_mut() {
                steps.add(place.state, scan.delta_raw, scan.dt_bias, dt_limit, len);
            }
            tasks.push((scan, layer_of(&mut of(segment.state).ssm, place.state, d_inner * d_state), y));
        }
        tasks.into_par_iter().for_each(|(scan, state, y)| head_scan(&scan, state, y));
    }

    /// Normalises each group of heads separately.
    fn norm_groups(&self, config: &Mamba2Config, y: &[f32], normed: &mut [f32]) {
        let width = config.d_inner() / config.groups;
        let weights = self.gated_norm.iter().flat_map(|weight| weight.chunks_exact(width)).cycle();
        for ((y, normed), weight) in y.chunks_exact(width).zip(normed.chunks_exact_mut(width)).zip(weights) {
            rms_norm(y, weight, config.norm_epsilon, normed);
        }
    }
}
