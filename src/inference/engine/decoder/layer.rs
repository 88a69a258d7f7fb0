//! The tensors of a decoder's layer: a mixer (attention, in hybrids also Mamba-2) and a feed-forward network (dense, or a
//! mixture of experts), with norms before or after each.

use super::super::error::LoadError;
use super::super::mamba2;
use super::super::tensors::{Linear, Scope, Storage, TensorSource, Vector};
use super::{Activation, DecoderConfig, ExpertsConfig, Half, NormPlaces, QkNorms};

/// Names of a decoder's tensors. Pairs are names in safetensors and in GGUF, inside a layer and without `.weight`.
#[derive(Debug, PartialEq)]
pub(in super::super) struct DecoderNames {
    /// The table, the final norm, and the prefix of layers in safetensors: files have any of these, the first usually.
    pub(in super::super) tables: &'static [&'static str],
    pub(in super::super) norms: &'static [&'static str],
    pub(in super::super) layers: &'static [&'static str],
    /// Prefixes of tensors that belong to other networks.
    pub(in super::super) others: &'static [&'static str],
    /// Norms before and after attention, and before and after the feed-forward network.
    pub(in super::super) input_norm: (&'static str, &'static str),
    pub(in super::super) output_norm: (&'static str, &'static str),
    pub(in super::super) feed_norm: (&'static str, &'static str),
    pub(in super::super) feed_output_norm: (&'static str, &'static str),
    pub(in super::super) q_proj: (&'static str, &'static str),
    pub(in super::super) k_proj: (&'static str, &'static str),
    pub(in super::super) v_proj: (&'static str, &'static str),
    /// The three in one matrix, if files have it.
    pub(in super::super) qkv_proj: Option<(&'static str, &'static str)>,
    pub(in super::super) o_proj: (&'static str, &'static str),
    pub(in super::super) q_norm: (&'static str, &'static str),
    pub(in super::super) k_norm: (&'static str, &'static str),
    pub(in super::super) feed: FeedNames,
    pub(in super::super) experts: ExpertNames,
    /// The prefix of Mamba-2's tensors in safetensors.
    pub(in super::super) mamba: &'static str,
    /// Frequencies that older files contain.
    pub(in super::super) frequencies: &'static str,
}

/// Names of a gated feed-forward network.
#[derive(Debug, PartialEq)]
pub(in super::super) struct FeedNames {
    pub(in super::super) gate_proj: (&'static str, &'static str),
    pub(in super::super) up_proj: (&'static str, &'static str),
    /// Gate, then up, in one matrix.
    pub(in super::super) gate_up_proj: Fused,
    pub(in super::super) down_proj: (&'static str, &'static str),
}

/// Names of a mixture of experts.
#[derive(Debug, PartialEq)]
pub(in super::super) struct ExpertNames {
    pub(in super::super) router: (&'static str, &'static str),
    /// The prefix of experts that are stored one by one, in safetensors.
    pub(in super::super) each: &'static str,
    /// Gate and up of all experts in one tensor, and down of all, in safetensors; files may have any of these.
    pub(in super::super) stacked: &'static [(&'static str, &'static str)],
    pub(in super::super) shared: FeedNames,
}

/// Whether files have two matrices in one.
#[derive(Debug, PartialEq)]
pub(in super::super) enum Fused {
    Never,
    /// Safetensors have, GGUF has not.
    InSafetensors(&'static str),
    Always(&'static str, &'static str),
}

/// The tensors of a layer.
pub(in super::super) struct Layer<S: Storage> {
    /// Norms before and after the mixer, `[d_model]`.
    pub(in super::super) norm: Option<S::Vector>,
    pub(in super::super) output_norm: Option<S::Vector>,
    pub(in super::super) mixer: Mixer<S>,
    /// Norms before and after the feed-forward network, `[d_model]`.
    pub(in super::super) feed_norm: Option<S::Vector>,
    pub(in super::super) feed_output_norm: Option<S::Vector>,
    pub(in super::super) feed: Feed<S>,
}

/// What mixes positions.
pub(in super::super) enum Mixer<S: Storage> {
    Attention(Attention<S>),
    Mamba2(mamba2::Mixer<S>),
    /// Both read the same input; their outputs are added.
    Both(Box<(Attention<S>, mamba2::Mixer<S>)>),
    None,
}

pub(in super::super) struct Attention<S: Storage> {
    /// Weights of the norms of queries and keys.
    pub(in super::super) qk_norms: Option<(S::Vector, S::Vector)>,
    pub(in super::super) q_proj: Linear<S>,
    pub(in super::super) k_proj: Linear<S>,
    pub(in super::super) v_proj: Linear<S>,
    pub(in super::super) o_proj: Linear<S>,
}

/// What follows the mixer.
pub(in super::super) enum Feed<S: Storage> {
    Dense(Gated<S>),
    Experts(Experts<S>),
    /// Up and down, without a gate.
    Plain([Linear<S>; 2]),
    None,
}

/// A gated feed-forward network.
pub(in super::super) struct Gated<S: Storage> {
    pub(in super::super) gate_proj: Linear<S>,
    pub(in super::super) up_proj: Linear<S>,
    pub(in super::super) down_proj: Linear<S>,
}

/// A mixture of experts.
pub(in super::super) struct Experts<S: Storage> {
    /// `[experts, d_model]`
    pub(in super::super) router: Linear<S>,
    pub(in super::super) each: Vec<Gated<S>>,
    /// An expert that every row uses.
    pub(in super::super) shared: Option<Gated<S>>,
}

impl<S: Storage> Layer<S> {
    pub(super) fn load<T: TensorSource<Storage = S>>(
        config: &DecoderConfig,
        index: usize,
        source: &mut T,
    ) -> Result<Self, LoadError> {
        let names = config.names;
        let marks = [names.o_proj.0, names.input_norm.0];
        let present = |prefix: &&&str| marks.iter().any(|mark| source.has(&format!("{prefix}.{index}.{mark}.weight")));
        let prefix = names.layers.iter().find(present).or(names.layers.first()).copied().unwrap_or_default();
        let scope = &mut Scope::new(source, format!("{prefix}.{index}."), format!("blk.{index}."));
        let norm = |scope: &mut Scope<'_, T>, wanted: bool, name| {
            wanted.then(|| norm(config, scope, name, config.d_model)).transpose()
        };
        let before = config.norms != NormPlaces::After;
        let after = config.norms != NormPlaces::Before;
        let half = config.half(index);
        let (mixes, feeds) = (half != Some(Half::Feed), half != Some(Half::Mixer));
        Ok(Self {
            norm: norm(scope, before && mixes, names.input_norm)?,
            output_norm: norm(scope, after && mixes, names.output_norm)?,
            mixer: match config.recurrent(index) {
                _ if !mixes => Mixer::None,
                Some(mamba) if config.beside_attention() => {
                    let attention = Attention::load(config, scope)?;
                    Mixer::Both(Box::new((attention, mamba2::Mixer::load(mamba, names.mamba, scope)?)))
                }
                Some(mamba) => Mixer::Mamba2(mamba2::Mixer::load(mamba, names.mamba, scope)?),
                None => Mixer::Attention(Attention::load(config, scope)?),
            },
            feed_norm: norm(scope, before && feeds, names.feed_norm)?,
            feed_output_norm: norm(scope, after && feeds, names.feed_output_norm)?,
            feed: match config.experts(index) {
                _ if !feeds => Feed::None,
                _ if config.activation == Activation::SquaredRelu => {
                    let (d_feed, d_model, bias) = (config.d_feed, config.d_model, config.feed_bias);
                    Feed::Plain([
                        scope.linear(names.feed.up_proj, d_feed, d_model, bias)?,
                        scope.linear(names.feed.down_proj, d_model, d_feed, bias)?,
                    ])
                }
                Some(experts) => Feed::Experts(Experts::load(config, experts, scope)?),
                None => {
                    Feed::Dense(Gated::load(&names.feed, [config.d_feed, config.d_model], config.feed_bias, scope)?)
                }
            },
        })
    }
}

fn norm<T: TensorSource>(
    config: &DecoderConfig,
    scope: &mut Scope<'_, T>,
    name: (&str, &str),
    dim: usize,
) -> Result<Vector<T>, LoadError> {
    if config.centred_norms { scope.centred_norm(name, dim) } else { scope.norm(name, dim) }
}

impl<S: Storage> Attention<S> {
    fn load<T: TensorSource<Storage = S>>(config: &DecoderConfig, scope: &mut Scope<'_, T>) -> Result<Self, LoadError> {
        let &DecoderConfig { d_model, heads, kv_heads, head_dim, qkv_bias, out_bias, names, .. } = config;
        let (queries, keys) = (heads.saturating_mul(head_dim), kv_heads.saturating_mul(head_dim));
        // Older files contain the frequencies; they are computed from the config instead.
        if scope.has(names.frequencies) {
            scope.unused((names.frequencies, ""), &[config.rotary.dims / 2])?;
        }
        let qk_norms = match config.qk_norms {
            None => None,
            Some(QkNorms::PerHead) => Some([head_dim, head_dim]),
            Some(QkNorms::Whole) => Some([queries, keys]),
        };
        let qk_norms = match qk_norms {
            Some([q, k]) => Some((norm(config, scope, names.q_norm, q)?, norm(config, scope, names.k_norm, k)?)),
            None => None,
        };
        let [q_proj, k_proj, v_proj] = match names.qkv_proj {
            Some(name) => scope.split(name, [queries, keys, keys], d_model)?,
            None => [
                scope.rotary_linear(names.q_proj, heads, [queries, d_model], qkv_bias)?,
                scope.rotary_linear(names.k_proj, kv_heads, [keys, d_model], qkv_bias)?,
                scope.linear(names.v_proj, keys, d_model, qkv_bias)?,
            ],
        };
        let o_proj = scope.linear(names.o_proj, d_model, queries, out_bias)?;
        Ok(Self { qk_norms, q_proj, k_proj, v_proj, o_proj })
    }
}

impl<S: Storage> Gated<S> {
    fn load<T: TensorSource<Storage = S>>(
        names: &FeedNames,
        [d_feed, d_model]: [usize; 2],
        bias: bool,
        scope: &mut Scope<'_, T>,
    ) -> Result<Self, LoadError> {
        let fused = match names.gate_up_proj {
            Fused::Never => None,
            Fused::InSafetensors(hf) => scope.has(&format!("{hf}.weight")).then_some((hf, "")),
            Fused::Always(hf, gguf) => Some((hf, gguf)),
        };
        let [gate_proj, up_proj] = match fused {
            Some(name) => scope.split(name, [d_feed, d_feed], d_model)?,
            None => [
                scope.linear(names.gate_proj, d_feed, d_model, bias)?,
                scope.linear(names.up_proj, d_feed, d_model, bias)?,
            ],
        };
        Ok(Self { gate_proj, up_proj, down_proj: scope.linear(names.down_proj, d_model, d_feed, bias)? })
    }
}

impl<S: Storage> Experts<S> {
    fn load<T: TensorSource<Storage = S>>(
        config: &DecoderConfig,
        experts: &ExpertsConfig,
        scope: &mut Scope<'_, T>,
    ) -> Result<Self, LoadError> {
        let (names, d_model) = (&config.names.experts, config.d_model);
        Ok(Self {
            router: scope.linear(names.router, experts.count, d_model, false)?,
            each: Self::each(names, [experts.count, experts.d_feed, d_model], scope)?,
            shared: match experts.d_shared {
                Some(d_feed) => Some(Gated::load(&names.shared, [d_feed, d_model], false, scope)?),
                None => None,
            },
        })
    }

    /// The experts: one by one, or with the matrices of all in one tensor.
    fn each<T: TensorSource<Storage = S>>(
        names: &ExpertNames,
        [count, d_feed, d_model]: [usize; 3],
        scope: &mut Scope<'_, T>,
    ) -> Result<Vec<Gated<S>>, LoadError> {
        let each = names.each;
        if scope.has(&format!("{each}.0.gate_proj.weight")) {
            let expert = |index: usize| {
                let mut part = |part: &str, outputs, inputs| {
                    scope.linear((&format!("{each}.{index}.{part}"), ""), outputs, inputs, false)
                };
                Ok(Gated {
                    gate_proj: part("gate_proj", d_feed, d_model)?,
                    up_proj: part("up_proj", d_feed, d_model)?,
                    down_proj: part("down_proj", d_model, d_feed)?,
                })
            };
            return (0..count).map(expert).collect();
        }
        let stacked = names.stacked.iter().find(|(gate_up, _)| scope.has(gate_up));
        let all = |part: &str| format!("{each}.{part}_proj.weight");
        let down = stacked.map_or_else(|| all("down"), |(_, down)| (*down).to_owned());
        let inputs: Vec<_> = if let Some((gate_up, _)) = stacked {
            let dims = [count, d_feed.saturating_mul(2), d_model];
            let mut both = scope.split_each((gate_up, ""), dims, 2 * count)?.into_iter();
            (0..count).filter_map(|_| both.next().zip(both.next())).collect()
        } else {
            let dims = [count, d_feed, d_model];
            let gates = scope.split_each((&all("gate"), "ffn_gate_exps.weight"), dims, count)?;
            gates.into_iter().zip(scope.split_each((&all("up"), "ffn_up_exps.weight"), dims, count)?).collect()
        };
        let downs = scope.split_each((&down, "ffn_down_exps.weight"), [count, d_model, d_feed], count)?;
        let expert = |((gate_proj, up_proj), down_proj)| Gated { gate_proj, up_proj, down_proj };
        Ok(inputs.into_iter().zip(downs).map(expert).collect())
    }
}
