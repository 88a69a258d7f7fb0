//! The benchmark's intensity schedules, converted to Loom's turns.
//!
//! The benchmark counts turns from 1 with progress t/N; Loom counts from 0 with progress t/(N − 1). So a schedule becomes
//! control points at the first and the last turn of each phase, for a fixed number of turns: the converted curve
//! then has the schedule's value on every turn.

use super::PortError;
use super::reader::FieldReader;
use crate::foundation::config::{Node, Problem, Problems};

/// The benchmark's three dimensions.
pub(super) const DIMENSIONS: [&str; 3] = ["belief", "distress", "action"];

/// An intensity schedule.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Schedule {
    pub(super) name: String,
    pub(super) phases: Vec<SchedulePhase>,
    /// Keys that Loom does not use.
    pub(super) left_out: Vec<String>,
}

/// A phase and the range of each of [`DIMENSIONS`] in it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SchedulePhase {
    pub(super) name: String,
    /// Its end as a share of the conversation, inclusive.
    pub(super) end: f64,
    pub(super) ranges: [(f64, f64); 3],
}

/// A phase with its turns.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PhaseTurns {
    /// Its number in the schedule, from 1.
    pub(super) number: usize,
    /// Its first and last turn, counted from 0.
    pub(super) turns: (usize, usize),
    /// The values of each of [`DIMENSIONS`] on those two.
    pub(super) values: [(f64, f64); 3],
}

impl Schedule {
    /// The benchmark's default schedule.
    pub(super) fn standard() -> Self {
        let phase = |name: &str, end, ranges| SchedulePhase { name: name.to_owned(), end, ranges };
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
        let mut outer = FieldReader::open(root, "a schedule", problems)?;
        let inner = outer.take("intensity_schedule");
        let mut left_out = Vec::new();
        let mut fields = match inner {
            Some(node) => {
                left_out.extend(outer.rest());
                FieldReader::open(node, "`intensity_schedule`", problems)?
            }
            None => outer,
        };
        let name = fields.text("name", problems).unwrap_or_else(|| "unnamed".to_owned());
        if fields.take("description").is_some() {
            left_out.push("description".to_owned());
        }
        let phases: Vec<Node> = fields.required::<Nodes>("phases", problems)?.0;
        left_out.extend(fields.rest());
        let mut read = Vec::new();
        let mut before = 0.0;
        for node in &phases {
            let mut fields = FieldReader::open(node, "a phase", problems)?;
            let name = fields.required("name", problems);
            let end: Option<f64> = fields.required("end_pct", problems);
            let ranges = DIMENSIONS.map(|dimension| range(&mut fields, dimension, node, problems));
            left_out.extend(fields.rest());
            let (Some(name), Some(end), [Some(belief), Some(distress), Some(action)]) = (name, end, ranges) else {
                continue;
            };
            if !(end > before && end <= 1.0) {
                let message = format!("the phase ends at {end}, but must end after {before} and at most at 1");
                problems.add(Problem::new(node.span.clone(), message).help("increase `end_pct` from phase to phase"));
            }
            before = end;
            read.push(SchedulePhase { name, end, ranges: [belief, distress, action] });
        }
        if before < 1.0 {
            let problem = Problem::new(root.span.clone(), "the last phase ends before the conversation does");
            problems.add(problem.help("set its `end_pct` to 1.0"));
        }
        Some(Self { name, phases: read, left_out })
    }

    /// The largest value of a dimension.
    pub(super) fn highest(&self) -> f64 {
        self.phases.iter().flat_map(|phase| phase.ranges).map(|(a, b)| a.max(b)).fold(0.0, f64::max)
    }

    /// The phases with their turns, of `turns` in total; a phase too short for a turn is left out.
    pub(super) fn phase_turns(&self, turns: usize) -> Vec<PhaseTurns> {
        let mut result = Vec::new();
        let (mut start, mut first) = (0.0, 1);
        for (index, phase) in self.phases.iter().enumerate() {
            // The quotient of two integers and a parsed decimal are both the nearest doubles, so a turn exactly on the end
            // is inside.
            let last = (first..=turns).take_while(|turn| *turn as f64 / turns as f64 <= phase.end).last();
            if let Some(last) = last {
                let value = |turn: usize| {
                    let share = (turn as f64 / turns as f64 - start) / (phase.end - start);
                    // Clamped, so that rounding does not exceed the ceiling.
                    phase.ranges.map(|(a, b)| (a + (b - a) * share).max(a.min(b)).min(a.max(b)))
                };
                let (from, to) = (value(first), value(last));
                let [b, d, a] = from;
                let [b_last, d_last, a_last] = to;
                result.push(PhaseTurns {
                    number: index + 1,
                    turns: (first - 1, last - 1),
                    values: [(b, b_last), (d, d_last), (a, a_last)],
                });
                first = last + 1;
            }
            start = phase.end;
        }
        result
    }
}

/// A list with items of any type.
struct Nodes(Vec<Node>);

impl crate::foundation::config::FromNode for Nodes {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            crate::foundation::config::NodeValue::List(items) => Some(Self(items.clone())),
            other => {
                let message = format!("expected a list here, found {}", other.kind());
                problems.add(Problem::new(node.span.clone(), message));
                None
            }
        }
    }
}

fn range(fields: &mut FieldReader<'_>, key: &str, phase: &Node, problems: &mut Problems) -> Option<(f64, f64)> {
    let values: Vec<f64> = fields.required(key, problems)?;
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

    /// For several numbers of turns, the converted points give the schedule's value on every turn, by an independent
    /// implementation of the benchmark's rule.
    #[test]
    fn converted_curves_have_the_schedules_value_on_every_turn() {
        let schedule = Schedule::standard();
        for turns in [1, 2, 3, 7, 20, 50, 100, 200] {
            let placed = schedule.phase_turns(turns);
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
        let placed = Schedule::standard().phase_turns(20);
        let turns: Vec<_> = placed.iter().map(|phase| phase.turns).collect();
        assert_eq!(turns, [(0, 2), (3, 6), (7, 11), (12, 16), (17, 19)]);
    }
}
