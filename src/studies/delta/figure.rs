//! Plot of a sweep: each gain's effect over its size, on a logarithmic axis.

use super::report::{SweepReport, SweepRow};
use crate::foundation::plot::{Figure, Panel, Series};

/// ΔNLL, divergence, agreement, half-life and state norm over log₂ of the gain; one line for each gain, set of layers and
/// window. A gain of 0 cannot be shown on the axis and is only in the table.
pub fn figure(report: &SweepReport) -> Figure {
    let mut names: Vec<String> = Vec::new();
    for row in &report.rows {
        if let Some(name) = name(row)
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    let base = report.rows.iter().find(|row| row.setting.is_none());
    let series = |of: &dyn Fn(&SweepRow) -> Option<f64>| -> Vec<Series> {
        let line = |wanted: &String| {
            let own = report.rows.iter().filter(|row| row.passages > 0 && name(row).as_ref() == Some(wanted));
            let mut points: Vec<(f64, f64)> = own.filter_map(|row| Some((x(row)?, of(row)?))).collect();
            let has_one = points.iter().any(|(x, _)| *x == 0.0);
            points.extend(base.filter(|_| !has_one).and_then(|row| Some((0.0, of(row)?))));
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Series { name: wanted.clone(), runs: vec![points], band: Vec::new() }
        };
        names.iter().map(line).collect()
    };
    let panel = |name: &str, of: &dyn Fn(&SweepRow) -> Option<f64>| {
        let series = series(of);
        let values: Vec<f64> = series.iter().flat_map(|one| one.runs.iter().flatten()).map(|(_, y)| *y).collect();
        Panel { name: name.to_owned(), y: bounds(&values), series }
    };
    let across: Vec<f64> = report.rows.iter().filter_map(x).collect();
    Figure {
        x_name: "log2 of the gain".to_owned(),
        x: bounds(&across),
        spans: Vec::new(),
        panels: vec![
            panel("ΔNLL, nats", &|row| Some(row.delta_nll.value)),
            panel("KL, nats", &|row| Some(row.kl)),
            panel("agreement", &|row| Some(row.agreement)),
            panel("half-life, tokens", &SweepRow::half_life),
            panel("state norm", &|row| Some(row.state_norm())),
            panel("distinct-2", &|row| row.distinct[1]),
        ],
    }
}

fn name(row: &SweepRow) -> Option<String> {
    let setting = row.setting.as_ref()?;
    let mut name = setting.gain.name().to_owned();
    for part in [setting.layers.to_string(), setting.window.to_string()] {
        if part != "all" {
            name = format!("{name} {part}");
        }
    }
    Some(name)
}

fn x(row: &SweepRow) -> Option<f64> {
    let value = f64::from(row.setting.as_ref()?.value);
    (value > 0.0).then(|| value.log2())
}

fn bounds(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if low <= high { (low, high) } else { (0.0, 1.0) }
}
