//! Plots as SVG.
