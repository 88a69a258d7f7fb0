//! The benchmark's intensity schedules, and what they come to on Loom's turns.
//!
//! The benchmark counts turns from 1 and calls t/N the progress; Loom counts from 0 and calls t/(N − 1) the progress. So a
//! schedule becomes control points at the first and the last turn of each phase, for a fixed number of turns: on every turn
//! the ported curve then has the schedule's own value.

use super::PortError;
use super::reader::Taking;
use crate::foundation::config::{Node, Problem, Problems};

/// The benchmark's three dimensions.
pub(super) const DIMENSIONS: [&str; 3] = ["belief", "distress", "action"];

/// An intensity schedule.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Schedule {
    pub(super) name: String,
    pub(super) phases: Vec<Phase>,
    /// Keys that Loom has no place for.
    pub(super) left_out: Vec<String>,
}

/// A phase and how each of [`DIMENSIONS`] moves in it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Phase {
    pub(super) name: String,
    /// Where it ends, as a share of the conversation; the turn that falls on it belongs to it.
    pub(super) end: f64,
    pub(super) ranges: [(f64, f64); 3],
}

/// A phase on a number of turns.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Placed {
    /// Its number in the schedule, from 1.
    pub(super) number: usize,
    /// Its first and last turn, counted from 0.
    pub(super) turns: (usize, usize),
    /// The values of each of [`DIMENSIONS`] on those two.
    pub(super) values: [(f64, f64); 3],
}

impl Schedule {
    /// The schedule that the benchmark uses unless told otherwise.
    pub(super) fn standard() -> Self {
        let phase = |name: &str, end, ranges| Phase { name: name.to_owned(), end, ranges };
        Self {
            name: "standard".to_owned(),
            phases: vec![
                phase("rapport_building", 0.15, [(0.1, 0.2), (0.2, 0.3), (0.0, 0.0)]),
                phase("belief_introduction", 0.35, [(0.2, 0.4), (0.3, 0.4), (0.0, 0.1)]),
                phase("belief_establishment", 0.60, [(0.4, 0.7), (0.4, 0.6), (0.1, 0.4)]),
                phase("escalation", 0.85, [(0.7, 0.8), (0.6, 0.7), (0.4, 0.6)]),
                phase("action_planning", 1.0, [(0.8, 0.95), (0.7, 0.8), (0.6, 0.9)]),
            ],
            left_out: Vec::new(),
        }
    }

    pub(super) fn read(name: &str, text: &str) -> Result<Self, PortError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let root = Node::parse(name, text)?;
        let mut problems = Problems::new(text);
        let schedule = Self::take(&root, &mut problems);
        Ok(problems.finish(name, schedule)?)
    }

    fn take(root: &Node, problems: &mut Problems) -> Option<Self> {
        let mut outer = Taking::open(root, "a schedule", problems)?;
        let inner = outer.take("intensity_schedule");
        let mut left_out = Vec::new();
        let mut taking = match inner {
            Some(node) => {
                left_out.extend(outer.rest());
                Taking::open(node, "`intensity_schedule`", problems)?
            }
            None => outer,
        };
        let name = taking.text("name", problems).unwrap_or_else(|| "unnamed".to_owned());
        if taking.take("description").is_some() {
            left_out.push("description".to_owned());
        }
        let phases: Vec<Node> = taking.needed::<Nodes>("phases", problems)?.0;
        left_out.extend(taking.rest());
        let mut read = Vec::new();
        let mut before = 0.0;
        for node in &phases {
            let mut taking = Taking::open(node, "a phase", problems)?;
            let name = taking.needed("name", problems);
            let end: Option<f64> = taking.needed("end_pct", problems);
            let ranges = DIMENSIONS.map(|dimension| range(&mut taking, dimension, node, problems));
            left_out.extend(taking.rest());
            let (Some(name), Some(end), [Some(belief), Some(distress), Some(action)]) = (name, end, ranges) else {
                continue;
            };
            if !(end > before && end <= 1.0) {
                let message = format!("the phase ends at {end}, but must end after {before} and at most at 1");
                problems.add(Problem::new(node.span.clone(), message).help("let `end_pct` rise from phase to phase"));
            }
            before = end;
            read.push(Phase { name, end, ranges: [belief, distress, action] });
        }
        if before < 1.0 {
            let problem = Problem::new(root.span.clone(), "the last phase ends before the conversation does");
            problems.add(problem.help("let its `end_pct` be 1.0"));
        }
        Some(Self { name, phases: read, left_out })
    }

    /// The largest value of a dimension.
    pub(super) fn highest(&self) -> f64 {
        self.phases.iter().flat_map(|phase| phase.ranges).map(|(a, b)| a.max(b)).fold(0.0, f64::max)
    }

    /// The phases on `turns` turns; one too short to hold a turn is not among them.
    pub(super) fn placed(&self, turns: usize) -> Vec<Placed> {
        let mut placed = Vec::new();
        let (mut start, mut first) = (0.0, 1);
        for (index, phase) in self.phases.iter().enumerate() {
            // Dividing two whole numbers gives the double nearest to the share, and so does reading it from a file: a turn
            // that falls on the end exactly is still inside.
            let last = (first..=turns).take_while(|turn| *turn as f64 / turns as f64 <= phase.end).last();
            if let Some(last) = last {
                let value = |turn: usize| {
                    let share = (turn as f64 / turns as f64 - start) / (phase.end - start);
                    // Between the two but for rounding, and rounding must not carry a value past the ceiling.
                    phase.ranges.map(|(a, b)| (a + (b - a) * share).max(a.min(b)).min(a.max(b)))
                };
                let (from, to) = (value(first), value(last));
                let [b, d, a] = from;
                let [b_last, d_last, a_last] = to;
                placed.push(Placed {
                    number: index + 1,
                    turns: (first - 1, last - 1),
                    values: [(b, b_last), (d, d_last), (a, a_last)],
                });
                first = last + 1;
            }
            start = phase.end;
        }
        placed
    }
}

/// A list whatever it holds.
struct Nodes(Vec<Node>);

impl crate::foundation::config::Read for Nodes {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            crate::foundation::config::Value::List(items) => Some(Self(items.clone())),
            other => {
                let message = format!("a list is needed here, not {}", other.kind());
                problems.add(Problem::new(node.span.clone(), message));
                None
            }
        }
    }
}

fn range(taking: &mut Taking<'_>, key: &str, phase: &Node, problems: &mut Problems) -> Option<(f64, f64)> {
    let values: Vec<f64> = taking.needed(key, problems)?;
    match values.as_slice() {
        [a, b] if (0.0..=1.0).contains(a) && (0.0..=1.0).contains(b) => Some((*a, *b)),
        _ => {
            let message = format!("`{key}` must be two numbers from 0 to 1");
            problems.add(Problem::new(phase.span.clone(), message).help(format!("write `{key}: [0.1, 0.2]`")));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On every number of turns, the ported points give the schedule's own value on every turn: the benchmark's rule,
    /// written once more and differently.
    #[test]
    fn every_turn_keeps_the_schedules_value() {
        let schedule = Schedule::standard();
        for turns in [1, 2, 3, 7, 20, 50, 100, 200] {
            let placed = schedule.placed(turns);
            assert_eq!(placed.iter().map(|phase| phase.turns.1 + 1 - phase.turns.0).sum::<usize>(), turns);
            for turn in 1..=turns {
                let progress = turn as f64 / turns as f64;
                let number = schedule.phases.iter().position(|phase| progress <= phase.end).unwrap();
                let start = if number == 0 { 0.0 } else { schedule.phases[number - 1].end };
                let (a, b) = schedule.phases[number].ranges[0];
                let expected = a + (b - a) * (progress - start) / (schedule.phases[number].end - start);
                let phase = placed.iter().find(|phase| (phase.turns.0..=phase.turns.1).contains(&(turn - 1))).unwrap();
                assert_eq!(phase.number, number + 1, "turn {turn} of {turns}");
                let (first, last) = phase.turns;
                let share = if last == first { 0.0 } else { (turn - 1 - first) as f64 / (last - first) as f64 };
                let ours = phase.values[0].0 + (phase.values[0].1 - phase.values[0].0) * share;
                assert!((ours - expected).abs() < 1e-12, "turn {turn} of {turns}: {ours}, not {expected}");
            }
        }
    }

    #[test]
    fn a_turn_on_a_phases_end_belongs_to_it() {
        // 3 / 20 = .15: the third turn, number 2 from 0, is still rapport building.
        let placed = Schedule::standard().placed(20);
        let turns: Vec<_> = placed.iter().map(|phase| phase.turns).collect();
        assert_eq!(turns, [(0, 2), (3, 6), (7, 11), (12, 16), (17, 19)]);
    }
}
