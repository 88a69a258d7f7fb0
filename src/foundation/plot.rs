//! Plots as SVG: stacked panels over one shared axis. Knows no run and no score; gives text, writes no file.
//!
//! The same figure gives the same bytes.

mod figure;

pub use figure::{Figure, Panel, PlotError, Series, Span};
