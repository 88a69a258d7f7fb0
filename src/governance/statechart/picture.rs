//! Draws a chart as SVG without an external program: states as nested boxes in the order of the text, each transition on a
//! line with an arrow to its target. Amendments are dashed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::chart::{Chart, StateKind, Vocabulary};
use super::diagram::transition_text;
use super::set::StateId;

/// Height of a line, width of a character, and the space around a box, all in pixels.
const LINE: usize = 16;
const CHARACTER: usize = 7;
const SPACE: usize = 8;

impl<V: Vocabulary> Chart<V> {
    /// The chart as an SVG picture.
    pub fn to_svg(&self) -> String {
        let mut picture = Picture { chart: self, out: String::new(), boxes: BTreeMap::new(), arrows: Vec::new() };
        let width = picture.width(StateId::ROOT, 0);
        let height = picture.place(StateId::ROOT, 0, 0, width);
        picture.draw_arrows(width);
        let (body, whole) = (picture.out, width + width / 3);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{whole}\" height=\"{height}\" viewBox=\"0 0 {whole} {height}\" \
             font-family=\"monospace\" font-size=\"11\">\n<defs><marker id=\"to\" viewBox=\"0 0 6 6\" refX=\"6\" refY=\"3\" \
             markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\"><path d=\"M0 0L6 3L0 6z\"/></marker></defs>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
        )
    }
}

struct Picture<'c, V: Vocabulary> {
    chart: &'c Chart<V>,
    out: String,
    /// The right edge and the middle of the title of every box.
    boxes: BTreeMap<StateId, (usize, usize)>,
    /// Start position, target, and whether an amendment added it.
    arrows: Vec<((usize, usize), StateId, bool)>,
}

impl<V: Vocabulary> Picture<'_, V> {
    fn title(&self, id: StateId) -> String {
        let state = self.chart.state(id);
        let mut text = if id == StateId::ROOT { self.chart.name().to_owned() } else { state.name.clone() };
        if let Some(label) = &state.label {
            let _infallible = write!(text, " · {}", label.replace('\n', " · "));
        }
        if let Some(amendment) = state.amendment {
            let _infallible = write!(text, " @{amendment}");
        }
        text
    }

    /// The lines of a state: its histories, then its transitions, each with its targets.
    fn lines(&self, id: StateId) -> Vec<(String, Vec<StateId>, bool)> {
        let chart = self.chart;
        let state = chart.state(id);
        let histories = state.histories.iter().map(|history| {
            let inner = chart.state(history);
            let deep = if inner.kind == (StateKind::History { deep: true }) { "H*" } else { "H" };
            let targets = inner.initial.iter().flat_map(|initial| initial.targets.iter().copied()).collect();
            (format!("{deep} {}", inner.name), targets, inner.amendment.is_some())
        });
        let own = chart.transitions().filter(|(_, transition)| transition.source == id).map(|(_, transition)| {
            let names: Vec<_> = transition.targets.iter().map(|target| chart.state(*target).name.as_str()).collect();
            let to = if names.is_empty() { String::new() } else { format!(" → {}", names.join(", ")) };
            let text = transition_text(chart, transition).replace('\n', " ");
            (format!("{text}{to}"), transition.targets.clone(), transition.amendment.is_some())
        });
        histories.chain(own).collect()
    }

    /// The width of a state with its descendants.
    fn width(&self, id: StateId, depth: usize) -> usize {
        let lines = self.lines(id).into_iter().map(|(text, ..)| text.chars().count() + 2);
        let own = lines.chain([self.title(id).chars().count()]).max().unwrap_or_default();
        let inside = self.chart.state(id).children.iter().map(|child| self.width(child, depth + 1));
        inside.chain([own * CHARACTER + 2 * SPACE * (depth + 1)]).max().unwrap_or_default()
    }

    /// Draws a state and its descendants; returns the height.
    fn place(&mut self, id: StateId, x: usize, y: usize, width: usize) -> usize {
        let state = self.chart.state(id);
        let frame = self.out.len();
        let (title, middle) = (self.title(id), y + SPACE + LINE / 2);
        self.boxes.insert(id, (x + width, middle));
        for history in state.histories {
            self.boxes.insert(history, (x + width, middle));
        }
        self.text(x + SPACE, middle, &title, " font-weight=\"bold\"");
        let mut bottom = y + SPACE + LINE;
        for (text, targets, amended) in self.lines(id) {
            let middle = bottom + LINE / 2;
            self.text(x + 2 * SPACE, middle, &text, if amended { " fill=\"#666\"" } else { "" });
            let from = x + 2 * SPACE + text.chars().count() * CHARACTER;
            self.arrows.extend(targets.into_iter().map(|target| ((from, middle), target, amended)));
            bottom += LINE;
        }
        for child in state.children {
            bottom += SPACE + self.place(child, x + SPACE, bottom + SPACE, width - 2 * SPACE);
        }
        bottom += SPACE;
        let (height, round) = (bottom - y, if state.kind == StateKind::Final { 0 } else { 6 });
        let dashed = match (state.amendment, state.kind) {
            (Some(_), _) => " stroke-dasharray=\"2 2\"",
            (None, StateKind::Parallel) => " stroke-dasharray=\"6 3\"",
            _ => "",
        };
        let drawn = format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{round}\" fill=\"#4468b0\" \
             fill-opacity=\"0.05\" stroke=\"#4468b0\"{dashed}/>\n"
        );
        self.out.insert_str(frame, &drawn);
        height
    }

    fn text(&mut self, x: usize, middle: usize, text: &str, looks: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _infallible = writeln!(self.out, "<text x=\"{x}\" y=\"{}\"{looks}>{text}</text>", middle + 4);
    }

    /// Draws the arrows, curved to the right in proportion to their length.
    fn draw_arrows(&mut self, width: usize) {
        for ((x, y), target, amended) in std::mem::take(&mut self.arrows) {
            let Some(&(to_x, to_y)) = self.boxes.get(&target) else { continue };
            let bend = width + (y.abs_diff(to_y) / 8).min(width / 3 - SPACE);
            let dashed = if amended { " stroke-dasharray=\"3 3\"" } else { "" };
            let _infallible = writeln!(
                self.out,
                "<path d=\"M{x} {y}C{bend} {y} {bend} {to_y} {to_x} {to_y}\" fill=\"none\" stroke=\"#999\" \
                 marker-end=\"url(#to)\"{dashed}/>"
            );
        }
    }
}
