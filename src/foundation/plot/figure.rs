//! A figure: panels that share a horizontal axis, with named spans behind them.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::foundation::text::printable;

/// Width of a figure, pixels.
const WIDTH: u32 = 960;
/// Height of one panel, pixels.
const PANEL_HEIGHT: u32 = 190;
/// Height of the strip with the spans' names, and of the one with the horizontal axis's name, pixels.
const STRIP_HEIGHT: u32 = 30;
/// Width of the column with the series' names, pixels.
const LEGEND_WIDTH: u32 = 190;
/// Width of the vertical axis with its labels, pixels.
const AXIS_WIDTH: u32 = 56;
/// Outer margin, pixels.
const MARGIN: u32 = 10;

/// Okabe and Ito's palette for all kinds of colour vision, without its yellow, which is faint on white.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(60, 60, 60),
];
const INK: RGBColor = RGBColor(70, 70, 70);
const FAINT: RGBColor = RGBColor(225, 225, 225);
const SHADE: RGBColor = RGBColor(244, 244, 242);

/// Panels over one horizontal axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The label of the horizontal axis.
    pub x_name: String,
    /// Its first and last value.
    pub x: (f64, f64),
    /// Named intervals of the horizontal axis, shaded alternately.
    pub spans: Vec<AxisSpan>,
    /// From top to bottom.
    pub panels: Vec<Panel>,
}

/// A named interval of the horizontal axis.
#[derive(Debug, Clone, PartialEq)]
pub struct AxisSpan {
    /// Its name.
    pub name: String,
    /// Where it begins and ends.
    pub x: (f64, f64),
}

/// One panel.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// The label of the vertical axis, with the unit.
    pub name: String,
    /// Its lowest and highest value.
    pub y: (f64, f64),
    /// The lines.
    pub series: Vec<Series>,
}

/// One line, and a band around it.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Runs of consecutive points; the line is interrupted where a value is missing.
    pub runs: Vec<Vec<(f64, f64)>>,
    /// Runs of `(x, low, high)` of a band.
    pub band: Vec<Vec<(f64, f64, f64)>>,
}

/// A figure that cannot be drawn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the figure cannot be drawn: {0}")]
pub struct PlotError(String);

impl PlotError {
    fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

impl Figure {
    /// The figure as an SVG document.
    ///
    /// # Errors
    /// When a bound is not finite.
    pub fn svg(&self) -> Result<String, PlotError> {
        let bounds = self.panels.iter().map(|panel| panel.y).chain([self.x]);
        if bounds.flat_map(|(low, high)| [low, high]).any(|bound| !bound.is_finite()) {
            return Err(PlotError::new("a bound is not finite"));
        }
        let mut svg = String::new();
        let height = STRIP_HEIGHT * 2 + PANEL_HEIGHT * self.panels.len() as u32;
        {
            let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
            root.fill(&WHITE).map_err(PlotError::new)?;
            let (names, rest) = root.split_vertically(STRIP_HEIGHT);
            self.span_names(&names)?;
            let (panels, axis) = rest.split_vertically(PANEL_HEIGHT * self.panels.len() as u32);
            for (area, panel) in panels.split_evenly((self.panels.len().max(1), 1)).iter().zip(&self.panels) {
                self.panel(area, panel)?;
            }
            let style = ("sans-serif", 14).into_font().color(&INK);
            let middle = f64::midpoint(self.pixel(self.axis().0), self.pixel(self.axis().1));
            axis.draw_text(&label(&self.x_name), &centred(&style), (middle as i32, 4)).map_err(PlotError::new)?;
            root.present().map_err(PlotError::new)?;
        }
        Ok(svg)
    }

    /// Pixels from the left edge of `x`.
    fn pixel(&self, x: f64) -> f64 {
        let (low, high) = self.axis();
        let (left, right) = (f64::from(AXIS_WIDTH + MARGIN), f64::from(WIDTH - LEGEND_WIDTH - MARGIN));
        left + (x - low) / (high - low) * (right - left)
    }

    /// The range of the horizontal axis, never empty.
    fn axis(&self) -> (f64, f64) {
        widened(self.x)
    }

    fn span_names(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), PlotError> {
        let style = ("sans-serif", 13).into_font().color(&INK);
        for span in &self.spans {
            let (left, right) = (self.pixel(span.x.0), self.pixel(span.x.1));
            // About seven pixels per character at this size; a name that does not fit is omitted.
            let chars_max = ((right - left) / 7.0).max(0.0) as usize;
            let name = shortened(&span.name, chars_max);
            let middle = f64::midpoint(left, right) as i32;
            area.draw_text(&name, &centred(&style), (middle, 10)).map_err(PlotError::new)?;
        }
        Ok(())
    }

    fn panel(&self, area: &DrawingArea<SVGBackend<'_>, Shift>, panel: &Panel) -> Result<(), PlotError> {
        let (plot, legend) = area.split_horizontally(WIDTH - LEGEND_WIDTH);
        let (x, y) = (self.axis(), widened(panel.y));
        let mut chart = ChartBuilder::on(&plot)
            .margin(MARGIN)
            .margin_top(MARGIN / 2)
            .x_label_area_size(18)
            .y_label_area_size(AXIS_WIDTH)
            .build_cartesian_2d(x.0..x.1, y.0..y.1)
            .map_err(PlotError::new)?;
        for span in self.spans.iter().skip(1).step_by(2) {
            let corners = [(span.x.0, y.0), (span.x.1, y.1)];
            chart.draw_series([Rectangle::new(corners, SHADE.filled())]).map_err(PlotError::new)?;
        }
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(INK)
            .label_style(("sans-serif", 12).into_font().color(&INK))
            .y_labels(5)
            .x_labels(11)
            .x_label_formatter(&|value| if x.1 - x.0 > 2.0 { format!("{value:.0}") } else { tick(*value, x) })
            .y_label_formatter(&|value| tick(*value, y))
            .y_desc(label(&panel.name))
            .axis_desc_style(("sans-serif", 13).into_font().color(&INK))
            .draw()
            .map_err(PlotError::new)?;
        for (series, colour) in panel.series.iter().zip(COLOURS.iter().cycle()) {
            for band in &series.band {
                let upper = band.iter().map(|&(x, _, high)| (x, high));
                let lower = band.iter().rev().map(|&(x, low, _)| (x, low));
                let outline: Vec<(f64, f64)> = upper.chain(lower).collect();
                chart.draw_series([Polygon::new(outline, colour.mix(0.15))]).map_err(PlotError::new)?;
            }
            for run in &series.runs {
                match run.as_slice() {
                    [] => {}
                    [alone] => {
                        chart.draw_series([Circle::new(*alone, 2, colour.filled())]).map_err(PlotError::new)?;
                    }
                    _ => {
                        let line = LineSeries::new(run.iter().copied(), colour.stroke_width(2));
                        chart.draw_series(line).map_err(PlotError::new)?;
                    }
                }
            }
        }
        let style = ("sans-serif", 13).into_font().color(&INK);
        for ((index, series), colour) in (0i32..).zip(&panel.series).zip(COLOURS.iter().cycle()) {
            let at = MARGIN.cast_signed() + 10 + index * 20;
            let dash = PathElement::new(vec![(0, at), (18, at)], colour.stroke_width(3));
            legend.draw(&dash).map_err(PlotError::new)?;
            legend.draw_text(&shortened(&series.name, 24), &style, (24, at - 6)).map_err(PlotError::new)?;
        }
        Ok(())
    }
}

/// Centred on the point at which it is drawn.
fn centred<'a>(style: &TextStyle<'a>) -> TextStyle<'a> {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    style.pos(Pos::new(HPos::Center, VPos::Top))
}

/// Widens an empty range, so that the axis has a width.
fn widened((low, high): (f64, f64)) -> (f64, f64) {
    if high > low { (low, high) } else { (low - 0.5, low + 0.5) }
}

/// As many decimals as the axis needs.
fn tick(value: f64, (low, high): (f64, f64)) -> String {
    let decimals = if high - low >= 5.0 { 0 } else { 1 + usize::from(high - low < 0.5) };
    // No "-0.0".
    format!("{:.decimals$}", value + 0.0)
}

/// `text` on one line, without characters that XML does not allow.
fn label(text: &str) -> String {
    let valid = |c: char| !matches!(c, '\n' | '\t' | '\u{fffe}' | '\u{ffff}');
    printable(text).chars().map(|c| if valid(c) { c } else { ' ' }).collect()
}

/// `text` shortened to at most `chars_max` characters.
fn shortened(text: &str, chars_max: usize) -> String {
    let text = &label(text);
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    if chars_max < 3 {
        return String::new();
    }
    text.chars().take(chars_max - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_outside_leave_the_svg_valid() {
        let mut figure = figure();
        figure.x_name = "\u{1b}]0;x\u{7}</text><script>".to_owned();
        for panel in &mut figure.panels {
            panel.name = "a\u{0}\u{fffe}<b>&".to_owned();
            for series in &mut panel.series {
                series.name = "\u{202e}\n\u{8}\"<".to_owned();
            }
        }
        let svg = figure.svg().unwrap();
        assert!(roxmltree::Document::parse(&svg).is_ok() && !svg.contains("<script>") && !svg.contains('\u{202e}'));
    }

    fn figure() -> Figure {
        let line = |from: u32, to: u32| (from..to).map(|x| (f64::from(x), f64::from(x) / 10.0)).collect::<Vec<_>>();
        Figure {
            x_name: "turn".into(),
            x: (0.0, 9.0),
            spans: vec![
                AxisSpan { name: "rapport".into(), x: (0.0, 3.0) },
                AxisSpan { name: "a <disclosure> & more".into(), x: (3.0, 9.0) },
            ],
            panels: vec![Panel {
                name: "intensity".into(),
                y: (0.0, 1.0),
                series: vec![Series {
                    name: "belief".into(),
                    runs: vec![line(0, 4), line(6, 7), line(8, 10)],
                    band: vec![vec![(0.0, 0.0, 0.1), (1.0, 0.0, 0.2)]],
                }],
            }],
        }
    }

    #[test]
    fn a_gap_breaks_the_line_and_a_lone_point_is_a_dot() {
        let svg = figure().svg().unwrap();
        let thick = svg.matches("stroke-width=\"2\"").count();
        assert_eq!((thick, svg.matches("<circle").count(), svg.matches("<polygon").count()), (2, 1, 1), "{svg}");
        assert!(svg.contains("rapport") && svg.contains("belief"));
        assert!(svg.contains("a &lt;disclosure&gt; &amp; more"));
    }

    #[test]
    fn the_same_figure_gives_the_same_bytes() {
        assert_eq!(figure().svg(), figure().svg());
    }

    #[test]
    fn a_figure_of_one_turn_or_of_constant_values_can_be_drawn() {
        let mut figure = figure();
        figure.x = (0.0, 0.0);
        figure.panels[0].y = (2.0, 2.0);
        assert!(figure.svg().is_ok());
        figure.panels[0].y = (0.0, f64::NAN);
        assert!(figure.svg().is_err());
    }
}
