//! The page's curves as SVG paths in a box of fixed size. They are inline, unlike `curves.svg`, so that they follow the
//! page's colours in light mode, dark mode and print.

use std::fmt::Write as _;

use serde::Serialize;

use super::super::data::{Mean, Report, StoredScore};
use super::super::format::number;

/// The size of a panel, in units of its `viewBox`.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 150.0;
/// Maximum number of labels on the horizontal axis.
const LABELS_MAX: usize = 10;

/// One panel with curves over the turns.
#[derive(Serialize)]
pub(super) struct Panel {
    name: String,
    note: &'static str,
    top: String,
    series: Vec<Series>,
    spans: Vec<Span>,
    labels: Vec<Label>,
}

#[derive(Serialize)]
struct Series {
    name: String,
    /// Index of the page's colour.
    colour: usize,
    dashed: bool,
    line: String,
    band: String,
}

/// A phase's span on the axis.
#[derive(Serialize)]
struct Span {
    name: String,
    x: f64,
    width: f64,
    odd: bool,
}

#[derive(Serialize)]
struct Label {
    x: f64,
    turn: usize,
}

/// Turns and values; a missing turn breaks the line.
type Points = Vec<(usize, Mean)>;

/// The panels with data.
pub(super) fn panels(report: &Report) -> Vec<Panel> {
    let last = report.turns.last().map_or(0, |row| row.turn).max(1) as f64;
    let x = move |turn: usize| turn as f64 / last * WIDTH;
    let of = |value: fn(&super::super::data::TurnRow) -> Option<Mean>| -> Points {
        report.turns.iter().filter_map(|row| Some((row.turn, value(row)?))).collect()
    };
    let mut panels = Vec::new();
    let mut panel = |name: &str, note, series: Vec<(String, usize, bool, Points)>, top: Option<f64>| {
        let high = series.iter().flat_map(|(_, _, _, points)| points).map(|(_, mean)| mean.high).fold(0.0, f64::max);
        let top = top.unwrap_or(high).max(f64::MIN_POSITIVE);
        if series.iter().all(|(_, _, _, points)| points.is_empty()) {
            return;
        }
        let drawn = series.into_iter().map(|(name, colour, dashed, points)| Series {
            name,
            colour,
            dashed,
            line: line(&points, &x, top, dashed),
            band: band(&points, &x, top),
        });
        panels.push(Panel {
            name: name.to_owned(),
            note,
            top: number(top),
            series: drawn.collect(),
            spans: spans(report, &x),
            labels: labels(report, &x),
        });
    };
    let mut intensities = Vec::new();
    for (colour, name) in report.dimensions.iter().enumerate() {
        let points = report.turns.iter().filter_map(|row| {
            let value = row.intensities.iter().find(|intensity| intensity.dimension == *name)?.value;
            Some((row.turn, Mean { mean: value, low: value, high: value, n: row.rollouts }))
        });
        intensities.push((name.clone(), colour, false, points.collect()));
        for score in expressed(report, name) {
            let points = score.points.iter().map(|point| (point.turn, point.value)).collect();
            intensities.push((format!("{name}, expressed"), colour, true, points));
        }
    }
    let note =
        if intensities.len() > report.dimensions.len() { "prescribed, and dashed: expressed" } else { "prescribed" };
    panel("Intensity", note, intensities, Some(1.0));
    panel(
        "Confidence",
        "of the persona's messages",
        vec![("mean".into(), 0, false, of(|row| row.confidence))],
        Some(1.0),
    );
    panel("Entropy", "nats per token, the persona's", vec![("mean".into(), 1, false, of(|row| row.entropy))], None);
    panel("Length", "words per message, the persona's", vec![("mean".into(), 2, false, of(|row| row.words))], None);
    panels
}

/// Stored scores of the expressed intensity of `dimension`.
fn expressed<'a>(report: &'a Report, dimension: &'a str) -> impl Iterator<Item = &'a StoredScore> {
    report.stored.iter().filter(move |score| {
        score.id.starts_with("expressed") && score.dimension.as_deref() == Some(dimension) && !score.points.is_empty()
    })
}

fn y(value: f64, top: f64) -> f64 {
    HEIGHT - value / top * HEIGHT
}

/// The path of a line. A missing turn breaks it, unless the values are `sparse`.
fn line(points: &Points, x: &impl Fn(usize) -> f64, top: f64, sparse: bool) -> String {
    let mut path = String::new();
    let mut before: Option<usize> = None;
    for (turn, mean) in points {
        let joined = before.is_some_and(|before| sparse || before + 1 == *turn);
        let (to, at) = (if joined { 'L' } else { 'M' }, y(mean.mean, top));
        // Writing to a String does not fail.
        let _infallible = write!(path, "{to}{:.1} {at:.1}", x(*turn));
        if !joined {
            // A single point shows as a dot, because line ends are round.
            path.push_str("h0");
        }
        before = Some(*turn);
    }
    path
}

/// The path of the band from the lowest to the highest rollout, where they differ.
fn band(points: &Points, x: &impl Fn(usize) -> f64, top: f64) -> String {
    let mut path = String::new();
    for run in points.chunk_by(|a, b| a.0 + 1 == b.0) {
        if run.iter().all(|(_, mean)| mean.high <= mean.low) {
            continue;
        }
        let upper = run.iter().map(|(turn, mean)| (*turn, mean.high));
        let lower = run.iter().rev().map(|(turn, mean)| (*turn, mean.low));
        for (at, (turn, value)) in upper.chain(lower).enumerate() {
            let to = if at == 0 { 'M' } else { 'L' };
            let _infallible = write!(path, "{to}{:.1} {:.1}", x(turn), y(value, top));
        }
        path.push('Z');
    }
    path
}

fn spans(report: &Report, x: &impl Fn(usize) -> f64) -> Vec<Span> {
    let mut spans: Vec<(String, usize, usize)> = Vec::new();
    for row in &report.turns {
        let Some(phase) = &row.phase else { continue };
        match spans.last_mut() {
            Some((name, _, last)) if name == phase => *last = row.turn,
            last => {
                if let Some((_, _, last)) = last {
                    *last = row.turn;
                }
                spans.push((phase.clone(), row.turn, row.turn));
            }
        }
    }
    let span = |(index, (name, first, last)): (usize, (String, usize, usize))| Span {
        name,
        x: x(first),
        width: x(last) - x(first),
        odd: index % 2 == 1,
    };
    spans.into_iter().enumerate().map(span).collect()
}

fn labels(report: &Report, x: &impl Fn(usize) -> f64) -> Vec<Label> {
    let every = report.turns.len().div_ceil(LABELS_MAX).max(1);
    // Use round distances.
    let every =
        [1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 1_000].into_iter().find(|round| *round >= every).unwrap_or(every);
    let rows = report.turns.iter().filter(|row| row.turn % every == 0);
    rows.map(|row| Label { x: x(row.turn) / WIDTH * 100.0, turn: row.turn }).collect()
}
