//! A sentence embedder: BERT (Devlin et al. 2018, arXiv:1810.04805) in the layout of Hugging Face's `BertModel`. The
//! rows of a text's tokens are averaged and scaled to unit length, as in sentence-transformers (Reimers and Gurevych
//! 2019, arXiv:1908.10084). `embedder.rs` is the public handle.

use loom_kernels::{Attention, AttentionMask, KvPage, PAGE_LEN, Panels, attend, gelu, layer_norm};

use super::LoadError;
use super::config::BertConfig;
use super::linear::{Linear, ScopedWeights, add};
use super::weights::Weights;
use crate::foundation::chat::TokenId;

pub(super) struct Bert {
    config: BertConfig,
    /// `[vocabulary, d_model]`
    words: Panels,
    /// `[window, d_model]`: position embeddings plus the embedding of the first segment type.
    positions: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
}

struct Norm {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
    norm: Norm,
    widen: Linear,
    narrow: Linear,
    feed_norm: Norm,
}

impl Bert {
    /// Takes the weights that an embedding needs. Others (a pooler, a task head) may remain.
    pub(super) fn load(config: BertConfig, weights: &mut Weights<'_>) -> Result<Self, LoadError> {
        let prefix = if weights.has("bert.embeddings.word_embeddings.weight") { "bert." } else { "" };
        let &BertConfig { vocabulary, d_model, window, segments, .. } = &config;
        let mut scope = ScopedWeights::new(weights, format!("{prefix}embeddings."));
        let words = scope.panels("word_embeddings.weight", vocabulary, d_model)?;
        let mut positions = scope.take("position_embeddings.weight", &[window, d_model])?;
        let segment = scope.take("token_type_embeddings.weight", &[segments, d_model])?;
        positions.chunks_exact_mut(d_model).for_each(|row| add(row, &segment));
        let norm = Norm::load(&mut scope, "LayerNorm", d_model)?;
        let layer =
            |index| Layer::load(&config, ScopedWeights::new(weights, format!("{prefix}encoder.layer.{index}.")));
        let layers = (0..config.layers).map(layer).collect::<Result<_, _>>()?;
        Ok(Self { config, words, positions, norm, layers })
    }

    /// Longest text in tokens.
    pub(super) fn window(&self) -> usize {
        self.config.window
    }

    /// Vocabulary size.
    pub(super) fn vocabulary(&self) -> usize {
        self.config.vocabulary
    }

    /// One unit vector for each of `texts`. A text has 1 to [`window`](Self::window) token ids, all inside the
    /// vocabulary.
    pub(super) fn embed(&self, texts: &[Vec<TokenId>]) -> Vec<Vec<f32>> {
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
            layer.widen.apply(&x, rows, &mut wide);
            gelu(&mut wide);
            layer.narrow.apply(&wide, rows, &mut query);
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
            let attention = Attention { pages: &pages, heads, scale, mask: AttentionMask::All(len) };
            let scope = len * d_model;
            attend(&attention, q.split_off(..scope).unwrap_or_default(), y.split_off_mut(..scope).unwrap_or_default());
        }
    }
}

impl Layer {
    fn load(config: &BertConfig, mut scope: ScopedWeights<'_, '_>) -> Result<Self, LoadError> {
        let &BertConfig { d_model, d_feed, .. } = config;
        Ok(Self {
            query: scope.linear("attention.self.query", d_model, d_model, true)?,
            key: scope.linear("attention.self.key", d_model, d_model, true)?,
            value: scope.linear("attention.self.value", d_model, d_model, true)?,
            out: scope.linear("attention.output.dense", d_model, d_model, true)?,
            norm: Norm::load(&mut scope, "attention.output.LayerNorm", d_model)?,
            widen: scope.linear("intermediate.dense", d_feed, d_model, true)?,
            narrow: scope.linear("output.dense", d_model, d_feed, true)?,
            feed_norm: Norm::load(&mut scope, "output.LayerNorm", d_model)?,
        })
    }
}

impl Norm {
    fn load(scope: &mut ScopedWeights<'_, '_>, name: &str, dim: usize) -> Result<Self, LoadError> {
        Ok(Self {
            weight: scope.take(&format!("{name}.weight"), &[dim])?,
            bias: scope.take(&format!("{name}.bias"), &[dim])?,
        })
    }

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
