//! Fits one gain per layer to a text, as `MambaExtend` (Azizi et al., ICLR 2025): a factor on Δ after the softplus, found
//! without derivatives.
//!
//! Coordinate search in ln g: each layer in turn tries a step up and a step down, and accepts it if the NLL of the training
//! passages falls; after a round without improvement the step is halved. The search is deterministic. Every second passage
//! is held out for evaluation.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;

use super::DeltaStudyError;
use super::measure::{ReadOptions, read};
use super::passage::Passage;
use super::setting::{Gain, TokenWindow};
use crate::foundation::base::RngStream;
use crate::foundation::chat::{DeltaGains, LanguageModel, LayerGains, ModelError, ModelInfo};
use crate::foundation::stats::{Interval, bootstrap};
use crate::simulation::rollout::FittedGains;

/// The first step, in ln g.
const STEP: f64 = 0.2;
/// Smallest step, in ln g.
const STEP_MIN: f64 = 0.02;
/// Largest |ln g|.
const REACH: f64 = 1.2;
/// Passages scored concurrently.
const AT_ONCE: usize = 32;
/// Bootstrap resamples of passages per interval.
const RESAMPLES: u32 = 1_000;

/// How to fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FitPlan {
    /// The gain.
    pub gain: Gain,
    /// Most rounds over all layers.
    pub rounds: usize,
}

/// A fit and its evaluation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FittedGainsReport {
    /// The plan.
    pub plan: FitPlan,
    /// One entry per layer.
    pub gains: Vec<LayerGains>,
    /// On the training passages.
    pub train: NllComparison,
    /// On the held-out passages.
    pub held_out: NllComparison,
    /// Completed rounds.
    pub rounds: usize,
    /// Evaluated settings.
    pub tried: usize,
}

/// NLL with and without the gains, nats per token.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct NllComparison {
    /// Passages.
    pub passages: usize,
    /// Scored tokens.
    pub tokens: usize,
    /// Without gains.
    pub nll_before: f64,
    /// With gains.
    pub nll_after: f64,
    /// The 95 % bootstrap interval over passages of their difference, after − before.
    pub interval: Option<Interval>,
}

impl FittedGainsReport {
    /// Whether the gains help on held-out text: the whole interval is below 0.
    pub fn helps(&self) -> bool {
        self.held_out.interval.is_some_and(|interval| interval.high < 0.0)
    }

    /// The gains with their model, in the format that a persona config refers to.
    pub fn file(&self, model: &ModelInfo) -> FittedGains {
        FittedGains::new(model, self.gains.clone())
    }
}

/// Fits the gains. `on_progress` is called after each round with its number and the NLL.
///
/// # Errors
/// See [`DeltaStudyError`].
pub async fn calibrate(
    model: &Arc<dyn LanguageModel>,
    plan: FitPlan,
    passages: &[Passage],
    mut on_progress: impl FnMut(usize, f64),
) -> Result<FittedGainsReport, DeltaStudyError> {
    let info = model.info();
    let count = info.layers.filter(|_| info.delta).ok_or_else(|| DeltaStudyError::NoDelta(info.name.clone()))?;
    let half = |odd: usize| passages.iter().enumerate().filter(move |(at, _)| at % 2 == odd).map(|(_, p)| p);
    let (train, held_out): (Vec<&Passage>, Vec<&Passage>) = (half(0).collect(), half(1).collect());
    if train.is_empty() || held_out.is_empty() {
        return Err(DeltaStudyError::TooFew(passages.len()));
    }
    let total = |each: &[f64]| each.iter().sum::<f64>();
    let gains = |logs: &[f64]| logs.iter().map(|log| plan.gain.of(log.exp() as f32)).collect::<Vec<_>>();
    let before = losses(&**model, &train, None).await?;
    let tokens: usize = train.iter().map(|passage| passage.ids.len() - passage.from).sum();
    let (mut logs, mut best, mut step) = (vec![0.0f64; count], total(&before), STEP);
    let (mut rounds, mut tried) = (0, 0);
    while rounds < plan.rounds && step >= STEP_MIN {
        let mut better = false;
        for layer in 0..count {
            for sign in [1.0, -1.0] {
                let mut candidate = logs.clone();
                let Some(log) = candidate.get_mut(layer) else { continue };
                *log = (*log + sign * step).clamp(-REACH, REACH);
                tried += 1;
                // Gains under which the model fails are rejected.
                let nll = match losses(&**model, &train, Some(&DeltaGains::PerLayer(gains(&candidate)))).await {
                    Ok(each) => total(&each),
                    Err(DeltaStudyError::Model(ModelError::Failed { .. })) => f64::INFINITY,
                    Err(error) => return Err(error),
                };
                if nll < best {
                    (logs, best, better) = (candidate, nll, true);
                    break;
                }
            }
        }
        rounds += 1;
        on_progress(rounds, best / tokens.max(1) as f64);
        if !better {
            step /= 2.0;
        }
    }
    let fitted = gains(&logs);
    let chosen = DeltaGains::PerLayer(fitted.clone());
    let train_after = losses(&**model, &train, Some(&chosen)).await?;
    let held_before = losses(&**model, &held_out, None).await?;
    let held_after = losses(&**model, &held_out, Some(&chosen)).await?;
    Ok(FittedGainsReport {
        plan,
        gains: fitted,
        train: compared(&train, &before, &train_after),
        held_out: compared(&held_out, &held_before, &held_after),
        rounds,
        tried,
    })
}

/// Σ −ln p of each passage.
async fn losses(
    model: &dyn LanguageModel,
    passages: &[&Passage],
    gains: Option<&DeltaGains>,
) -> Result<Vec<f64>, DeltaStudyError> {
    let how = ReadOptions { top: 0, continuation: 0, readings: false };
    let one = |passage: &Passage| {
        let (ids, from) = (passage.ids.clone(), passage.from);
        async move {
            let read = read(model, &ids, gains, TokenWindow::ALL, how).await?;
            let counts = read.tokens.iter().skip(from - 1);
            let sum: Option<f64> = counts.map(|token| token.logprob.map(|logprob| -f64::from(logprob))).sum();
            sum.ok_or_else(|| DeltaStudyError::NoDelta(model.info().name.clone()))
        }
    };
    let work: Vec<_> = passages.iter().map(|passage| one(passage)).collect();
    stream::iter(work).buffered(AT_ONCE).try_collect().await
}

fn compared(passages: &[&Passage], before: &[f64], after: &[f64]) -> NllComparison {
    let tokens = passages.iter().map(|passage| passage.ids.len() - passage.from);
    let all: Vec<(f64, f64, usize)> =
        before.iter().zip(after).zip(tokens).map(|((before, after), tokens)| (*before, *after, tokens)).collect();
    let tokens: usize = all.iter().map(|(.., tokens)| tokens).sum();
    let per = |total: f64| total / tokens.max(1) as f64;
    let statistic = |some: &[(f64, f64, usize)]| {
        let tokens: usize = some.iter().map(|(.., tokens)| tokens).sum();
        let more: f64 = some.iter().map(|(before, after, _)| after - before).sum();
        (tokens > 0).then(|| more / tokens as f64)
    };
    NllComparison {
        passages: all.len(),
        tokens,
        nll_before: per(before.iter().sum()),
        nll_after: per(after.iter().sum()),
        interval: bootstrap(&all, RESAMPLES, &RngStream::root(0).child("delta-calibration", 0), statistic),
    }
}
