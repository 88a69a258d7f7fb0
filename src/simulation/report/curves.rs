//! The report's figure: prescribed intensities, confidence, entropy and message length per turn.

use super::data::{Mean, Report, TurnRow};
use crate::foundation::plot::{AxisSpan, Figure, Panel, PlotError, Series};

impl Report {
    /// The figure as SVG. Lines are means over the rollouts; bands are from the lowest to the highest rollout.
    ///
    /// # Errors
    /// If a value is not finite.
    pub fn curves(&self) -> Result<String, PlotError> {
        let last = self.turns.last().map_or(0, |row| row.turn) as f64;
        let mut panels = Vec::new();
        if !self.dimensions.is_empty() {
            let series = self.dimensions.iter().map(|name| {
                line(&self.turns, name, |row| {
                    let intensity = row.intensities.iter().find(|intensity| intensity.dimension == *name)?;
                    Some(Mean { mean: intensity.value, low: intensity.value, high: intensity.value, n: row.rollouts })
                })
            });
            panels.push(Panel { name: "prescribed".to_owned(), y: (0.0, 1.0), series: series.collect() });
        }
        if self.turns.iter().any(|row| row.confidence.is_some()) {
            let series = vec![line(&self.turns, "confidence", |row| row.confidence)];
            panels.push(Panel { name: "confidence".to_owned(), y: (0.0, 1.0), series });
        }
        if self.turns.iter().any(|row| row.entropy.is_some()) {
            let top = self.turns.iter().filter_map(|row| row.entropy).map(|entropy| entropy.high).fold(1.0, f64::max);
            let series = vec![line(&self.turns, "mean token entropy", |row| row.entropy)];
            panels.push(Panel { name: "entropy, nats".to_owned(), y: (0.0, top.ceil()), series });
        }
        let longest = self.turns.iter().filter_map(|row| row.words).map(|words| words.high).fold(1.0, f64::max);
        let series = vec![line(&self.turns, "words per message", |row| row.words)];
        panels.push(Panel { name: "words".to_owned(), y: (0.0, longest), series });
        Figure { x_name: "turn".to_owned(), x: (0.0, last), spans: spans(&self.turns), panels }.svg()
    }
}

/// The spans of phases that all rollouts were in; each ends where the next begins.
fn spans(turns: &[TurnRow]) -> Vec<AxisSpan> {
    let mut spans: Vec<AxisSpan> = Vec::new();
    for row in turns {
        let at = row.turn as f64;
        let Some(name) = &row.phase else { continue };
        match spans.last_mut() {
            Some(span) if span.name == *name => span.x.1 = at,
            last => {
                if let Some(span) = last {
                    span.x.1 = at;
                }
                spans.push(AxisSpan { name: name.clone(), x: (at, at) });
            }
        }
    }
    spans
}

fn line(turns: &[TurnRow], name: &str, value: impl Fn(&TurnRow) -> Option<Mean>) -> Series {
    let known: Vec<(usize, Mean)> = turns.iter().filter_map(|row| Some((row.turn, value(row)?))).collect();
    let runs = || known.chunk_by(|a, b| a.0 + 1 == b.0);
    let band = |run: &[(usize, Mean)]| {
        let wide = run.len() > 1 && run.iter().any(|(_, mean)| mean.high > mean.low);
        wide.then(|| run.iter().map(|(turn, mean)| (*turn as f64, mean.low, mean.high)).collect())
    };
    Series {
        name: name.to_owned(),
        runs: runs().map(|run| run.iter().map(|(turn, mean)| (*turn as f64, mean.mean)).collect()).collect(),
        band: runs().filter_map(band).collect(),
    }
}
