//! A sentence embedder: BERT (Devlin et al. 2018, arXiv:1810.04805) in the layout of Hugging Face's `BertModel`. The
//! rows of a text's tokens are averaged and scaled to unit length, as in sentence-transformers (Reimers and Gurevych
//! 2019, arXiv:1908.10084). `embedder.rs` is the public handle.

use loom_kernels::{Attention, AttentionMask, KvPage, PAGE_LEN, Panels, attend, gelu, layer_norm};
use serde::Deserialize;

use super::super::error::LoadError;
use super::super::linear::add;
use super::super::network::{HasSize, ModelSize, SequenceMemory};
use super::super::tensors::{Linear, OnCpu, ParameterCount, Scope, Storage, TensorSource};
use super::config_json::{FILE, check_dims, check_epsilon, parse, unsupported};
use crate::foundation::chat::TokenId;

/// Its `model_type`.
pub(super) const MODEL_TYPE: &str = "bert";

/// Dimensions of an encoder (Devlin et al. 2018, arXiv:1810.04805), named as in Hugging Face's `BertConfig`.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct BertConfig {
    pub(in super::super) vocabulary: usize,
    pub(in super::super) d_model: usize,
    pub(in super::super) d_feed: usize,
    pub(in super::super) layers: usize,
    pub(in super::super) heads: usize,
    /// Longest text in tokens.
    pub(in super::super) window: usize,
    /// Number of segment types; a single text has the first.
    pub(in super::super) segments: usize,
    pub(in super::super) norm_epsilon: f32,
}

#[derive(Deserialize)]
struct Header {
    model_type: Option<String>,
}

/// Fields of the file. Defaults are those of `transformers`.
#[derive(Deserialize)]
struct Raw {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    max_position_embeddings: usize,
    #[serde(default = "two")]
    type_vocab_size: usize,
    #[serde(default = "epsilon")]
    layer_norm_eps: f32,
    #[serde(default = "activation")]
    hidden_act: String,
    #[serde(default = "absolute")]
    position_embedding_type: String,
    #[serde(default)]
    is_decoder: bool,
}

fn two() -> usize {
    2
}

fn epsilon() -> f32 {
    1e-12
}

fn activation() -> String {
    "gelu".to_owned()
}

fn absolute() -> String {
    "absolute".to_owned()
}

impl BertConfig {
    /// Parses the text of a `config.json`.
    pub(in super::super) fn parse(json: &str) -> Result<Self, LoadError> {
        let Header { model_type } = parse(json)?;
        let kind = model_type.unwrap_or_default();
        if kind != MODEL_TYPE {
            return Err(unsupported(format!("the architecture `{kind}` for a sentence embedder"), "`bert`"));
        }
        let raw: Raw = parse(json)?;
        if raw.hidden_act != "gelu" {
            return Err(unsupported(format!("the activation `{}`", raw.hidden_act), "`gelu`"));
        }
        if raw.position_embedding_type != "absolute" || raw.is_decoder {
            return Err(unsupported(
                "relative positions or a decoder".to_owned(),
                "an encoder with absolute positions",
            ));
        }
        check_dims(&[
            ("vocab_size", raw.vocab_size),
            ("hidden_size", raw.hidden_size),
            ("intermediate_size", raw.intermediate_size),
            ("num_hidden_layers", raw.num_hidden_layers),
            ("num_attention_heads", raw.num_attention_heads),
            ("max_position_embeddings", raw.max_position_embeddings),
            ("type_vocab_size", raw.type_vocab_size),
        ])?;
        check_epsilon("layer_norm_eps", raw.layer_norm_eps)?;
        if !raw.hidden_size.is_multiple_of(raw.num_attention_heads) {
            let (width, heads) = (raw.hidden_size, raw.num_attention_heads);
            return Err(LoadError::malformed(
                FILE,
                format!("`hidden_size` is {width}, not a multiple of the {heads} of `num_attention_heads`"),
            ));
        }
        Ok(Self {
            vocabulary: raw.vocab_size,
            d_model: raw.hidden_size,
            d_feed: raw.intermediate_size,
            layers: raw.num_hidden_layers,
            heads: raw.num_attention_heads,
            window: raw.max_position_embeddings,
            segments: raw.type_vocab_size,
            norm_epsilon: raw.layer_norm_eps,
        })
    }
}

/// The network.
pub(in super::super) struct Bert {
    config: BertConfig,
    words: Panels,
    /// `[window, d_model]`: position embeddings plus the embedding of the first segment type.
    positions: Vec<f32>,
    norm: Norm<OnCpu>,
    layers: Vec<Layer<OnCpu>>,
}

/// The tensors in front of the layers.
struct Embeddings<S: Storage> {
    /// `[vocabulary, d_model]`
    words: S::Matrix,
    positions: S::Vector,
    segments: S::Vector,
    norm: Norm<S>,
}

struct Norm<S: Storage> {
    weight: S::Vector,
    bias: S::Vector,
}

struct Layer<S: Storage> {
    query: Linear<S>,
    key: Linear<S>,
    value: Linear<S>,
    out: Linear<S>,
    norm: Norm<S>,
    up: Linear<S>,
    down: Linear<S>,
    feed_norm: Norm<S>,
}

impl BertConfig {
    fn embeddings<T: TensorSource>(&self, prefix: &str, source: &mut T) -> Result<Embeddings<T::Storage>, LoadError> {
        let &Self { vocabulary, d_model, window, segments, .. } = self;
        let mut scope = Scope::new(source, format!("{prefix}embeddings."), "");
        Ok(Embeddings {
            words: scope.matrix(("word_embeddings.weight", ""), vocabulary, d_model)?,
            positions: scope.vector(("position_embeddings.weight", ""), &[window, d_model])?,
            segments: scope.vector(("token_type_embeddings.weight", ""), &[segments, d_model])?,
            norm: Norm::load(&mut scope, "LayerNorm", d_model)?,
        })
    }

    fn layer<T: TensorSource>(
        &self,
        prefix: &str,
        index: usize,
        source: &mut T,
    ) -> Result<Layer<T::Storage>, LoadError> {
        Layer::load(self, Scope::new(source, format!("{prefix}encoder.layer.{index}."), ""))
    }
}

impl HasSize for BertConfig {
    fn size(&self) -> Result<ModelSize, LoadError> {
        let (mut parameters, mut layer) = (ParameterCount::default(), ParameterCount::default());
        self.layer("", 0, &mut layer)?;
        parameters.add(layer, self.layers as u64);
        self.embeddings("", &mut parameters)?;
        // Files also contain a pooler, which an embedding does not need.
        Scope::new(&mut parameters, "pooler.", "").linear(("dense", ""), self.d_model, self.d_model, true)?;
        let memory = SequenceMemory::default();
        let window = Some(self.window);
        Ok(ModelSize { layers: self.layers, vocabulary: self.vocabulary, window, memory, parameters })
    }
}

impl Bert {
    /// Takes the weights that an embedding needs. Others (a pooler, a task head) may remain.
    pub(in super::super) fn load<T: TensorSource<Storage = OnCpu>>(
        config: BertConfig,
        source: &mut T,
    ) -> Result<Self, LoadError> {
        let prefix = if source.has("bert.embeddings.word_embeddings.weight") { "bert." } else { "" };
        let Embeddings { words, mut positions, segments, norm } = config.embeddings(prefix, source)?;
        let (segment, _) = segments.split_at(config.d_model);
        positions.chunks_exact_mut(config.d_model).for_each(|row| add(row, segment));
        let layers = (0..config.layers).map(|index| config.layer(prefix, index, source)).collect::<Result<_, _>>()?;
        Ok(Self { config, words, positions, norm, layers })
    }

    /// Longest text in tokens.
    pub(in super::super) fn window(&self) -> usize {
        self.config.window
    }

    /// Vocabulary size.
    pub(in super::super) fn vocabulary(&self) -> usize {
        self.config.vocabulary
    }

    /// One unit vector for each of `texts`. A text has 1 to [`window`](Self::window) token ids, all inside the
    /// vocabulary.
    pub(in super::super) fn embed(&self, texts: &[Vec<TokenId>]) -> Vec<Vec<f32>> {
        let &BertConfig { d_model, d_feed, norm_epsilon, .. } = &self.config;
        let rows: usize = texts.iter().map(Vec::len).sum();
        let zeros = |width: usize| vec![0.0; rows * width];
        let (mut x, mut h) = (zeros(d_model), zeros(d_model));
        let (mut query, mut key, mut value) = (zeros(d_model), zeros(d_model), zeros(d_model));
        let mut wide = zeros(d_feed);
        let mut to = h.chunks_exact_mut(d_model);
        for text in texts {
            for ((&id, position), row) in text.iter().zip(self.positions.chunks_exact(d_model)).zip(&mut to) {
                self.words.unpack_row(id as usize, row);
                add(row, position);
            }
        }
        self.norm.apply(&h, norm_epsilon, &mut x);
        for layer in &self.layers {
            layer.query.apply(&x, rows, &mut query);
            layer.key.apply(&x, rows, &mut key);
            layer.value.apply(&x, rows, &mut value);
            self.attend(texts, &query, &key, &value, &mut h);
            layer.out.apply(&h, rows, &mut query);
            add(&mut query, &x);
            layer.norm.apply(&query, norm_epsilon, &mut x);
            layer.up.apply(&x, rows, &mut wide);
            gelu(&mut wide);
            layer.down.apply(&wide, rows, &mut query);
            add(&mut query, &x);
            layer.feed_norm.apply(&query, norm_epsilon, &mut x);
        }
        let mut rows = x.as_slice();
        texts
            .iter()
            .map(|text| mean_direction(rows.split_off(..text.len() * d_model).unwrap_or_default(), d_model))
            .collect()
    }

    /// Full attention inside each text.
    fn attend(&self, texts: &[Vec<TokenId>], mut q: &[f32], k: &[f32], v: &[f32], mut y: &mut [f32]) {
        let &BertConfig { d_model, heads, .. } = &self.config;
        let (mut k, mut v) = (k.chunks_exact(d_model), v.chunks_exact(d_model));
        for text in texts {
            let len = text.len();
            let mut pages = vec![KvPage::new(heads, d_model / heads); len.div_ceil(PAGE_LEN)];
            for (at, (k, v)) in k.by_ref().zip(v.by_ref()).take(len).enumerate() {
                if let Some(page) = pages.get_mut(at / PAGE_LEN) {
                    page.write(at % PAGE_LEN, k, v);
                }
            }
            let pages: Vec<_> = pages.iter().collect();
            let scale = 1.0 / ((d_model / heads) as f32).sqrt();
            let attention = Attention { pages: &pages, heads, scale, cap: None, mask: AttentionMask::All(len) };
            let scope = len * d_model;
            attend(&attention, q.split_off(..scope).unwrap_or_default(), y.split_off_mut(..scope).unwrap_or_default());
        }
    }
}

impl<S: Storage> Layer<S> {
    fn load<T: TensorSource<Storage = S>>(config: &BertConfig, mut scope: Scope<'_, T>) -> Result<Self, LoadError> {
        let &BertConfig { d_model, d_feed, .. } = config;
        let mut linear = |name: &str, outputs, inputs| scope.linear((name, ""), outputs, inputs, true);
        let query = linear("attention.self.query", d_model, d_model)?;
        let key = linear("attention.self.key", d_model, d_model)?;
        let value = linear("attention.self.value", d_model, d_model)?;
        let out = linear("attention.output.dense", d_model, d_model)?;
        let norm = Norm::load(&mut scope, "attention.output.LayerNorm", d_model)?;
        let up = scope.linear(("intermediate.dense", ""), d_feed, d_model, true)?;
        let down = scope.linear(("output.dense", ""), d_model, d_feed, true)?;
        let feed_norm = Norm::load(&mut scope, "output.LayerNorm", d_model)?;
        Ok(Self { query, key, value, out, norm, up, down, feed_norm })
    }
}

impl<S: Storage> Norm<S> {
    fn load<T: TensorSource<Storage = S>>(scope: &mut Scope<'_, T>, name: &str, dim: usize) -> Result<Self, LoadError> {
        Ok(Self {
            weight: scope.vector((&format!("{name}.weight"), ""), &[dim])?,
            bias: scope.vector((&format!("{name}.bias"), ""), &[dim])?,
        })
    }
}

impl Norm<OnCpu> {
    fn apply(&self, x: &[f32], epsilon: f32, y: &mut [f32]) {
        layer_norm(x, &self.weight, &self.bias, epsilon, y);
    }
}

/// The mean of `rows`, scaled to unit length. Rows are summed in order.
fn mean_direction(rows: &[f32], width: usize) -> Vec<f32> {
    let mut sum = vec![0.0; width];
    rows.chunks_exact(width).for_each(|row| add(&mut sum, row));
    // Only the direction of the mean matters.
    let length = sum.iter().map(|x| x * x).sum::<f32>().sqrt();
    if length > 0.0 {
        for x in &mut sum {
            *x /= length;
        }
    }
    sum
}
