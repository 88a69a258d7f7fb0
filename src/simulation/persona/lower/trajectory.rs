//! Dimensions and phases: how the persona's state moves.

use std::collections::BTreeMap;

use super::{at_least, check_reference, curve, refuse_unused, regex, template, text, texts, within};
use crate::foundation::base::limits;
use crate::foundation::config::{Located, MapKey, Optional, Problem, Problems, Span};
use crate::simulation::persona::format::{self, CurveScope, EndType, Mode};
use crate::simulation::persona::spec::{
    Dimension, EndCondition, IntensityBound, Level, Pattern, Phase, Revelation, Strength, Trajectory, TrajectoryMode,
    TriggerSpeaker,
};

/// The default upper bound of a dimension; the ceiling applies if it is lower.
const MAX_VALUE: f64 = 0.9;

pub(super) fn lower(
    raw: &Located<format::Trajectory>,
    ceiling: Option<f64>,
    problems: &mut Problems,
) -> Option<Trajectory> {
    let mode = mode(raw, problems);
    let entries = raw.dimensions.as_ref().map_or(&[][..], |entries| &entries.0);
    let list = raw.phases.as_ref().map_or(&[][..], |list| &list.value);
    let revelations =
        list.iter().map(|phase| phase.value.revelations.as_ref().map_or(0, |list| list.value.len())).sum();
    for (what, count, most, limit) in [
        ("dimensions", entries.len(), limits::DIMENSIONS_MAX, "DIMENSIONS_MAX"),
        ("phases", list.len(), limits::PHASES_MAX, "PHASES_MAX"),
        ("revelations", revelations, limits::REVELATIONS_MAX, "REVELATIONS_MAX"),
    ] {
        if count > most {
            let message = format!("a persona has at most {most} {what} ({limit}), not {count}");
            problems.add(Problem::new(raw.span.clone(), message).label("too many").help("leave some out"));
            return None;
        }
    }
    let names: Vec<_> = entries.iter().map(|(key, _)| key.name.as_str()).collect();
    let dimensions = all(entries.iter().map(|(key, raw)| dimension(key, raw, ceiling, problems)));
    let phases = all(list.iter().map(|raw| phase(raw, &names, problems)));
    unique(list, problems);
    if let Some(mode) = raw.mode.as_ref() {
        order(raw, mode.value, list, problems);
    }
    let trajectory = Trajectory { mode: mode?, dimensions: dimensions?, phases: phases? };
    reachable(list, &trajectory, problems);
    Some(trajectory)
}

/// `None` if any item is invalid, after all items were checked.
fn all<T>(items: impl Iterator<Item = Option<T>>) -> Option<Vec<T>> {
    items.collect::<Vec<_>>().into_iter().collect()
}

fn mode(raw: &Located<format::Trajectory>, problems: &mut Problems) -> Option<TrajectoryMode> {
    let turns = raw.expected_turns.as_ref();
    if let Some(at) = turns.filter(|at| at.value == 0 || at.value > limits::TURNS_MAX) {
        let message = format!("`expected_turns` is {}, outside 1 to {}", at.value, limits::TURNS_MAX);
        problems.add(Problem::new(at.span.clone(), message).label("out of range").help("write a number such as 50"));
    }
    let mode = raw.mode.as_ref()?;
    match (mode.value, turns) {
        (Mode::FixedLength, Some(turns)) => Some(TrajectoryMode::FixedLength { turns: turns.value }),
        (Mode::FixedLength, None) if problems.failed(&raw.span, "expected_turns") => None,
        (Mode::FixedLength, None) => {
            let problem = Problem::new(mode.span.clone(), "`fixed_length` needs `expected_turns`");
            problems.add(problem.label("needs `expected_turns`").help(
                "add `expected_turns: 50` below `mode`, or write `mode: open_ended` to take the length from `--turns`",
            ));
            None
        }
        (Mode::PhaseGated, turns) => Some(TrajectoryMode::PhaseGated { turns: turns.map(|turns| turns.value) }),
        (Mode::OpenEnded, None) => Some(TrajectoryMode::OpenEnded),
        (Mode::OpenEnded, Some(turns)) => {
            let problem = Problem::new(turns.span.clone(), "`expected_turns` has no effect with `mode: open_ended`");
            problems.add(problem.label("not used").help("remove it and use `--turns`, or write `mode: fixed_length`"));
            None
        }
    }
}

fn dimension(
    key: &MapKey,
    raw: &Located<format::Dimension>,
    ceiling: Option<f64>,
    problems: &mut Problems,
) -> Option<Dimension> {
    name(key, problems);
    let bounds = bounds(raw, ceiling, problems);
    let curve = curve::lower(raw, bounds, problems);
    let levels = raw.levels.as_ref();
    let level = |level, raw: &Optional<String>| Some((level, text(raw.as_ref())?));
    let levels: BTreeMap<_, _> = levels
        .iter()
        .flat_map(|raw| [level(Level::Low, &raw.low), level(Level::Medium, &raw.medium), level(Level::High, &raw.high)])
        .flatten()
        .collect();
    let (min, max) = bounds?;
    Some(Dimension {
        name: key.name.clone(),
        description: text(raw.description.as_ref())?,
        levels,
        curve: curve?,
        min,
        max,
        restarts: raw.progress.as_ref().is_some_and(|scope| scope.value == CurveScope::Phase),
    })
}

/// A dimension's name must be usable as a placeholder.
fn name(key: &MapKey, problems: &mut Problems) {
    let mut chars = key.name.chars();
    let starts = chars.next().is_some_and(|first| first.is_alphabetic() || first == '_');
    if !starts || !chars.all(|next| next.is_alphanumeric() || next == '_') {
        let message = format!("`{}` cannot be the name of a dimension", key.name);
        let help = "use letters, digits and `_`: templates name it in braces";
        problems.add(Problem::new(key.span.clone(), message).help(help));
    } else if template::PLACEHOLDERS.contains(&key.name.as_str()) {
        let message = format!("`{}` is a reserved placeholder name in templates", key.name);
        problems.add(Problem::new(key.span.clone(), message).help("give the dimension another name"));
    }
}

/// `min_value < max_value ≤ intensity_ceiling`, all in `[0, 1]`.
fn bounds(raw: &format::Dimension, ceiling: Option<f64>, problems: &mut Problems) -> Option<(f64, f64)> {
    let min = raw.min_value.as_ref().map_or(Some(0.0), |at| within(at, 0.0..=1.0, "min_value", problems));
    let max = match raw.max_value.as_ref() {
        None => ceiling.map(|ceiling| ceiling.min(MAX_VALUE)),
        Some(at) => {
            let max = within(at, 0.0..=1.0, "max_value", problems)?;
            if let Some(ceiling) = ceiling.filter(|ceiling| max > *ceiling) {
                let message = format!("`max_value` is {max}, above the safety ceiling of {ceiling}");
                let help = format!("lower it to {ceiling} or less, or raise `safety.intensity_ceiling`");
                problems.add(Problem::new(at.span.clone(), message).label("above the ceiling").help(help));
                return None;
            }
            Some(max)
        }
    };
    let (min, max) = (min?, max?);
    if min < max {
        return Some((min, max));
    }
    let message = format!("`min_value` ({min}) is not below `max_value` ({max})");
    if let Some(span) = raw.min_value.as_ref().map(|at| &at.span).or(raw.max_value.as_ref().map(|at| &at.span)) {
        problems.add(Problem::new(span.clone(), message).help("leave room between the two"));
    }
    None
}

fn phase(raw: &Located<format::Phase>, dimensions: &[&str], problems: &mut Problems) -> Option<Phase> {
    let end = raw.end_condition.as_ref().and_then(|raw| end(raw, dimensions, problems));
    let list = raw.revelations.as_ref().map_or(&[][..], |list| &list.value);
    let revelations = all(list.iter().map(|raw| revelation(raw, dimensions, problems)));
    Some(Phase {
        name: text(raw.name.as_ref())?,
        end: end?,
        requirements: texts(raw.requirements.as_ref()),
        forbidden: texts(raw.forbidden.as_ref()),
        revelations: revelations?,
    })
}

#[expect(clippy::too_many_lines, reason = "one arm for each kind of end condition")]
fn end(raw: &Located<format::EndCondition>, dimensions: &[&str], problems: &mut Problems) -> Option<EndCondition> {
    let value = ("value", raw.value().map(|at| &at.span));
    let of_trigger = [
        ("phrase", raw.phrase.as_ref().map(|at| &at.span)),
        ("regex", raw.regex.as_ref().map(|at| &at.span)),
        ("window", raw.window.as_ref().map(|at| &at.span)),
        ("max_turns", raw.max_turns.as_ref().map(|at| &at.span)),
        ("speaker", raw.speaker.as_ref().map(|at| &at.span)),
        ("dimension", raw.dimension.as_ref().map(|at| &at.span)),
        ("at_least", raw.at_least.as_ref().map(|at| &at.span)),
        ("at_most", raw.at_most.as_ref().map(|at| &at.span)),
        ("monitor", raw.monitor.as_ref().map(|at| &at.span)),
    ];
    let missing = |what: &str, example: &str, problems: &mut Problems| {
        if ["value", "phrase", "regex"].iter().any(|key| problems.failed(&raw.span, key)) {
            return;
        }
        let problem = Problem::new(raw.span.clone(), format!("this end condition needs {what}"));
        problems.add(problem.label(format!("needs {what}")).help(format!("write `end_condition: {example}`")));
    };
    match raw.r#type.as_ref()?.value {
        EndType::Pct => {
            refuse_unused(&of_trigger, "`type: pct`", problems);
            let Some(at) = raw.value() else {
                missing("`value`", "{type: pct, value: 0.5}", problems);
                return None;
            };
            if at.value > 1.0 && at.value <= 100.0 {
                let problem = Problem::new(at.span.clone(), format!("`value` is {}, outside (0, 1]", at.value));
                // Only a whole number is plausibly meant as a percentage.
                let problem = if at.value.fract() == 0.0 && at.value > 1.0 {
                    let share = format!("{:.2}", at.value / 100.0);
                    problem
                        .label("a share, not a percentage")
                        .help(format!("write {}", share.trim_end_matches('0').trim_end_matches('.')))
                } else {
                    problem.label("outside (0, 1]").help("write a share of the conversation, such as 0.5")
                };
                problems.add(problem);
                return None;
            }
            super::positive_share(at, "value", problems).map(EndCondition::Pct)
        }
        EndType::Turn => {
            refuse_unused(&of_trigger, "`type: turn`", problems);
            let Some(at) = raw.value() else {
                missing("`value`", "{type: turn, value: 10}", problems);
                return None;
            };
            if at.value.fract() == 0.0 && at.value >= 1.0 && at.value <= limits::TURNS_MAX as f64 {
                return Some(EndCondition::Turn(at.value as usize));
            }
            let message = format!("`value` is {}, not a turn from 1 to {}", at.value, limits::TURNS_MAX);
            let help = "write the turn, counted from 0, with which the next phase begins";
            problems.add(Problem::new(at.span.clone(), message).help(help));
            None
        }
        EndType::Trigger => {
            refuse_unused(&[value], "`type: trigger`", problems);
            let window = at_least(raw.window.as_ref(), 1, 1, "window", problems);
            let max_turns = match &raw.max_turns {
                None => Some(None),
                Some(at) => at_least(Some(at), 1, 1, "max_turns", problems).map(Some),
            };
            let kinds: Vec<&Span> = [
                raw.phrase.as_ref().map(|at| &at.span),
                raw.regex.as_ref().map(|at| &at.span),
                raw.dimension.as_ref().map(|at| &at.span),
                raw.monitor.as_ref().map(|at| &at.span),
            ]
            .into_iter()
            .flatten()
            .collect();
            if let [_, second, ..] = kinds.as_slice() {
                let problem = Problem::new(
                    (*second).clone(),
                    "a trigger has one of `phrase`, `regex`, `dimension` and `monitor`",
                );
                problems.add(problem.label("one too many").help("remove all but one"));
                return None;
            }
            let of_text = [of_trigger[2], of_trigger[4]];
            let of_value = [of_trigger[6], of_trigger[7]];
            if let Some(dimension) = &raw.dimension {
                check_reference("dimension", dimension, &dimension.span, dimensions, problems);
                refuse_unused(&of_text, "`dimension`", problems);
                let bound = bound(raw, dimension, problems);
                let dimension = dimension.value.clone();
                return Some(EndCondition::Intensity { dimension, bound: bound?, max_turns: max_turns? });
            }
            refuse_unused(&of_value, "a trigger without `dimension`", problems);
            if let Some(monitor) = &raw.monitor {
                refuse_unused(&of_text, "`monitor`", problems);
                return Some(EndCondition::Monitor { monitor: monitor.value.clone(), max_turns: max_turns? });
            }
            let pattern = match (&raw.phrase, &raw.regex) {
                (Some(phrase), _) => Some(Pattern::Phrase(phrase.value.clone())),
                (None, Some(source)) => regex(source, &source.span, problems),
                (None, None) => {
                    missing(
                        "`phrase`, `regex`, `dimension` or `monitor`",
                        "{type: trigger, phrase: \"I found\"}",
                        problems,
                    );
                    None
                }
            };
            let speaker = raw.speaker.as_ref().map_or(TriggerSpeaker::Persona, |at| at.value);
            Some(EndCondition::Trigger { pattern: pattern?, speaker, window: window?, max_turns: max_turns? })
        }
    }
}

/// The bound of a trigger on a dimension's value.
fn bound(raw: &format::EndCondition, dimension: &Located<String>, problems: &mut Problems) -> Option<IntensityBound> {
    match (&raw.at_least, &raw.at_most) {
        (Some(at), None) => within(at, 0.0..=1.0, "at_least", problems).map(IntensityBound::AtLeast),
        (None, Some(at)) => within(at, 0.0..=1.0, "at_most", problems).map(IntensityBound::AtMost),
        (None, None) => {
            let problem = Problem::new(dimension.span.clone(), "this trigger needs `at_least` or `at_most`");
            problems.add(problem.label("needs a value").help("add `at_least: 0.5`"));
            None
        }
        (Some(_), Some(at)) => {
            let problem = Problem::new(at.span.clone(), "a trigger has either `at_least` or `at_most`");
            problems.add(problem.label("one too many").help("remove one of the two"));
            None
        }
    }
}

/// How finely a curve is searched for a value that it must reach.
const STEPS: usize = 1000;

/// A phase that waits for a value which its dimension never has would never end.
fn reachable(list: &[Located<format::Phase>], trajectory: &Trajectory, problems: &mut Problems) {
    let but_last = trajectory.phases.len().saturating_sub(1);
    for (raw, phase) in list.iter().zip(&trajectory.phases).take(but_last) {
        let EndCondition::Intensity { dimension, bound, .. } = &phase.end else { continue };
        let Some(dimension) = trajectory.dimensions.iter().find(|known| known.name == *dimension) else { continue };
        let value = |step: usize| dimension.intensity(step as f64 / STEPS as f64, dimension.max);
        if (0..=STEPS).any(|step| bound.is_reached(value(step))) {
            continue;
        }
        let Some(end) = raw.end_condition.as_ref() else { continue };
        let (Some(at), wanted) = (match bound {
            IntensityBound::AtLeast(_) => (end.at_least.as_ref(), "highest"),
            IntensityBound::AtMost(_) => (end.at_most.as_ref(), "lowest"),
        }) else {
            continue;
        };
        let extreme = (0..=STEPS).map(value).reduce(if wanted == "highest" { f64::max } else { f64::min });
        let extreme = extreme.unwrap_or_default();
        let message = format!("`{}` never reaches {}: its {wanted} value is {extreme:.2}", dimension.name, at.value);
        let problem = Problem::new(at.span.clone(), message).label("never reached");
        problems.add(problem.help("the next phase would never begin: change the value or the curve"));
    }
}

fn revelation(raw: &Located<format::Revelation>, dimensions: &[&str], problems: &mut Problems) -> Option<Revelation> {
    if let Some(dimension) = &raw.dimension {
        check_reference("dimension", dimension, &dimension.span, dimensions, problems);
    }
    let given = raw.variants.as_ref()?;
    let variant = |strength, raw: &Optional<String>| Some((strength, text(raw.as_ref())?));
    let variants: BTreeMap<_, _> = [
        variant(Strength::Subtle, &given.subtle),
        variant(Strength::Moderate, &given.moderate),
        variant(Strength::Direct, &given.direct),
    ]
    .into_iter()
    .flatten()
    .collect();
    if variants.is_empty() {
        let problem = Problem::new(given.span.clone(), "this revelation has no variants");
        problems.add(problem.help("write at least one of `subtle`, `moderate`, `direct`"));
        return None;
    }
    let dimension = text(raw.dimension.as_ref());
    Some(Revelation { topic: text(raw.topic.as_ref())?, dimension, variants })
}

/// Names of phases and topics are unique.
fn unique(list: &[Located<format::Phase>], problems: &mut Problems) {
    let names = list.iter().filter_map(|phase| phase.name.as_ref());
    let topics = list
        .iter()
        .filter_map(|phase| phase.revelations.as_ref())
        .flat_map(|list| &list.value)
        .filter_map(|revelation| revelation.topic.as_ref());
    repeated("phase", names, problems);
    repeated("topic", topics, problems);
}

fn repeated<'f>(what: &str, names: impl Iterator<Item = &'f Located<String>>, problems: &mut Problems) {
    let mut seen: Vec<&str> = Vec::new();
    for at in names {
        if seen.contains(&at.value.as_str()) {
            let problem = Problem::new(at.span.clone(), format!("there are two {what}s called `{}`", at.value));
            problems.add(problem.label("again here").help(format!("give this {what} another name")));
        }
        seen.push(&at.value);
    }
}

/// Checks the end conditions against each other: they rise, reach the end, and fit the mode.
fn order(
    trajectory: &Located<format::Trajectory>,
    mode: Mode,
    list: &[Located<format::Phase>],
    problems: &mut Problems,
) {
    if mode == Mode::PhaseGated && list.is_empty() {
        if let Some(at) = trajectory.mode.as_ref().filter(|_| !problems.failed(&trajectory.span, "phases")) {
            let problem = Problem::new(at.span.clone(), "`phase_gated` needs `phases`").label("needs `phases`");
            problems.add(problem.help("add `phases:`, or write `mode: fixed_length` or `mode: open_ended`"));
        }
        return;
    }
    let ends: Vec<(EndType, &Located<format::EndCondition>)> = list
        .iter()
        .filter_map(|phase| phase.end_condition.as_ref())
        .filter_map(|end| Some((end.r#type.as_ref()?.value, end)))
        .collect();
    for (kind, end) in &ends {
        match (mode, kind) {
            (Mode::PhaseGated, EndType::Pct) => {
                let problem = Problem::new(end.span.clone(), "`type: pct` does not work with `mode: phase_gated`");
                problems.add(problem.label("phases end by turns or triggers here").help(
                    "write `{type: turn, value: …}` or `{type: trigger, phrase: …}`, or use `mode: fixed_length`",
                ));
            }
            (Mode::PhaseGated, EndType::Trigger) if end.max_turns.is_none() => {
                let problem = Problem::new(end.span.clone(), "in `phase_gated`, a trigger needs `max_turns`");
                problems.add(
                    problem.label("needs `max_turns`").help("add `max_turns: 10`: without it the phase may never end"),
                );
            }
            _ => {}
        }
    }
    if mode == Mode::PhaseGated {
        rising(&ends, EndType::Turn, problems);
        past_the_end(trajectory, &ends, problems);
        return;
    }
    let first = |wanted| ends.iter().find(|(kind, _)| *kind == wanted).map(|(_, end)| *end);
    if let (Some(_), Some(turn)) = (first(EndType::Pct), first(EndType::Turn)) {
        let problem = Problem::new(turn.span.clone(), "`type: turn` and `type: pct` cannot be mixed");
        problems
            .add(problem.help("which comes first would depend on the length: write all phases with one of the two"));
        return;
    }
    rising(&ends, EndType::Pct, problems);
    rising(&ends, EndType::Turn, problems);
    if let Some((EndType::Pct, end)) = ends.last()
        && let Some(value) = end.value().filter(|at| at.value > 0.0 && at.value < 1.0)
    {
        let message = format!("the phases end at {} of the conversation, not at 1.0", value.value);
        let help = "let the last phase end at 1.0: end conditions must cover the whole conversation";
        problems.add(Problem::new(value.span.clone(), message).label("should be 1.0").help(help));
    }
    past_the_end(trajectory, &ends, problems);
}

/// A phase that ends at a turn which the conversation does not have would never end.
fn past_the_end(
    trajectory: &Located<format::Trajectory>,
    ends: &[(EndType, &Located<format::EndCondition>)],
    problems: &mut Problems,
) {
    if let Some(turns) = trajectory.expected_turns.as_ref() {
        let but_last = ends.iter().take(ends.len().saturating_sub(1)).filter(|(kind, _)| *kind == EndType::Turn);
        for at in but_last.filter_map(|(_, end)| end.value()).filter(|at| at.value >= turns.value as f64) {
            let message = format!("turn {} is past the end: the conversation has {} turns", at.value, turns.value);
            let help = "the next phase would never begin: lower it, or raise `expected_turns`";
            problems.add(Problem::new(at.span.clone(), message).help(help));
        }
    }
}

fn rising(ends: &[(EndType, &Located<format::EndCondition>)], wanted: EndType, problems: &mut Problems) {
    let mut last: Option<f64> = None;
    for at in ends.iter().filter(|(kind, _)| *kind == wanted).filter_map(|(_, end)| end.value()) {
        if let Some(last) = last.filter(|last| at.value <= *last) {
            let message = format!("this phase ends at {}, not after the one before it ({last})", at.value);
            let problem = Problem::new(at.span.clone(), message).label("not rising");
            problems.add(problem.help("put the phases in order, each ending after the one before"));
        }
        // An out-of-range value has been reported already.
        if wanted == EndType::Turn || at.value <= 1.0 {
            last = Some(at.value);
        }
    }
}
