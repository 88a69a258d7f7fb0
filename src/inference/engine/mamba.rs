//! Mamba-1 (Gu and Dao 2023, arXiv:2312.00752): weights in the layout of Hugging Face's `MambaForCausalLM`, and the one
//! forward pass that serves prefill, decode, scoring and batches. Linear layers take the rows of all sequences at
//! once; the convolution and the scan go through each sequence on its own.

use loom_kernels::{
    CONV_TAPS_MAX, Panels, Rows, Scan, causal_conv_silu, matmul, matmul_rows, rms_norm, selective_scan,
};
use rayon::prelude::*;

use super::config::MambaConfig;
use super::weights::Weights;
use super::{Architecture, LoadError, Segment};
use crate::foundation::chat::LayerGains;

pub(super) struct Mamba {
    config: MambaConfig,
    /// `None` when the head is the same matrix.
    embedding: Option<Panels>,
    layers: Vec<Layer>,
    norm: Vec<f32>,
    head: Panels,
}

struct Layer {
    norm: Vec<f32>,
    /// To `[u | z]`, each `d_inner` wide.
    in_proj: Linear,
    /// `[d_inner, d_conv]`.
    conv: Vec<f32>,
    conv_bias: Option<Vec<f32>>,
    /// To `[Δ low-rank | B | C]`: `dt_rank`, `d_state` and `d_state` wide.
    x_proj: Panels,
    dt_proj: Panels,
    dt_bias: Vec<f32>,
    /// −exp(`A_log`), `[d_inner, d_state]`.
    a: Vec<f32>,
    d: Vec<f32>,
    out_proj: Linear,
}

struct Linear {
    weight: Panels,
    bias: Option<Vec<f32>>,
}

/// What a Mamba keeps of a sequence, all layers in one piece each.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MambaState {
    /// The convolutions' last inputs, `[layers, d_inner, d_conv − 1]`.
    conv: Vec<f32>,
    /// The recurrent states, `[layers, d_inner, d_state]`.
    ssm: Vec<f32>,
    /// The residual stream after the last layer at the last token, `[d_model]`: what the head makes logits of.
    last: Vec<f32>,
}

impl Mamba {
    /// Takes the weights that `config` speaks of; the caller sees to it that none is left over.
    pub(super) fn load(config: MambaConfig, weights: &mut Weights<'_>) -> Result<Self, LoadError> {
        if config.d_conv > CONV_TAPS_MAX {
            let what = format!("a convolution over {} tokens", config.d_conv);
            return Err(LoadError::Unsupported { what, supported: "up to 16" });
        }
        let (vocabulary, d_model) = (config.vocabulary, config.d_model);
        // Older files call the table `embedding`.
        let names = ["backbone.embeddings.weight", "backbone.embedding.weight"];
        let name = names.into_iter().find(|name| weights.has(name)).unwrap_or("backbone.embeddings.weight");
        let head = "lm_head.weight";
        if config.tied && weights.has(head) {
            weights.drop_twin(head, name, &[vocabulary, d_model])?;
        }
        let table = weights.panels(name, vocabulary, d_model)?;
        let layers = (0..config.layers).map(|index| Layer::load(&config, index, weights)).collect::<Result<_, _>>()?;
        let norm = weights.take("backbone.norm_f.weight", &[d_model])?;
        let (head, embedding) =
            if config.tied { (table, None) } else { (weights.panels(head, vocabulary, d_model)?, Some(table)) };
        Ok(Self { config, embedding, layers, norm, head })
    }

    fn embed(&self, batch: &[Segment<'_, MambaState>], x: &mut [f32]) {
        let table = self.embedding.as_ref().unwrap_or(&self.head);
        let ids = batch.iter().flat_map(|segment| segment.ids);
        for (&id, row) in ids.zip(x.chunks_exact_mut(self.config.d_model)) {
            table.unpack_row(id as usize, row);
        }
    }
}

impl Layer {
    fn load(config: &MambaConfig, index: usize, weights: &mut Weights<'_>) -> Result<Self, LoadError> {
        let &MambaConfig { d_model, d_inner, d_state, d_conv, dt_rank, .. } = config;
        let full = |name: &str| format!("backbone.layers.{index}.{name}");
        let mut bias = |wanted: bool, name: &str, dim: usize| {
            if wanted { weights.take(&full(name), &[dim]).map(Some) } else { Ok(None) }
        };
        let in_bias = bias(config.use_bias, "mixer.in_proj.bias", 2 * d_inner)?;
        let out_bias = bias(config.use_bias, "mixer.out_proj.bias", d_model)?;
        let conv_bias = bias(config.use_conv_bias, "mixer.conv1d.bias", d_inner)?;
        let mut linear = |name: &str, outputs, inputs| weights.panels(&full(name), outputs, inputs);
        let in_proj = Linear { weight: linear("mixer.in_proj.weight", 2 * d_inner, d_model)?, bias: in_bias };
        let out_proj = Linear { weight: linear("mixer.out_proj.weight", d_model, d_inner)?, bias: out_bias };
        let x_proj = linear("mixer.x_proj.weight", dt_rank + 2 * d_state, d_inner)?;
        let dt_proj = linear("mixer.dt_proj.weight", d_inner, dt_rank)?;
        let a = weights.decay(&full("mixer.A_log"), &[d_inner, d_state])?;
        let mut take = |name: &str, dims: &[usize]| weights.take(&full(name), dims);
        Ok(Self {
            norm: take("norm.weight", &[d_model])?,
            in_proj,
            conv: take("mixer.conv1d.weight", &[d_inner, 1, d_conv])?,
            conv_bias,
            x_proj,
            dt_proj,
            dt_bias: take("mixer.dt_proj.bias", &[d_inner])?,
            a,
            d: take("mixer.D", &[d_inner])?,
            out_proj,
        })
    }
}

impl Linear {
    fn apply(&self, x: &[f32], rows: usize, y: &mut [f32]) {
        matmul(x, rows, &self.weight, y);
        if let Some(bias) = &self.bias {
            y.chunks_exact_mut(bias.len()).for_each(|row| add(row, bias));
        }
    }
}

fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

/// The buffers of one pass, reused by every layer.
struct Pass {
    /// `[rows, d_model]`: the residual stream, and what goes in and out of a layer.
    x: Vec<f32>,
    h: Vec<f32>,
    /// `[rows, 2·d_inner]`
    uz: Vec<f32>,
    /// `[rows, d_inner]`
    u: Vec<f32>,
    delta: Vec<f32>,
    y: Vec<f32>,
    /// `[rows, dt_rank + 2·d_state]`
    dbc: Vec<f32>,
}

impl Architecture for Mamba {
    type State = MambaState;

    fn layers(&self) -> usize {
        self.config.layers
    }

    fn vocabulary(&self) -> usize {
        self.config.vocabulary
    }

    fn start(&self) -> MambaState {
        let MambaConfig { layers, d_model, d_inner, d_conv, d_state, .. } = self.config;
        MambaState {
            conv: vec![0.0; layers * d_inner * (d_conv - 1)],
            ssm: vec![0.0; layers * d_inner * d_state],
            last: vec![0.0; d_model],
        }
    }

    fn forward(&self, batch: &mut [Segment<'_, MambaState>], logits: &mut Vec<f32>) {
        let MambaConfig { d_model, d_inner, d_state, dt_rank, norm_epsilon, .. } = self.config;
        let rows: usize = batch.iter().map(|segment| segment.ids.len()).sum();
        let zeros = |width: usize| vec![0.0; rows * width];
        let mut pass = Pass {
            x: zeros(d_model),
            h: zeros(d_model),
            uz: zeros(2 * d_inner),
            u: zeros(d_inner),
            delta: zeros(d_inner),
            y: zeros(d_inner),
            dbc: zeros(dt_rank + 2 * d_state),
        };
        self.embed(batch, &mut pass.x);
        for (index, layer) in self.layers.iter().enumerate() {
            rms_norm(&pass.x, &layer.norm, norm_epsilon, &mut pass.h);
            layer.in_proj.apply(&pass.h, rows, &mut pass.uz);
            self.convolve(layer, index, batch, &mut pass);
            matmul(&pass.u, rows, &layer.x_proj, &mut pass.dbc);
            matmul_rows(Rows::new(&pass.dbc, dt_rank + 2 * d_state), rows, &layer.dt_proj, &mut pass.delta);
            self.scan(layer, index, batch, &mut pass);
            layer.out_proj.apply(&pass.y, rows, &mut pass.h);
            add(&mut pass.x, &pass.h);
        }
        let wanted = last_rows(batch, &pass.x, d_model);
        self.logits(&wanted, logits);
    }

    fn next(&self, state: &MambaState, logits: &mut Vec<f32>) {
        self.logits(&state.last, logits);
    }
}

impl Mamba {
    fn convolve(&self, layer: &Layer, index: usize, batch: &mut [Segment<'_, MambaState>], pass: &mut Pass) {
        let MambaConfig { d_inner, d_conv, .. } = self.config;
        let mut inputs = pass.uz.as_slice();
        let mut outputs = pass.u.as_mut_slice();
        let mut tasks = Vec::with_capacity(batch.len());
        for segment in batch {
            let u = inputs.split_off(..segment.ids.len() * 2 * d_inner).unwrap_or_default();
            let y = outputs.split_off_mut(..segment.ids.len() * d_inner).unwrap_or_default();
            tasks.push((u, layer_of(&mut segment.state.conv, index, d_inner * (d_conv - 1)), y));
        }
        tasks.into_par_iter().for_each(|(u, tail, y)| {
            causal_conv_silu(Rows::new(u, 2 * d_inner), &layer.conv, layer.conv_bias.as_deref(), d_conv, tail, y);
        });
    }

    fn scan(&self, layer: &Layer, index: usize, batch: &mut [Segment<'_, MambaState>], pass: &mut Pass) {
        let MambaConfig { d_inner, d_state, dt_rank, .. } = self.config;
        let width = dt_rank + 2 * d_state;
        let (mut uz, mut u, mut delta, mut dbc) = (&*pass.uz, &*pass.u, &*pass.delta, &*pass.dbc);
        let mut outputs = pass.y.as_mut_slice();
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
            tasks.push((scan, layer_of(&mut segment.state.ssm, index, d_inner * d_state), y));
        }
        tasks.into_par_iter().for_each(|(scan, state, y)| selective_scan(&scan, state, y));
    }

    /// The head, over rows of the residual stream.
    fn logits(&self, rows: &[f32], logits: &mut Vec<f32>) {
        let mut normed = vec![0.0; rows.len()];
        rms_norm(rows, &self.norm, self.config.norm_epsilon, &mut normed);
        let rows = rows.len() / self.config.d_model;
        logits.resize(rows * self.config.vocabulary, 0.0);
        matmul(&normed, rows, &self.head, logits);
    }
}

/// Leaves each segment's last row of `x` in its state, and is the rows whose logits are wanted.
fn last_rows(batch: &mut [Segment<'_, MambaState>], mut x: &[f32], width: usize) -> Vec<f32> {
    let mut wanted = Vec::new();
    for segment in batch {
        let rows = x.split_off(..segment.ids.len() * width).unwrap_or_default().chunks_exact(width);
        if let Some(last) = rows.clone().next_back() {
            segment.state.last.copy_from_slice(last);
        }
        wanted.extend(rows.skip(segment.logits.start).take(segment.logits.len()).flatten());
    }
    wanted
}

/// The part of a state that belongs to layer `index`.
fn layer_of(state: &mut [f32], index: usize, len: usize) -> &mut [f32] {
    state.split_at_mut(index * len).1.split_at_mut(len).0
}
