//! The report of a finished sweep: numbers, tables and files.

use std::fmt::Write as _;

use serde::Serialize;

use super::journal::Sweep;
use super::measure::PassageMetrics;
use super::plan::SweepPlan;
use super::setting::GainSetting;
use crate::foundation::base::RngStream;
use crate::foundation::stats::{Interval, bootstrap};

/// Bootstrap resamples of passages per interval.
const RESAMPLES: u32 = 1_000;

/// The results of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SweepReport {
    /// The plan.
    pub plan: SweepPlan,
    /// The passages' names.
    pub passages: Vec<String>,
    /// Without gains first, then every setting.
    pub rows: Vec<SweepRow>,
}

/// One setting over all passages. Means are per token, in nats.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SweepRow {
    /// `None` is without gains.
    pub setting: Option<GainSetting>,
    /// Measured passages.
    pub passages: usize,
    /// Passages on which the model's output was no longer a distribution; excluded below.
    pub broken: usize,
    /// Tokens that count.
    pub tokens: usize,
    /// Mean −ln p.
    pub nll: f64,
    /// e to that.
    pub perplexity: f64,
    /// Difference to the NLL without gains, over the same tokens.
    pub delta_nll: Difference,
    /// Mean entropy.
    pub entropy: f64,
    /// Mean KL(p with gains ‖ p without).
    pub kl: f64,
    /// `kl` covers the whole vocabulary; otherwise it is a lower bound.
    pub kl_exact: bool,
    /// Share of tokens at which both have the same most likely token.
    pub agreement: f64,
    /// Mean distinct-1 and distinct-2 of the greedy continuations.
    pub distinct: [Option<f64>; 2],
    /// By position.
    pub positions: Vec<PositionRow>,
    /// By layer, means over passages.
    pub layers: Vec<LayerRow>,
}

/// A difference, with its 95 % bootstrap interval over passages.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    /// The difference.
    pub value: f64,
    /// `None` for a single passage.
    pub interval: Option<Interval>,
}

/// A range of positions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PositionRow {
    /// Its first position.
    pub from: usize,
    /// The position after its last.
    pub to: usize,
    /// Tokens in it that count.
    pub tokens: usize,
    /// Mean −ln p.
    pub nll: f64,
    /// e to that.
    pub perplexity: f64,
    /// Difference to the NLL without gains.
    pub delta_nll: f64,
    /// Mean divergence.
    pub kl: f64,
}

/// A layer with a Δ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerRow {
    /// Its index in the model, from 0.
    pub layer: usize,
    /// Mean Δ where it decays the state.
    pub delta_decay: f64,
    /// Mean Δ where it writes to the state.
    pub delta_write: f64,
    /// Median half-life, tokens; `None` is infinite.
    pub half_life: Option<f64>,
    /// Norm of the state after the last token.
    pub state_norm: f64,
}

impl SweepReport {
    /// Computes the report of `sweep`.
    pub fn of(sweep: &Sweep) -> Self {
        let settings = std::iter::once(None).chain(sweep.settings.iter().cloned().map(Some));
        let rows = settings.enumerate().map(|(index, setting)| row(sweep, index, setting)).collect();
        Self { plan: sweep.plan.clone(), passages: sweep.passages.clone(), rows }
    }

    /// The settings as a Markdown table.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| Gain | Layers | Tokens | ΔNLL, nats/token | Perplexity | Entropy | KL | Top-1 agreement | Half-life, tokens | State norm | Distinct-2 |\n\
             |---|---|---|---|---|---|---|---|---|---|---|\n",
        );
        for row in &self.rows {
            let (gain, layers, window) = row.setting.as_ref().map_or_else(
                || ("none".to_owned(), "–".to_owned(), "–".to_owned()),
                |s| (format!("{} {}", s.gain.name(), s.value), s.layers.to_string(), s.window.to_string()),
            );
            if row.passages == 0 {
                // Writing into a string cannot fail.
                let _ = writeln!(text, "| {gain} | {layers} | {window} | broke down{} |", " | –".repeat(7));
                continue;
            }
            let around = row.delta_nll.interval.filter(|_| row.setting.is_some());
            let around = around.map_or_else(String::new, |i| format!(" ({:+.3} to {:+.3})", i.low, i.high));
            let broken = if row.broken > 0 { format!(", {} broke down", row.broken) } else { String::new() };
            let _ = writeln!(
                text,
                "| {gain} | {layers} | {window} | {:+.3}{around}{broken} | {:.2} | {:.3} | {}{:.4} | {:.1} % | {} | {:.1} | {} |",
                row.delta_nll.value,
                row.perplexity,
                row.entropy,
                if row.kl_exact { "" } else { "≥ " },
                row.kl,
                100.0 * row.agreement,
                row.half_life().map_or_else(|| "∞".to_owned(), |tokens| format!("{tokens:.1}")),
                row.state_norm(),
                row.distinct[1].map_or_else(|| "–".to_owned(), |share| format!("{share:.2}")),
            );
        }
        text
    }

    /// One line per setting.
    pub fn csv(&self) -> String {
        let mut text = String::from(
            "gain,value,layers,window,passages,broken,tokens,nll,perplexity,delta_nll,delta_nll_low,delta_nll_high,\
             entropy,kl,kl_exact,agreement,distinct_1,distinct_2,half_life,state_norm\n",
        );
        for row in &self.rows {
            let interval = row.delta_nll.interval;
            let numbers = [
                Some(row.nll),
                Some(row.perplexity),
                Some(row.delta_nll.value),
                interval.map(|i| i.low),
                interval.map(|i| i.high),
                Some(row.entropy),
                Some(row.kl),
            ];
            let last = [Some(row.agreement), row.distinct[0], row.distinct[1], row.half_life(), Some(row.state_norm())];
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{}",
                keys(row),
                row.passages,
                row.broken,
                row.tokens,
                joined(&numbers),
                row.kl_exact,
                joined(&last)
            );
        }
        text
    }

    /// One line per setting and range of positions.
    pub fn positions_csv(&self) -> String {
        let mut text = String::from("gain,value,layers,window,from,to,tokens,nll,perplexity,delta_nll,kl\n");
        for row in &self.rows {
            for p in &row.positions {
                let numbers = joined(&[p.nll, p.perplexity, p.delta_nll, p.kl].map(Some));
                let _ = writeln!(text, "{},{},{},{},{numbers}", keys(row), p.from, p.to, p.tokens);
            }
        }
        text
    }

    /// One line per setting and layer with a Δ.
    pub fn layers_csv(&self) -> String {
        let mut text = String::from("gain,value,layers,window,layer,delta_decay,delta_write,half_life,state_norm\n");
        for row in &self.rows {
            for layer in &row.layers {
                let numbers =
                    [Some(layer.delta_decay), Some(layer.delta_write), layer.half_life, Some(layer.state_norm)];
                let _ = writeln!(text, "{},{},{}", keys(row), layer.layer, joined(&numbers));
            }
        }
        text
    }
}

impl SweepRow {
    /// The median half-life over the layers, tokens; `None` is infinite.
    pub fn half_life(&self) -> Option<f64> {
        let mut all: Vec<f64> = self.layers.iter().map(|layer| layer.half_life.unwrap_or(f64::INFINITY)).collect();
        all.sort_by(f64::total_cmp);
        let (below, above) = (all.get(all.len().checked_sub(1)? / 2)?, all.get(all.len() / 2)?);
        Some(f64::midpoint(*below, *above)).filter(|tokens| tokens.is_finite())
    }

    /// The mean over the layers of the states' norms.
    pub fn state_norm(&self) -> f64 {
        self.layers.iter().map(|layer| layer.state_norm).sum::<f64>() / self.layers.len().max(1) as f64
    }
}

fn keys(row: &SweepRow) -> String {
    row.setting.as_ref().map_or_else(
        || "none,1,all,all".to_owned(),
        |s| format!("{},{},\"{}\",{}", s.gain.name(), s.value, s.layers, s.window),
    )
}

fn joined(numbers: &[Option<f64>]) -> String {
    numbers.iter().map(|x| x.map_or_else(String::new, |x| x.to_string())).collect::<Vec<_>>().join(",")
}

fn row(sweep: &Sweep, index: usize, setting: Option<GainSetting>) -> SweepRow {
    // Each measured cell, paired with the one without gains.
    let pairs: Vec<(&PassageMetrics, &PassageMetrics)> = sweep
        .cells
        .iter()
        .filter_map(|cells| Some((cells.get(index)?.as_ref().ok()?, cells.first()?.as_ref().ok()?)))
        .collect();
    let sum = |of: fn(&PassageMetrics) -> f64| pairs.iter().map(|(figures, _)| of(figures)).sum::<f64>();
    let tokens: usize = pairs.iter().map(|(figures, _)| figures.tokens).sum();
    let per_token = |total: f64| total / tokens.max(1) as f64;
    let nll = per_token(sum(|f| f.nll));
    let mean = |values: Vec<Option<f64>>| {
        let values: Option<Vec<f64>> = values.into_iter().collect();
        crate::foundation::stats::mean(&values?)
    };
    // Layers of attention have no Δ.
    let layers = (0..sweep.layers).filter_map(|index| {
        let of_layer = |figures: &'_ PassageMetrics| figures.layers.iter().position(|layer| layer.layer == index);
        let each: Vec<_> = pairs.iter().filter_map(|(figures, _)| figures.layers.get(of_layer(figures)?)).collect();
        if each.is_empty() {
            return None;
        }
        let average = |of: fn(&super::LayerMetrics) -> f64| {
            each.iter().map(|layer| of(layer)).sum::<f64>() / each.len().max(1) as f64
        };
        Some(LayerRow {
            layer: index,
            delta_decay: average(|layer| layer.delta_decay),
            delta_write: average(|layer| layer.delta_write),
            half_life: mean(each.iter().map(|layer| layer.half_life).collect()),
            state_norm: average(|layer| layer.state_norm),
        })
    });
    let written = |n: usize| {
        let known: Vec<f64> = pairs.iter().filter_map(|(f, _)| f.distinct.get(n).copied().flatten()).collect();
        crate::foundation::stats::mean(&known)
    };
    SweepRow {
        setting,
        passages: pairs.len(),
        broken: sweep.cells.len() - pairs.len(),
        tokens,
        nll,
        perplexity: nll.exp(),
        delta_nll: difference(&pairs),
        entropy: per_token(sum(|f| f.entropy)),
        kl: per_token(sum(|f| f.kl)),
        kl_exact: pairs.iter().all(|(figures, _)| figures.kl_exact),
        agreement: per_token(pairs.iter().map(|(figures, _)| figures.agree as f64).sum()),
        distinct: [written(0), written(1)],
        positions: positions(&pairs),
        layers: layers.collect(),
    }
}

fn difference(pairs: &[(&PassageMetrics, &PassageMetrics)]) -> Difference {
    let statistic = |pairs: &[(&PassageMetrics, &PassageMetrics)]| {
        let tokens: usize = pairs.iter().map(|(figures, _)| figures.tokens).sum();
        let more: f64 = pairs.iter().map(|(figures, base)| figures.nll - base.nll).sum();
        (tokens > 0).then(|| more / tokens as f64)
    };
    let stream = RngStream::root(0).child("delta-passages", 0);
    Difference {
        value: statistic(pairs).unwrap_or_default(),
        interval: bootstrap(pairs, RESAMPLES, &stream, statistic),
    }
}

fn positions(pairs: &[(&PassageMetrics, &PassageMetrics)]) -> Vec<PositionRow> {
    let mut rows: Vec<PositionRow> = Vec::new();
    for (figures, base) in pairs {
        for (here, there) in figures.positions.iter().zip(&base.positions) {
            let at = rows.iter().position(|row| row.from == here.from).unwrap_or_else(|| {
                let (from, to) = (here.from, here.to);
                rows.push(PositionRow { from, to, tokens: 0, nll: 0.0, perplexity: 0.0, delta_nll: 0.0, kl: 0.0 });
                rows.len() - 1
            });
            if let Some(row) = rows.get_mut(at) {
                row.tokens += here.tokens;
                row.nll += here.nll;
                row.delta_nll += here.nll - there.nll;
                row.kl += here.kl;
            }
        }
    }
    rows.sort_by_key(|row| row.from);
    for row in &mut rows {
        let tokens = row.tokens.max(1) as f64;
        (row.nll, row.delta_nll, row.kl) = (row.nll / tokens, row.delta_nll / tokens, row.kl / tokens);
        row.perplexity = row.nll.exp();
    }
    rows
}
