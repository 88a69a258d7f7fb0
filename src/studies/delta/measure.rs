//! Scores one passage under one setting and compares it with the model without gains.

use serde::{Deserialize, Serialize};

use super::passage::Passage;
use super::setting::TokenWindow;
use crate::foundation::base::RngStream;
use crate::foundation::chat::{
    Continuation, DeltaGains, LanguageModel, ModelError, Prompt, Request, Sampling, Snapshot, SsmStats, TokenId,
    TokenLogprob,
};
use crate::foundation::text::distinct_n;

/// End of the first range of positions; each later range is as long as all before.
const FIRST_STRETCH: usize = 32;

/// Sums over the scored tokens of one passage, and statistics of the state. Nats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PassageMetrics {
    /// Scored tokens.
    pub tokens: usize,
    /// Σ −ln p.
    pub nll: f64,
    /// Σ entropy.
    pub entropy: f64,
    /// Σ KL(p with gains ‖ p without).
    pub kl: f64,
    /// The divergence covers the whole vocabulary. If not, all tokens outside both lists of alternatives are one bucket,
    /// and `kl` is a lower bound.
    pub kl_exact: bool,
    /// Tokens at which both have the same most likely token.
    pub agree: usize,
    /// By position in the passage.
    pub positions: Vec<PositionMetrics>,
    /// By layer.
    pub layers: Vec<LayerMetrics>,
    /// Distinct-1 and distinct-2 of the greedy continuation; `None` if it is too short.
    pub distinct: [Option<f64>; 2],
}

/// Sums over a range of positions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PositionMetrics {
    /// First position.
    pub from: usize,
    /// One past the last position.
    pub to: usize,
    /// Scored tokens.
    pub tokens: usize,
    /// Σ −ln p, nats.
    pub nll: f64,
    /// Σ KL, nats.
    pub kl: f64,
}

/// Statistics of one layer: its steps over the tokens in the window, its state after the passage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerMetrics {
    /// Index of the layer in the model, from 0.
    pub layer: usize,
    /// Mean Δ in the decay, gains included.
    pub delta_decay: f64,
    /// Mean Δ in the write, gains included.
    pub delta_write: f64,
    /// Median half-life over channels and states, tokens; `None` is infinite.
    pub half_life: Option<f64>,
    /// Euclidean norm of the state.
    pub state_norm: f64,
}

/// The result of scoring a passage.
pub(super) struct PassageReading {
    /// Every token but the first.
    pub(super) tokens: Vec<TokenLogprob>,
    layers: Vec<LayerMetrics>,
    distinct: [Option<f64>; 2],
}

/// How to score a passage.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadOptions {
    /// Alternatives per token.
    pub(super) top: usize,
    /// Tokens generated greedily afterwards.
    pub(super) continuation: usize,
    /// Whether to collect statistics of the state.
    pub(super) readings: bool,
}

/// Scores `ids`, those in `window` under `gains`: one request per range of equal gains, each from the previous one's
/// snapshot.
pub(super) async fn read(
    model: &dyn LanguageModel,
    ids: &[TokenId],
    gains: Option<&DeltaGains>,
    window: TokenWindow,
    how: ReadOptions,
) -> Result<PassageReading, ModelError> {
    let end = ids.len();
    let (from, to) = (window.from.min(end), window.to.unwrap_or(end).min(end));
    let mut tokens = Vec::with_capacity(end);
    let (mut inside, mut last): (Option<SsmStats>, Option<SsmStats>) = (None, None);
    let mut after: Option<Snapshot> = None;
    for (start, stop, gains) in [(0, from, None), (from, to, gains), (to, end, None)] {
        // The first token is not scored; it is read together with the second.
        let (prompt, rest) = ids.split_at(stop).0.split_at(start.max(1).min(stop));
        if rest.is_empty() {
            continue;
        }
        let sampling = Sampling { top_logprobs: how.top, ..Sampling::greedy() };
        let mut request = Request::new(Prompt::Ids(prompt.to_vec()), sampling, RngStream::root(0));
        request.after = after.take();
        request.gains = gains.cloned();
        request.record_ssm = how.readings;
        let scored = model.score(request, Continuation::Ids(rest.to_vec())).await?;
        tokens.extend(scored.tokens);
        after = scored.snapshot;
        last = scored.ssm;
        if start == from {
            inside.clone_from(&last);
        }
    }
    let written = if how.continuation > 0 {
        let sampling = Sampling { max_tokens: how.continuation, ..Sampling::greedy() };
        let mut request = Request::new(Prompt::Ids(ids.to_vec()), sampling, RngStream::root(0));
        request.after = after;
        request.gains = gains.filter(|_| window.to.is_none()).cloned();
        model.complete(request, None).await?.tokens
    } else {
        Vec::new()
    };
    let written: Vec<String> = written.iter().filter_map(|token| token.id).map(|id| id.to_string()).collect();
    let inside = inside.map_or_else(Vec::new, |reading| reading.layers);
    let last = last.map_or_else(Vec::new, |reading| reading.layers);
    let layers = inside.iter().zip(&last).map(|(inside, last)| LayerMetrics {
        layer: inside.layer,
        delta_decay: inside.delta_decay,
        delta_write: inside.delta_write,
        half_life: inside.half_life.median,
        state_norm: last.state_norm,
    });
    Ok(PassageReading {
        tokens,
        layers: layers.collect(),
        distinct: [1, 2].map(|n| distinct_n(&[written.as_slice()], n)),
    })
}

/// The metrics of `read`, compared with `base`, the same passage without gains.
///
/// # Errors
/// If the model did not return the log-probability of every token.
pub(super) fn passage_metrics(
    model: &dyn LanguageModel,
    passage: &Passage,
    read: &PassageReading,
    base: &PassageReading,
) -> Result<PassageMetrics, ModelError> {
    let vocabulary = model.info().vocabulary.unwrap_or_default();
    let untold = || ModelError::Unsupported {
        model: model.info().name.clone(),
        why: "it does not return the log-probability of every token of a text; use `bundled` or `local:DIR`".to_owned(),
    };
    let mut passage_metrics = PassageMetrics {
        tokens: 0,
        nll: 0.0,
        entropy: 0.0,
        kl: 0.0,
        kl_exact: true,
        agree: 0,
        positions: Vec::new(),
        layers: read.layers.clone(),
        distinct: read.distinct,
    };
    let mut known = vec![f32::NAN; vocabulary];
    for (at, (token, before)) in read.tokens.iter().zip(&base.tokens).enumerate() {
        let position = at + 1;
        if position < passage.from {
            continue;
        }
        let nll = -f64::from(token.logprob.ok_or_else(untold)?);
        let (kl, exact) = divergence(&token.top, &before.top, &mut known);
        passage_metrics.tokens += 1;
        passage_metrics.nll += nll;
        passage_metrics.entropy += token.entropy.map(f64::from).ok_or_else(untold)?;
        passage_metrics.kl += kl;
        passage_metrics.kl_exact &= exact;
        let likeliest = |token: &TokenLogprob| token.top.first().map(|(id, _)| *id);
        passage_metrics.agree += usize::from(likeliest(token) == likeliest(before));
        let (from, to) = position_range(position);
        if passage_metrics.positions.last().is_none_or(|last| last.from != from) {
            passage_metrics.positions.push(PositionMetrics { from, to, tokens: 0, nll: 0.0, kl: 0.0 });
        }
        if let Some(last) = passage_metrics.positions.last_mut() {
            last.tokens += 1;
            last.nll += nll;
            last.kl += kl;
        }
    }
    Ok(passage_metrics)
}

/// The range of positions that contains `position`.
fn position_range(position: usize) -> (usize, usize) {
    let mut to = FIRST_STRETCH;
    while position >= to {
        to *= 2;
    }
    (if to == FIRST_STRETCH { 0 } else { to / 2 }, to)
}

/// KL(q ‖ p) in nats over the tokens in both lists, with one bucket for the rest; and whether there was no rest. `known` is
/// a buffer with one log-probability per token, all NaN.
fn divergence(q: &[(TokenId, f32)], p: &[(TokenId, f32)], known: &mut [f32]) -> (f64, bool) {
    for (id, logprob) in p {
        if let Some(place) = known.get_mut(*id as usize) {
            *place = *logprob;
        }
    }
    let (mut kl, mut q_rest, mut p_rest, mut named) = (0.0f64, 1.0f64, 1.0f64, 0);
    for (id, q) in q {
        let Some(p) = known.get(*id as usize).filter(|p| !p.is_nan()) else { continue };
        let (q, p) = (f64::from(*q), f64::from(*p));
        named += 1;
        q_rest -= q.exp();
        p_rest -= p.exp();
        if q.exp() > 0.0 {
            kl += q.exp() * (q - p);
        }
    }
    for (id, _) in p {
        if let Some(place) = known.get_mut(*id as usize) {
            *place = f32::NAN;
        }
    }
    let exact = named == known.len();
    // Skip the rest if rounding leaves nothing of it.
    if !exact && q_rest > 0.0 && p_rest > 0.0 {
        kl += q_rest * (q_rest / p_rest).ln();
    }
    (kl, exact)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logs(p: &[f64]) -> Vec<(TokenId, f32)> {
        (0..).zip(p).map(|(id, p)| (id, p.ln() as f32)).collect()
    }

    /// Compared with the definition, on numbers that can be checked by hand.
    #[test]
    fn a_coarse_divergence_is_a_lower_bound_of_the_exact_one() {
        let (q, p) = ([0.5, 0.25, 0.25], [0.25, 0.5, 0.25]);
        let mut known = vec![f32::NAN; 3];
        let (exact, whole) = divergence(&logs(&q), &logs(&p), &mut known);
        assert!(whole && (exact - 0.25 * 2f64.ln()).abs() < 1e-6, "{exact}");
        assert!(known.iter().all(|x| x.is_nan()));
        let (coarse, whole) = divergence(&logs(&q)[..1], &logs(&p), &mut known);
        let by_hand = 0.5 * 2f64.ln() + 0.5 * (0.5f64 / 0.75).ln();
        assert!(!whole && (coarse - by_hand).abs() < 1e-6 && coarse < exact, "{coarse}");
        assert!(divergence(&logs(&p), &logs(&p), &mut known).0.abs() < f64::EPSILON);
    }

    #[test]
    fn position_ranges_double_in_length() {
        let of = |position| position_range(position);
        assert_eq!(
            [of(1), of(31), of(32), of(63), of(64), of(200)],
            [(0, 32), (0, 32), (32, 64), (32, 64), (64, 128), (128, 256)]
        );
    }
}
