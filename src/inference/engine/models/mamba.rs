//! Mamba-1 (Gu and Dao 2023, arXiv:2312.00752) and Falcon Mamba (Zuo et al. 2024, arXiv:2410.05355), with weights in
//! the layout of Hugging Face's `MambaForCausalLM` and `FalconMambaForCausalLM`. One forward pass serves prefill,
//! decoding, scoring and batches: linear layers process the rows of all sequences at once, the convolution and the scan
//! process each sequence separately.

use loom_kernels::{Rows, Scan, matmul, matmul_rows, rms_norm, selective_scan};
use rayon::prelude::*;
use serde::Deserialize;

use super::super::architecture::{Architecture, Segment};
use super::super::embedding_and_head::{EmbeddingAndHead, EmbeddingDims, EmbeddingNames};
use super::super::error::LoadError;
use super::super::family::{Family, GgufFormat, boxed};
use super::super::gguf::Gguf;
use super::super::gguf::config::ConfigFields;
use super::super::linear::{add, layer_of};
use super::super::logit_query::Scratch;
use super::super::network::{NetworkConfig, SequenceMemory};
use super::super::recurrent::{Convolution, EMBEDDING_NAMES, SsmState, StateDims, check_taps};
use super::super::steps::Steps;
use super::super::tensors::{Linear, OnCpu, Scope, Storage, TensorSource};
use super::config_json::{check_dims, check_epsilon, check_silu, epsilon, four, parse, silu, two, unsupported, yes};
use crate::foundation::base::limits::MODEL_DIM_MAX;
use crate::foundation::chat::{DeltaGains, LayerGains, SsmStats};

/// Mamba-1.
pub(super) const FAMILY: Family = Family {
    model_type: "mamba",
    parse: |json| MambaConfig::parse(json, None).map(boxed),
    gguf: Some(GgufFormat { config: gguf_config, interleaved_rotary: false }),
};

/// The fields of `config.json` from the keys of a GGUF file.
fn gguf_config(gguf: &Gguf, config: &mut ConfigFields) -> Result<(), LoadError> {
    let key = |name: &str| format!("mamba.{name}");
    if gguf.flag(&key("ssm.dt_b_c_rms"))? == Some(true) {
        return Err(gguf.malformed("it is a Mamba with norms on Δ, B and C; use its safetensors instead"));
    }
    let (width, inner) = (key("embedding_length"), key("ssm.inner_size"));
    let inner = gguf.need(&inner, gguf.number(&inner)?)? as f64;
    config.set("expand", Some(inner / gguf.need(&width, gguf.number(&width)?)?.max(1) as f64));
    config.set("state_size", gguf.number(&key("ssm.state_size"))?);
    config.set("conv_kernel", gguf.number(&key("ssm.conv_kernel"))?);
    config.set("time_step_rank", gguf.number(&key("ssm.time_step_rank"))?);
    config.set("layer_norm_epsilon", gguf.float(&key("attention.layer_norm_rms_epsilon"))?);
    config.set("use_bias", Some(gguf.has_tensor_ending("ssm_in.bias")));
    config.set("use_conv_bias", Some(gguf.has_tensor_ending("ssm_conv1d.bias")));
    Ok(())
}

/// Dimensions of a Mamba-1 (Gu and Dao 2023), named as in Hugging Face's `MambaConfig`.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct MambaConfig {
    pub(in super::super) vocabulary: usize,
    pub(in super::super) d_model: usize,
    pub(in super::super) d_inner: usize,
    pub(in super::super) d_state: usize,
    /// Length of the causal convolution, including the current token.
    pub(in super::super) d_conv: usize,
    pub(in super::super) dt_rank: usize,
    pub(in super::super) layers: usize,
    pub(in super::super) norm_epsilon: f32,
    /// Epsilon of the norms of B, C and the low-rank Δ (Falcon Mamba only).
    pub(in super::super) mixer_norms: Option<f32>,
    /// `in_proj` and `out_proj` have biases.
    pub(in super::super) use_bias: bool,
    pub(in super::super) use_conv_bias: bool,
    /// The head is the embedding table.
    pub(in super::super) tied: bool,
}

/// Fields of the file. Defaults are those of `transformers`; `residual_in_fp32` is ignored because all arithmetic is
/// f32.
#[derive(Deserialize)]
struct Raw {
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    #[serde(default = "sixteen")]
    state_size: usize,
    #[serde(default = "two")]
    expand: f64,
    intermediate_size: Option<usize>,
    #[serde(default = "four")]
    conv_kernel: usize,
    #[serde(default)]
    time_step_rank: Rank,
    #[serde(default = "epsilon")]
    layer_norm_epsilon: f32,
    #[serde(default)]
    use_bias: bool,
    #[serde(default = "yes")]
    use_conv_bias: bool,
    #[serde(default = "silu")]
    hidden_act: String,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    mixer_rms_eps: Option<f32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Rank {
    Number(usize),
    Named(String),
}

impl Default for Rank {
    fn default() -> Self {
        Self::Named("auto".to_owned())
    }
}

fn sixteen() -> usize {
    16
}

impl MambaConfig {
    /// Parses a `config.json`; `mixer_norms` is the default epsilon of the norms in Falcon Mamba, which Mamba lacks.
    pub(in super::super) fn parse(json: &str, mixer_norms: Option<f32>) -> Result<Self, LoadError> {
        let raw: Raw = parse(json)?;
        check_silu(&raw.hidden_act)?;
        // An explicit width takes precedence: `expand` is wrong in Falcon Mamba's files.
        let computed = raw.expand * raw.hidden_size as f64;
        let computed = if (1.0..=MODEL_DIM_MAX as f64).contains(&computed) { computed as usize } else { 0 };
        let d_inner = raw.intermediate_size.unwrap_or(computed);
        let dt_rank = match raw.time_step_rank {
            Rank::Number(rank) => rank,
            Rank::Named(name) if name == "auto" => raw.hidden_size.div_ceil(16),
            Rank::Named(name) => {
                return Err(unsupported(format!("`time_step_rank` \"{name}\""), "a number or \"auto\""));
            }
        };
        check_dims(&[
            ("vocab_size", raw.vocab_size),
            ("hidden_size", raw.hidden_size),
            ("intermediate_size, or expand × hidden_size", d_inner),
            ("state_size", raw.state_size),
            ("conv_kernel", raw.conv_kernel),
            ("time_step_rank", dt_rank),
            ("num_hidden_layers", raw.num_hidden_layers),
        ])?;
        check_epsilon("layer_norm_epsilon", raw.layer_norm_epsilon)?;
        let mixer_norms = mixer_norms.map(|default| raw.mixer_rms_eps.unwrap_or(default));
        check_epsilon("mixer_rms_eps", mixer_norms.unwrap_or(1e-6))?;
        Ok(Self {
            vocabulary: raw.vocab_size,
            d_model: raw.hidden_size,
            d_inner,
            d_state: raw.state_size,
            d_conv: raw.conv_kernel,
            dt_rank,
            layers: raw.num_hidden_layers,
            norm_epsilon: raw.layer_norm_epsilon,
            mixer_norms,
            use_bias: raw.use_bias,
            use_conv_bias: raw.use_conv_bias,
            tied: raw.tie_word_embeddings,
        })
    }
}

/// The network on the CPU.
pub(in super::super) struct Mamba {
    config: MambaConfig,
    embedding_and_head: EmbeddingAndHead<OnCpu>,
    layers: Vec<Layer<OnCpu>>,
    /// Weights (all ones) of Falcon Mamba's norms, as long as the widest of them.
    ones: Vec<f32>,
}

/// The tensors of a layer.
pub(in super::super) struct Layer<S: Storage> {
    pub(in super::super) norm: S::Vector,
    /// Projection to `[u | z]`, each `d_inner` wide.
    pub(in super::super) in_proj: Linear<S>,
    pub(in super::super) conv: Convolution<S>,
    /// Projection to `[Δ low-rank | B | C]`: `dt_rank`, `d_state` and `d_state` wide.
    pub(in super::super) x_proj: S::Matrix,
    pub(in super::super) dt_proj: S::Matrix,
    pub(in super::super) dt_bias: S::Vector,
    /// −exp(`A_log`), `[d_inner, d_state]`.
    pub(in super::super) a: S::Vector,
    pub(in super::super) d: S::Vector,
    pub(in super::super) out_proj: Linear<S>,
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
        EmbeddingDims { vocabulary, d_model, norm_epsilon, tied }
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
            conv: Convolution::load(&mut scope, d_inner, d_conv, self.use_conv_bias)?,
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

    const DELTA: bool = true;

    fn layers(&self) -> usize {
        self.config.layers
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
        self.embedding_and_head.finish(batch, pass.x, |state| &mut state.last, &mut scratch.logits);
    }

    fn next(&self, state: &SsmState, logits: &mut Vec<f32>) {
        self.embedding_and_head.logits(&state.last, logits);
    }

    fn ssm_stats(&self, state: &SsmState, steps: &Steps, gains: Option<&DeltaGains>) -> Option<SsmStats> {
        let parts = state.ssm.chunks_exact(self.config.d_inner * self.config.d_state);
        Some(steps.stats(self.layers.iter().map(|layer| layer.a.as_slice()).zip(parts), gains))
    }
}

impl MambaConfig {
    pub(in super::super) fn state_dims(&self) -> StateDims {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(extra: &str, why: &str) {
        let json = format!(r#"{{"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, {extra}}}"#);
        let error = MambaConfig::parse(&json, None).unwrap_err().to_string();
        assert!(error.contains(why), "{json}: {error}");
    }

    #[test]
    fn defaults_are_those_of_the_published_130m() {
        let json = r#"{"model_type": "mamba", "vocab_size": 50280, "hidden_size": 768, "num_hidden_layers": 24}"#;
        let config = MambaConfig::parse(json, None).unwrap();
        assert_eq!((config.d_inner, config.d_state, config.d_conv, config.dt_rank), (1536, 16, 4, 48));
        assert!(config.tied && config.use_conv_bias && !config.use_bias);
    }

    #[test]
    fn an_unsupported_config_names_what_is_supported() {
        check(r#""hidden_act": "gelu""#, "the activation `gelu`; supported: `silu`");
        check(r#""time_step_rank": "big""#, "`time_step_rank` \"big\"; supported: a number or \"auto\"");
        check(r#""state_size": 0"#, "`state_size` is 0; it must be in 1..=");
        check(r#""expand": -1"#, "or expand × hidden_size` is 0");
        check(r#""expand": 1e300"#, "or expand × hidden_size` is 0");
        check(r#""layer_norm_epsilon": 0"#, "`layer_norm_epsilon` must be between 0 and 1");
    }
}
