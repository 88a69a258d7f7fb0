//! Mamba-1 (Gu and Dao 2023, arXiv:2312.00752) and Falcon Mamba (Zuo et al. 2024, arXiv:2410.05355): weights in the layout
//! of Hugging Face's `MambaForCausalLM` and `FalconMambaForCausalLM`, and the one forward pass that serves prefill,
//! decode, scoring and batches. Linear layers take the rows of all sequences at once; the convolution and the scan go
//! through each sequence on its own.

use loom_kernels::{Panels, Rows, Scan, matmul, matmul_rows, rms_norm, selective_scan};
use rayon::prelude::*;

use super::config::MambaConfig;
use super::ends::Ends;
use super::linear::{Linear, Part, add};
use super::recurrent::{Convolution, SsmState, StateDims, check_taps, ends, layer_of};
use super::row::Room;
use super::steps::Steps;
use super::weights::Weights;
use super::{Architecture, LoadError, Segment};
use crate::foundation::chat::{DeltaGains, LayerGains, SsmReading};

pub(super) struct Mamba {
    pub(super) config: MambaConfig,
    pub(super) ends: Ends,
    pub(super) layers: Vec<Layer>,
    /// Falcon Mamba's norms have no weights of their own: ones, as many as the widest of them needs.
    ones: Vec<f32>,
}

pub(super) struct Layer {
    pub(super) norm: Vec<f32>,
    /// To `[u | z]`, each `d_inner` wide.
    pub(super) in_proj: Linear,
    pub(super) conv: Convolution,
    /// To `[Δ low-rank | B | C]`: `dt_rank`, `d_state` and `d_state` wide.
    pub(super) x_proj: Panels,
    pub(super) dt_proj: Panels,
    pub(super) dt_bias: Vec<f32>,
    /// −exp(`A_log`), `[d_inner, d_state]`.
    pub(super) a: Vec<f32>,
    pub(super) d: Vec<f32>,
    pub(super) out_proj: Linear,
}

impl Mamba {
    /// Takes the weights that `config` speaks of; the caller sees to it that none is left over.
    pub(super) fn load(config: MambaConfig, weights: &mut Weights<'_>) -> Result<Self, LoadError> {
        check_taps(config.d_conv)?;
        let MambaConfig { vocabulary, d_model, norm_epsilon, tied, .. } = config;
        let ends = ends(weights, vocabulary, d_model, norm_epsilon, tied)?;
        let layers = (0..config.layers).map(|index| Layer::load(&config, index, weights)).collect::<Result<_, _>>()?;
        let ones = vec![1.0; config.mixer_norms.map_or(0, |_| config.dt_rank.max(config.d_state))];
        Ok(Self { config, ends, layers, ones })
    }
}

impl Layer {
    fn load(config: &MambaConfig, index: usize, weights: &mut Weights<'_>) -> Result<Self, LoadError> {
        let &MambaConfig { d_model, d_inner, d_state, d_conv, dt_rank, use_bias, .. } = config;
        let mut part = Part::new(weights, format!("backbone.layers.{index}."));
        Ok(Self {
            norm: part.take("norm.weight", &[d_model])?,
            in_proj: part.linear("mixer.in_proj", 2 * d_inner, d_model, use_bias)?,
            conv: Convolution::load(&mut part, d_inner, d_conv, config.use_conv_bias)?,
            x_proj: part.panels("mixer.x_proj.weight", dt_rank + 2 * d_state, d_inner)?,
            dt_proj: part.panels("mixer.dt_proj.weight", d_inner, dt_rank)?,
            dt_bias: part.take("mixer.dt_proj.bias", &[d_inner])?,
            a: part.decay("mixer.A_log", &[d_inner, d_state])?,
            d: part.take("mixer.D", &[d_inner])?,
            out_proj: part.linear("mixer.out_proj", d_model, d_inner, use_bias)?,
        })
    }
}

/// The buffers of one pass, reused by every layer.
struct Pass<'a> {
    /// `[rows, d_model]`: the residual stream, and what goes in and out of a layer.
    x: &'a mut [f32],
    h: &'a mut [f32],
    /// `[rows, 2·d_inner]`
    uz: &'a mut [f32],
    /// `[rows, d_inner]`
    u: &'a mut [f32],
    delta: &'a mut [f32],
    y: &'a mut [f32],
    /// `[rows, dt_rank + 2·d_state]`, and room for its norms.
    dbc: &'a mut [f32],
    normed: &'a mut [f32],
}

impl Architecture for Mamba {
    type State = SsmState;

    const DELTA: bool = true;

    fn layers(&self) -> usize {
        self.config.layers
    }

    fn vocabulary(&self) -> usize {
        self.ends.vocabulary()
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

    fn forward(&self, batch: &mut [Segment<'_, SsmState>], room: &mut Room) {
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
        let [x, h, uz, u, delta, y, dbc, normed] = room.work.parts(rows, widths);
        let mut pass = Pass { x, h, uz, u, delta, y, dbc, normed };
        self.ends.embed(batch, pass.x);
        for (index, layer) in self.layers.iter().enumerate() {
            rms_norm(pass.x, &layer.norm, norm_epsilon, pass.h);
            layer.in_proj.apply(pass.h, rows, pass.uz);
            layer.conv.apply(batch, index, pass.uz, 2 * d_inner, pass.u);
            matmul(pass.u, rows, &layer.x_proj, pass.dbc);
            if let Some(epsilon) = mixer_norms {
                self.norm_mixer(epsilon, &mut pass);
            }
            matmul_rows(Rows::new(pass.dbc, dt_rank + 2 * d_state), rows, &layer.dt_proj, pass.delta);
            self.scan(layer, index, batch, &mut pass);
            layer.out_proj.apply(pass.y, rows, pass.h);
            add(pass.x, pass.h);
        }
        self.ends.finish(batch, pass.x, |state| &mut state.last, &mut room.logits);
    }

    fn next(&self, state: &SsmState, logits: &mut Vec<f32>) {
        self.ends.logits(&state.last, logits);
    }

    fn look(&self, state: &SsmState, steps: &Steps, gains: Option<&DeltaGains>) -> Option<SsmReading> {
        let parts = state.ssm.chunks_exact(self.config.d_inner * self.config.d_state);
        Some(steps.reading(self.layers.iter().map(|layer| layer.a.as_slice()).zip(parts), gains))
    }
}

impl MambaConfig {
    pub(super) fn state_dims(&self) -> StateDims {
        let &Self { layers, d_model, d_inner, d_conv, d_state, .. } = self;
        StateDims { layers, conv: d_inner * (d_conv - 1), ssm: d_inner * d_state, d_model }
    }
}

impl Mamba {
    /// Falcon Mamba: the low rank of Δ, B and C, each normalised by itself.
    fn norm_mixer(&self, epsilon: f32, pass: &mut Pass<'_>) {
        let MambaConfig { d_state, dt_rank, .. } = self.config;
        let width = dt_rank + 2 * d_state;
        for (mut row, mut normed) in pass.dbc.chunks_exact(width).zip(pass.normed.chunks_exact_mut(width)) {
            for part in [dt_rank, d_state, d_state] {
                let (x, y) = (row.split_off(..part), normed.split_off_mut(..part));
                let (ones, _) = self.ones.split_at(part);
                rms_norm(x.unwrap_or_default(), ones, epsilon, y.unwrap_or_default());
            }
        }
        std::mem::swap(&mut pass.dbc, &mut pass.normed);
    }

    fn scan(&self, layer: &Layer, index: usize, batch: &mut [Segment<'_, SsmState>], pass: &mut Pass<'_>) {
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
