//! The reliability diagram: stated probability against observed share.

use super::study::EstimatorMetrics;
use crate::foundation::plot::{Figure, Panel, Series};

/// One estimator's reliability diagram on the held-out items, above the number of answers per bin.
pub fn reliability_figure(measured: &EstimatorMetrics) -> Figure {
    let line =
        |name: &str, points: Vec<(f64, f64)>| Series { name: name.to_owned(), runs: vec![points], band: Vec::new() };
    let bins = &measured.reliability;
    let most = bins.iter().map(|bin| bin.n).max().unwrap_or(0) as f64;
    Figure {
        x_name: format!("stated probability of being right ({})", measured.estimator.name()),
        x: (0.0, 1.0),
        spans: Vec::new(),
        panels: vec![
            Panel {
                name: "share that was right".to_owned(),
                y: (0.0, 1.0),
                series: vec![
                    line("observed", bins.iter().map(|bin| (bin.stated, bin.observed)).collect()),
                    line("perfect", vec![(0.0, 0.0), (1.0, 1.0)]),
                ],
            },
            Panel {
                name: "answers".to_owned(),
                y: (0.0, most),
                series: vec![line("in the bin", bins.iter().map(|bin| (bin.stated, bin.n as f64)).collect())],
            },
        ],
    }
}
