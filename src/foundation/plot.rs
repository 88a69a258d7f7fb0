//! Plots as SVG text: stacked panels over one shared axis. The same figure always gives the same bytes.

mod figure;

pub use figure::{AxisSpan, Figure, Panel, PlotError, Series};
