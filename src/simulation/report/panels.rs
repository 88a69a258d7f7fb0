//! The curves of a report over the turns, for the figure `curves.svg` and for the page.

use super::data::{Report, StoredScore, TurnRow};
use super::summary::Mean;

/// One panel with curves.
pub(super) struct ReportPanel {
    pub(super) name: &'static str,
    pub(super) note: &'static str,
    /// The highest value of the vertical axis, which begins at 0.
    pub(super) top: f64,
    pub(super) curves: Vec<Curve>,
}

/// One curve.
pub(super) struct Curve {
    pub(super) name: String,
    /// Index of the colour.
    pub(super) colour: usize,
    /// Values that may be turns apart, such as those of a sample.
    pub(super) sparse: bool,
    pub(super) points: Vec<(usize, Mean)>,
}

/// A phase that all rollouts were in, with its first turn and the first of the next.
pub(super) struct PhaseSpan {
    pub(super) name: String,
    pub(super) turns: (usize, usize),
}

/// The panels with data: prescribed and expressed intensities, confidence, entropy, length.
pub(super) fn panels(report: &Report) -> Vec<ReportPanel> {
    let of = |value: fn(&TurnRow) -> Option<Mean>| -> Vec<(usize, Mean)> {
        report.turns.iter().filter_map(|row| Some((row.turn, value(row)?))).collect()
    };
    let mut intensities = Vec::new();
    for (colour, name) in report.dimensions.iter().enumerate() {
        let points = report.turns.iter().filter_map(|row| {
            let value = row.intensities.iter().find(|intensity| intensity.dimension == *name)?.value;
            Some((row.turn, Mean { mean: value, low: value, high: value, n: row.rollouts }))
        });
        intensities.push(Curve { name: name.clone(), colour, sparse: false, points: points.collect() });
        for score in expressed(report, name) {
            let points = score.points.iter().map(|point| (point.turn, point.value)).collect();
            intensities.push(Curve { name: format!("{name}, expressed"), colour, sparse: true, points });
        }
    }
    let note =
        if intensities.len() > report.dimensions.len() { "prescribed, and dashed: expressed" } else { "prescribed" };
    let one = |colour, points| vec![Curve { name: "mean".to_owned(), colour, sparse: false, points }];
    let all = [
        ("Intensity", note, intensities, Some(1.0)),
        ("Confidence", "of the persona's messages", one(0, of(|row| row.confidence)), Some(1.0)),
        ("Entropy", "nats per token, the persona's", one(1, of(|row| row.entropy)), None),
        ("Length", "words per message, the persona's", one(2, of(|row| row.words)), None),
    ];
    let drawn = all.into_iter().filter(|(_, _, curves, _)| curves.iter().any(|curve| !curve.points.is_empty()));
    drawn
        .map(|(name, note, curves, top)| {
            let high = curves.iter().flat_map(|curve| &curve.points).map(|(_, mean)| mean.high).fold(0.0, f64::max);
            ReportPanel { name, note, top: top.unwrap_or(high).max(f64::MIN_POSITIVE), curves }
        })
        .collect()
}

/// The phases that all rollouts were in.
pub(super) fn phase_spans(report: &Report) -> Vec<PhaseSpan> {
    let mut spans: Vec<PhaseSpan> = Vec::new();
    for row in &report.turns {
        let Some(phase) = &row.phase else { continue };
        if let Some(last) = spans.last_mut() {
            last.turns.1 = row.turn;
        }
        if spans.last().is_none_or(|last| last.name != *phase) {
            spans.push(PhaseSpan { name: phase.clone(), turns: (row.turn, row.turn) });
        }
    }
    spans
}

/// Stored scores of the expressed intensity of `dimension`.
fn expressed<'a>(report: &'a Report, dimension: &'a str) -> impl Iterator<Item = &'a StoredScore> {
    report.stored.iter().filter(move |score| {
        score.id.starts_with("expressed") && score.dimension.as_deref() == Some(dimension) && !score.points.is_empty()
    })
}
