//! Diagrams for Graphviz and Mermaid. Both have the same nodes: composite states are boxes, transitions of a whole box
//! start at its `∗`, histories are `H` and `H*`, amendments are dashed and numbered.

use std::fmt::Write as _;

use super::chart::{Chart, ConditionTest, Executable, StateKind, Transition, Vocabulary, word};
use super::check::trigger_name;
use super::set::StateId;

impl<V: Vocabulary> Chart<V> {
    /// The chart in Graphviz's language.
    pub fn to_dot(&self) -> String {
        Drawing { chart: self, out: String::new(), language: Language::Dot }.whole()
    }

    /// The chart as a Mermaid flowchart.
    pub fn to_mermaid(&self) -> String {
        Drawing { chart: self, out: String::new(), language: Language::Mermaid }.whole()
    }
}

#[derive(Clone, Copy)]
enum Language {
    Dot,
    Mermaid,
}

struct Drawing<'c, V: Vocabulary> {
    chart: &'c Chart<V>,
    out: String,
    language: Language,
}

/// A node's shape.
#[derive(Clone, Copy)]
enum Shape {
    State,
    End,
    History,
    Start,
    Any,
}

impl<V: Vocabulary> Drawing<'_, V> {
    fn whole(mut self) -> String {
        let chart = self.chart;
        match self.language {
            Language::Dot => {
                let looks = "  rankdir=TB\n  node [shape=box, style=rounded, fontname=\"sans-serif\"]\n  edge [fontname=\"sans-serif\", fontsize=10]";
                self.line(0, &format!("digraph {} {{\n{looks}", chart.name()));
            }
            Language::Mermaid => self.line(0, "flowchart TB"),
        }
        self.inside(StateId::ROOT, 1);
        for (_, transition) in chart.transitions() {
            self.transition(transition);
        }
        if matches!(self.language, Language::Dot) {
            self.line(0, "}");
        }
        self.out
    }

    fn line(&mut self, depth: usize, text: &str) {
        for _ in 0..depth {
            self.out.push_str("  ");
        }
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// The nodes and boxes inside a state.
    fn inside(&mut self, id: StateId, depth: usize) {
        let chart = self.chart;
        let state = chart.state(id);
        if state.kind == StateKind::Compound {
            self.node(&self.start_name(id), Shape::Start, "", depth);
        }
        if !state.transitions.is_empty() {
            self.node(&self.any_name(id), Shape::Any, "∗", depth);
        }
        for history in state.histories {
            let deep = chart.state(history).kind == StateKind::History { deep: true };
            self.node(&self.name(history), Shape::History, if deep { "H*" } else { "H" }, depth);
        }
        for child in state.children {
            let inner = chart.state(child);
            let mut text = inner.label.clone().map_or(inner.name.clone(), |label| format!("{}\n{label}", inner.name));
            if let Some(amendment) = inner.amendment {
                let _infallible = write!(text, " @{amendment}");
            }
            match inner.kind {
                StateKind::Compound | StateKind::Parallel => {
                    let name = self.name(child);
                    let text = self.quoted(&text);
                    match self.language {
                        Language::Dot => {
                            let style = if inner.kind == StateKind::Parallel { "; style=dashed" } else { "" };
                            self.line(depth, &format!("subgraph cluster_{name} {{ label={text}{style}"));
                        }
                        Language::Mermaid => self.line(depth, &format!("subgraph {name}[{text}]")),
                    }
                    self.inside(child, depth + 1);
                    self.line(depth, if matches!(self.language, Language::Dot) { "}" } else { "end" });
                }
                StateKind::Final => self.node(&self.name(child), Shape::End, &text, depth),
                StateKind::Atomic | StateKind::History { .. } => {
                    self.node(&self.name(child), Shape::State, &text, depth);
                }
            }
        }
        for (way, name) in self.ways(id) {
            let targets = chart.state(way).initial.iter().flat_map(|initial| &initial.targets);
            for target in targets {
                let to = self.end_of_arrow(*target);
                self.edge(&name, &to, "", false, depth);
            }
        }
    }

    /// The default entries of a state: its start and its histories.
    fn ways(&self, id: StateId) -> Vec<(StateId, String)> {
        let state = self.chart.state(id);
        let start = (state.kind == StateKind::Compound).then(|| (id, self.start_name(id)));
        start.into_iter().chain(state.histories.iter().map(|history| (history, self.name(history)))).collect()
    }

    fn transition(&mut self, transition: &Transition<V>) {
        let chart = self.chart;
        let composite = matches!(self.chart.state(transition.source).kind, StateKind::Compound | StateKind::Parallel);
        let from = if composite { self.any_name(transition.source) } else { self.name(transition.source) };
        let text = transition_text(chart, transition);
        let dashed = transition.amendment.is_some();
        if transition.targets.is_empty() {
            self.edge(&from, &from, &text, dashed, 1);
        }
        for target in &transition.targets {
            let to = self.end_of_arrow(*target);
            self.edge(&from, &to, &text, dashed, 1);
        }
    }

    /// The node at which an arrow to `target` ends: for a box, its start.
    fn end_of_arrow(&self, target: StateId) -> String {
        match self.chart.state(target).kind {
            StateKind::Compound => self.start_name(target),
            StateKind::Parallel => {
                let first = self.chart.state(target).children.iter().next();
                first.map_or_else(String::new, |region| self.end_of_arrow(region))
            }
            _ => self.name(target),
        }
    }

    fn name(&self, id: StateId) -> String {
        self.chart.state(id).path.replace('.', "_")
    }

    fn start_name(&self, id: StateId) -> String {
        format!("{}__start", self.name(id))
    }

    fn any_name(&self, id: StateId) -> String {
        format!("{}__any", self.name(id))
    }

    fn quoted(&self, text: &str) -> String {
        match self.language {
            Language::Dot => format!("\"{}\"", text.replace('\n', "\\n")),
            Language::Mermaid => {
                let text = text.replace('&', "#amp;").replace('<', "#lt;").replace('>', "#gt;");
                format!("\"{}\"", text.replace('\n', "<br>"))
            }
        }
    }

    fn node(&mut self, name: &str, shape: Shape, text: &str, depth: usize) {
        let text = self.quoted(text);
        let line = match (self.language, shape) {
            (Language::Dot, Shape::State) => format!("{name} [label={text}]"),
            (Language::Dot, Shape::End) => format!("{name} [label={text}, peripheries=2]"),
            (Language::Dot, Shape::History | Shape::Any) => format!("{name} [label={text}, shape=circle, style=solid]"),
            (Language::Dot, Shape::Start) => format!("{name} [shape=point]"),
            (Language::Mermaid, Shape::State) => format!("{name}({text})"),
            (Language::Mermaid, Shape::End) => format!("{name}([{text}])"),
            (Language::Mermaid, Shape::History | Shape::Any) => format!("{name}(({text}))"),
            (Language::Mermaid, Shape::Start) => format!("{name}((\"●\"))"),
        };
        self.line(depth, &line);
    }

    fn edge(&mut self, from: &str, to: &str, text: &str, dashed: bool, depth: usize) {
        let line = match self.language {
            Language::Dot => {
                let style = if dashed { ", style=dashed" } else { "" };
                format!("{from} -> {to} [label={}{style}]", self.quoted(text))
            }
            Language::Mermaid => {
                let arrow = if dashed { "-.->" } else { "-->" };
                let label = if text.is_empty() { String::new() } else { format!("|{}|", self.quoted(text)) };
                format!("{from} {arrow}{label} {to}")
            }
        };
        self.line(depth, &line);
    }
}

/// The text of a transition's arrow.
pub(super) fn transition_text<V: Vocabulary>(chart: &Chart<V>, transition: &Transition<V>) -> String {
    let triggers: Vec<_> = transition.triggers.iter().map(|trigger| trigger_name(chart, *trigger)).collect();
    let mut text = triggers.join(", ");
    let conditions: Vec<_> = transition
        .conditions
        .iter()
        .map(|condition| {
            let not = if condition.wanted { "" } else { "not " };
            match condition.test {
                ConditionTest::Guard(guard) => format!("{not}{}", word(guard)),
                ConditionTest::In(state) => format!("{not}in {}", chart.state(state).path),
            }
        })
        .collect();
    if !conditions.is_empty() {
        let _infallible = write!(text, " [{}]", conditions.join(", "));
    }
    if let Some(counter) = transition.spend {
        let counter = chart.counter(counter);
        let _infallible = write!(text, " ({} of {})", counter.name, counter.limit);
    }
    let acts: Vec<_> = transition
        .acts
        .iter()
        .map(|act| match act {
            Executable::Do(action) => word(*action).to_owned(),
            Executable::Raise(event) => format!("raise {}", word(*event)),
        })
        .collect();
    if !acts.is_empty() {
        let _infallible = write!(text, " / {}", acts.join(", "));
    }
    if let Some(label) = transition.label.as_ref().filter(|label| **label != text) {
        let _infallible = write!(text, "\n{label}");
    }
    if let Some(amendment) = transition.amendment {
        let _infallible = write!(text, " @{amendment}");
    }
    text
}
