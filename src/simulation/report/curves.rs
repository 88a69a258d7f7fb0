//! The report's figure as SVG: the panels of [`super::panels`].

use super::data::Report;
use super::panels::{Curve, panels, phase_spans};
use super::summary::Mean;
use crate::foundation::plot::{AxisSpan, Figure, Panel, PlotError, Series};

impl Report {
    /// The figure as SVG. Lines are means over the rollouts; bands are from the lowest to the highest rollout.
    ///
    /// # Errors
    /// If a value is not finite.
    pub fn curves(&self) -> Result<String, PlotError> {
        let last = self.turns.last().map_or(0, |row| row.turn) as f64;
        let panels = panels(self).into_iter().map(|panel| Panel {
            name: format!("{}, {}", panel.name, panel.note),
            y: (0.0, panel.top),
            series: panel.curves.iter().map(series).collect(),
        });
        let spans = phase_spans(self)
            .into_iter()
            .map(|span| AxisSpan { name: span.name, x: (span.turns.0 as f64, span.turns.1 as f64) });
        Figure { x_name: "turn".to_owned(), x: (0.0, last), spans: spans.collect(), panels: panels.collect() }.svg()
    }
}

/// The runs of a curve without missing turns, and their bands. A sparse curve is one run.
fn series(curve: &Curve) -> Series {
    let runs = || curve.points.chunk_by(|a, b| curve.sparse || a.0 + 1 == b.0);
    let band = |run: &[(usize, Mean)]| {
        let wide = run.len() > 1 && run.iter().any(|(_, mean)| mean.high > mean.low);
        wide.then(|| run.iter().map(|(turn, mean)| (*turn as f64, mean.low, mean.high)).collect())
    };
    Series {
        name: curve.name.clone(),
        runs: runs().map(|run| run.iter().map(|(turn, mean)| (*turn as f64, mean.mean)).collect()).collect(),
        band: runs().filter_map(band).collect(),
    }
}
