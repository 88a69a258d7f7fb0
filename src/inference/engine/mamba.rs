//! Mamba-1 (Gu and Dao 2023, arXiv:2312.00752) and Falcon Mamba (Zuo et al. 2024, arXiv:2410.05355), with weights in
//! the layout of Hugging Face's `MambaForCausalLM` and `FalconMambaForCausalLM`. One forward pass serves prefill,
//! decoding, scoring and batches: linear layers process the rows of all sequences at once, the convolution and the scan
//! process each sequence separately.

use loom_kernels::{Rows, Scan, matmul, matmul_rows, rms_norm, selective_scan};
use rayon::prelude::*;

use super::architecture::{Architecture, Segment};
use super::embedding_and_head::{EmbeddingAndHead, EmbeddingDims, EmbeddingNames, Scales};
use super::error::LoadError;
use super::linear::{add, layer_of};
use super::logit_query::Scratch;
use super::network::{NetworkConfig, SequenceMemory};
use super::recurrent::{Convolution, EMBEDDING_NAMES, SsmState, StateDims, check_taps};
use super::steps::Steps;
use super::tensors::{Linear, OnCpu, Scope, Storage, TensorSource};
use crate::foundation::chat::{DeltaGains, LayerGains, SsmStats};

/// Dimensions of a Mamba-1 (Gu and Dao 2023).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MambaConfig {
    pub(super) vocabulary: usize,
    pub(super) d_model: usize,
    pub(super) d_inner: usize,
    pub(super) d_state: usize,
    /// Length of the causal convolution, including the current token.
    pub(super) d_conv: usize,
    pub(super) dt_rank: usize,
    pub(super) layers: usize,
    pub(super) norm_epsilon: f32,
    /// Epsilon of the norms of B, C and the low-rank Δ (Falcon Mamba only).
    pub(super) mixer_norms: Option<f32>,
    /// `in_proj` and `out_proj` have biases.
    pub(super) use_bias: bool,
    pub(super) use_conv_bias: bool,
    /// The head is the embedding table.
    pub(super) tied: bool,
}

/// The network on the CPU.
pub(super) struct Mamba {
    config: MambaConfig,
    embedding_and_head: EmbeddingAndHead<OnCpu>,
    layers: Vec<Layer<OnCpu>>,
    /// Weights (all ones) of Falcon Mamba's norms, as long as the widest of them.
    ones: Vec<f32>,
}

/// The tensors of a layer.
pub(super) struct Layer<S: Storage> {
    pub(super) norm: S::Vector,
    /// Projection to `[u | z]`, each `d_inner` wide.
    pub(super) in_proj: Linear<S>,
    pub(super) conv: Convolution<S>,
    /// Projection to `[Δ low-rank | B | C]`: `dt_rank`, `d_state` and `d_state` wide.
    pub(super) x_proj: S::Matrix,
    pub(super) dt_proj: S::Matrix,
    pub(super) dt_bias: S::Vector,
    /// −exp(`A_log`), `[d_inner, d_state]`.
    pub(super) a: S::Vector,
    pub(super) d: S::Vector,
    pub(super) out_proj: Linear<S>,
}

impl NetworkConfig for MambaConfig {
    type Layer<S: Storage> = Layer<S>;

    type Network = Mamba;

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
        let &Self { d_model, d_inner, d_state, d_conv, dt_rank, use_bias, .. } = self;
        let mut scope = Scope::new(source, format!("backbone.layers.{index}."), format!("blk.{index}."));
        Ok(Layer {
            norm: scope.norm(("norm", "attn_norm"), d_model)?,
            in_proj: scope.linear(("mixer.in_proj", "ssm_in"), d_inner.saturating_mul(2), d_model, use_bias)?,
            conv: Convolution::load(&mut scope, "mixer", [d_inner, d_conv], self.use_conv_bias)?,
            x_proj: scope.low_rank_outputs(("mixer.x_proj.weight", "ssm_x.weight"), [dt_rank, 2 * d_state], d_inner)?,
            dt_proj: scope.low_rank_inputs(("mixer.dt_proj.weight", "ssm_dt.weight"), d_inner, dt_rank)?,
            dt_bias: scope.vector(("mixer.dt_proj.bias", "ssm_dt.bias"), &[d_inner])?,
            a: scope.decay(("mixer.A_log", "ssm_a"), &[d_inner, d_state])?,
            d: scope.vector(("mixer.D", "ssm_d"), &[d_inner])?,
            out_proj: scope.linear(("mixer.out_proj", "ssm_out"), d_model, d_inner, use_bias)?,
        })
    }

    fn network(self, embedding_and_head: EmbeddingAndHead<OnCpu>, layers: Vec<Layer<OnCpu>>) -> Mamba {
        let ones = vec![1.0; self.mixer_norms.map_or(0, |_| self.dt_rank.max(self.d_state))];
        Mamba { config: self, embedding_and_head, layers, ones }
    }
}

/// The buffers of one pass, reused by every layer.
struct Pass<'a> {
    /// `[rows, d_model]`: the residual stream, and the input and output of a layer.
    x: &'a mut [f32],
    h: &'a mut [f32],
    /// `[rows, 2·d_inner]`
    uz: &'a mut [f32],
    /// `[rows, d_inner]`
    u: &'a mut [f32],
    delta: &'a mut [f32],
    y: &'a mut [f32],
    /// `[rows, dt_rank + 2·d_state]`, and its normalised form.
    dbc: &'a mut [f32],
    normed: &'a mut [f32],
}

impl Architecture for Mamba {
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
        let MambaConfig { d_model, d_inner, d_state, dt_rank, norm_epsilon, mixer_norms, .. } = self.config;
        let rows: usize = batch.iter().map(|segment| segment.ids.len()).sum();
        let widths = [
            d_model,
            d_model,
            2 * d_inner,
            d_inner,
            d_inner,
            d_inner,
            dt_rank + 2 * d_state,
            mixer_norms.map_or(0, |_| dt_rank + 2 * d_state),
        ];
        let [x, h, uz, u, delta, y, dbc, normed] = scratch.work.parts(rows, widths);
        let mut pass = Pass { x, h, uz, u, delta, y, dbc, normed };
        self.embedding_and_head.embed(batch, pass.x);
        for (index, layer) in self.layers.iter().enumerate() {
            rms_norm(pass.x, &layer.norm, norm_epsilon, pass.h);
            layer.in_proj.apply(pass.h, rows, pass.uz);
            layer.conv.apply(batch, |state| state, index, (pass.uz, 2 * d_inner), pass.u);
            matmul(pass.u, rows, &layer.x_proj, pass.dbc);
            if let Some(epsilon) = mixer_norms {
                self.norm_mixer(epsilon, &mut pass);
            }
            matmul_rows(Rows::new(pass.dbc, dt_rank + 2 * d_state), rows, &layer.dt_proj, pass.delta);
            self.scan(layer, index, batch, &mut pass);
            layer.out_proj.apply(pass.y, rows, pass.h);
            add(pass.x, pass.h);
        }
        self.embedding_and_head.finish(batch, pass.x, |state| &mut state.last, &mut scratch.logits);
    }

    fn next(&self, state: &SsmState, logits: &mut Vec<f32>) {
        self.embedding_and_head.logits(&state.last, logits);
    }

    fn ssm_stats(&self, state: &SsmState, steps: &Steps, gains: Option<&DeltaGains>) -> Option<SsmStats> {
        let parts = state.ssm.chunks_exact(self.config.d_inner * self.config.d_state);
        let layers = self.layers.iter().zip(parts).enumerate();
        let layers: Vec<_> = layers.map(|(index, (layer, part))| (index, layer.a.as_slice(), part)).collect();
        Some(steps.stats(&layers, gains))
    }
}

impl MambaConfig {
    pub(super) fn state_dims(&self) -> StateDims {
        let &Self { layers, d_model, d_inner, d_conv, d_state, .. } = self;
        StateDims { layers, conv: d_inner * (d_conv - 1), ssm: d_inner * d_state, d_model }
    }
}

impl Mamba {
    /// Falcon Mamba: normalises the low-rank Δ, B and C separately.
    fn norm_mixer(&self, epsilon: f32, pass: &mut Pass<'_>) {
        let MambaConfig { d_state, dt_rank, .. } = self.config;
        let width = dt_rank + 2 * d_state;
        for (mut row, mut normed) in pass.dbc.chunks_exact(width).zip(pass.normed.chunks_exact_mut(width)) {
            for scope in [dt_rank, d_state, d_state] {
                let (x, y) = (row.split_off(..scope), normed.split_off_mut(..scope));
                let (ones, _) = self.ones.split_at(scope);
                rms_norm(x.unwrap_or_default(), ones, epsilon, y.unwrap_or_default());
            }
        }
        std::mem::swap(&mut pass.dbc, &mut pass.normed);
    }

    fn scan(&self, layer: &Layer<OnCpu>, index: usize, batch: &mut [Segment<'_, SsmState>], pass: &mut Pass<'_>) {
        let MambaConfig { d_inner, d_state, dt_rank, .. } = self.config;
        let width = dt_rank + 2 * d_state;
        let (mut uz, mut u, mut delta, mut dbc) = (&*pass.uz, &*pass.u, &*pass.delta, &*pass.dbc);
        let mut outputs = &mut *pass.y;
        let mut tasks = Vec::with_capacity(batch.len());
        for segment in batch {
            let len = segment.ids.len();
            let gains = segment.gains.and_then(|gains| gains.layer(index)).unwrap_or(LayerGains::ONE);
            let (_, bc) = dbc.split_off(..len * width).unwrap_or_default().split_at(dt_rank);
            let scan = Scan {
                u: Rows::new(u.split_off(..len * d_inner).unwrap_or_default(), d_inner),
                delta_raw: Rows::new(delta.split_off(..len * d_inner).unwrap_or_default(), d_inner),
                dt_bias: &layer.dt_bias,
                a: &layer.a,
                b: Rows::new(bc, width),
                c: Rows::new(bc.split_at(d_state).1, width),
                d: &layer.d,
                z: Some(Rows::new(
                    uz.split_off(..len * 2 * d_inner).unwrap_or_default().split_at(d_inner).1,
                    2 * d_inner,
                )),
                gain_decay: gains.on_decay(),
                gain_write: gains.on_write(),
            };
            let y = outputs.split_off_mut(..len * d_inner).unwrap_or_default();
            if let Some(steps) = segment.steps.as_deref_mut() {
                steps.add(index, scan.delta_raw, scan.dt_bias, (0.0, f32::INFINITY), len);
            }
            tasks.push((scan, layer_of(&mut segment.state.ssm, index, d_inner * d_state), y));
        }
        tasks.into_par_iter().for_each(|(scan, state, y)| selective_scan(&scan, state, y));
    }
}
