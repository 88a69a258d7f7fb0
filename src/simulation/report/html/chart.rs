//! The page's curves as SVG paths in a box of fixed size. They are inline, unlike `curves.svg`, so that they follow the
//! page's colours in light mode, dark mode and print.

use std::fmt::Write as _;

use serde::Serialize;

use super::super::data::Report;
use super::super::format::number;
use super::super::panels::{self, PhaseSpan, ReportPanel};
use super::super::summary::Mean;

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

/// The panels with data.
pub(super) fn panels(report: &Report) -> Vec<Panel> {
    let last = report.turns.last().map_or(0, |row| row.turn).max(1) as f64;
    let x = move |turn: usize| turn as f64 / last * WIDTH;
    let panel = |panel: ReportPanel| {
        let top = panel.top;
        let drawn = panel.curves.into_iter().map(|curve| Series {
            name: curve.name,
            colour: curve.colour,
            dashed: curve.sparse,
            line: line(&curve.points, &x, top, curve.sparse),
            band: band(&curve.points, &x, top),
        });
        Panel {
            name: panel.name.to_owned(),
            note: panel.note,
            top: number(top),
            series: drawn.collect(),
            spans: spans(report, &x),
            labels: labels(report, &x),
        }
    };
    panels::panels(report).into_iter().map(panel).collect()
}

fn y(value: f64, top: f64) -> f64 {
    HEIGHT - value / top * HEIGHT
}

/// The path of a line. A missing turn breaks it, unless the values are `sparse`.
fn line(points: &[(usize, Mean)], x: &impl Fn(usize) -> f64, top: f64, sparse: bool) -> String {
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
fn band(points: &[(usize, Mean)], x: &impl Fn(usize) -> f64, top: f64) -> String {
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
    let span = |(index, span): (usize, PhaseSpan)| Span {
        name: span.name,
        x: x(span.turns.0),
        width: x(span.turns.1) - x(span.turns.0),
        odd: index % 2 == 1,
    };
    panels::phase_spans(report).into_iter().enumerate().map(span).collect()
}

fn labels(report: &Report, x: &impl Fn(usize) -> f64) -> Vec<Label> {
    let every = report.turns.len().div_ceil(LABELS_MAX).max(1);
    // Use round distances.
    let every =
        [1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 1_000].into_iter().find(|round| *round >= every).unwrap_or(every);
    let rows = report.turns.iter().filter(|row| row.turn % every == 0);
    rows.map(|row| Label { x: x(row.turn) / WIDTH * 100.0, turn: row.turn }).collect()
}
