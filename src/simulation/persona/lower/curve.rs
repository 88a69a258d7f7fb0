//! A dimension's curve, from any of its notations.

use super::refuse_unused;
use crate::foundation::config::{Located, Problem, Problems, Span};
use crate::simulation::persona::format::{Curve as Raw, CurveName, Dimension, Point};
use crate::simulation::persona::spec::Curve;

/// The default midpoint of a sigmoid.
const MIDPOINT: f64 = 0.5;

/// A curve's settings, collected from the dimension's keys or from the nested mapping.
struct Settings<'f> {
    name: CurveName,
    span: &'f Span,
    /// The dimension's mapping, to distinguish an invalid setting from a missing one.
    record: &'f Span,
    start: Option<&'f Located<f64>>,
    end: Option<&'f Located<f64>>,
    midpoint: Option<&'f Located<f64>>,
    delay: Option<&'f Located<f64>>,
    thresholds: Option<&'f Located<Vec<Located<Point>>>>,
}

/// The curve of `raw`, its values within `bounds` (not checked if the bounds themselves are invalid).
pub(super) fn lower(raw: &Located<Dimension>, bounds: Option<(f64, f64)>, problems: &mut Problems) -> Option<Curve> {
    let curve = raw.curve.as_ref()?;
    let beside = [
        ("start_value", span(raw.start_value.as_ref())),
        ("end_value", span(raw.end_value.as_ref())),
        ("midpoint_pct", span(raw.midpoint_pct.as_ref())),
        ("delay_pct", span(raw.delay_pct.as_ref())),
        ("thresholds", span(raw.thresholds.as_ref())),
    ];
    match &curve.value {
        Raw::Points(list) => {
            refuse_unused(&beside, "a curve of points", problems);
            points(list, &curve.span, "curve", bounds, problems).map(Curve::Points)
        }
        Raw::Name(name) => named(
            &Settings {
                name: *name,
                span: &curve.span,
                record: &raw.span,
                start: raw.start_value.as_ref(),
                end: raw.end_value.as_ref(),
                midpoint: raw.midpoint_pct.as_ref(),
                delay: raw.delay_pct.as_ref(),
                thresholds: raw.thresholds.as_ref(),
            },
            bounds,
            problems,
        ),
        Raw::Settings(inner) => {
            let inside = [
                span(inner.start_value.as_ref()),
                span(inner.end_value.as_ref()),
                span(inner.midpoint_pct.as_ref()),
                span(inner.delay_pct.as_ref()),
                span(inner.thresholds.as_ref()),
            ];
            for ((key, outer), _) in
                beside.iter().zip(inside).filter(|((_, outer), inner)| outer.is_some() && inner.is_some())
            {
                let problem =
                    Problem::new((*outer)?.clone(), format!("`{key}` is given both next to `curve` and inside it"));
                problems.add(problem.help("keep one of the two"));
            }
            named(
                &Settings {
                    name: inner.r#type.as_ref()?.value,
                    span: &curve.span,
                    record: &raw.span,
                    start: inner.start_value.as_ref().or(raw.start_value.as_ref()),
                    end: inner.end_value.as_ref().or(raw.end_value.as_ref()),
                    midpoint: inner.midpoint_pct.as_ref().or(raw.midpoint_pct.as_ref()),
                    delay: inner.delay_pct.as_ref().or(raw.delay_pct.as_ref()),
                    thresholds: inner.thresholds.as_ref().or(raw.thresholds.as_ref()),
                },
                bounds,
                problems,
            )
        }
    }
}

fn named(settings: &Settings<'_>, bounds: Option<(f64, f64)>, problems: &mut Problems) -> Option<Curve> {
    let end = ("end_value", span(settings.end));
    let midpoint = ("midpoint_pct", span(settings.midpoint));
    let delay = ("delay_pct", span(settings.delay));
    let thresholds = ("thresholds", span(settings.thresholds));
    let start = needed(settings.start, "start_value", settings, problems)
        .and_then(|at| value(at, "start_value", bounds, problems));
    let ends = |problems: &mut Problems| {
        needed(settings.end, "end_value", settings, problems).and_then(|at| value(at, "end_value", bounds, problems))
    };
    match settings.name {
        CurveName::Linear => {
            refuse_unused(&[midpoint, delay, thresholds], "a linear curve", problems);
            let end = ends(problems);
            Some(Curve::Linear { start: start?, end: end? })
        }
        CurveName::Sigmoid => {
            refuse_unused(&[delay, thresholds], "a sigmoid curve", problems);
            let end = ends(problems);
            let midpoint = match settings.midpoint {
                None => Some(MIDPOINT),
                Some(at) if at.value > 0.0 && at.value < 1.0 => Some(at.value),
                Some(at) => {
                    let message = format!("`midpoint_pct` is {}, outside (0, 1)", at.value);
                    let help = "write a share of the conversation between 0 and 1, such as 0.5";
                    problems.add(Problem::new(at.span.clone(), message).label("out of range").help(help));
                    None
                }
            };
            Some(Curve::Sigmoid { start: start?, end: end?, midpoint: midpoint? })
        }
        CurveName::DelayedRamp => {
            refuse_unused(&[midpoint, thresholds], "a delayed ramp", problems);
            let end = ends(problems);
            let delay = match needed(settings.delay, "delay_pct", settings, problems) {
                Some(at) if (0.0..1.0).contains(&at.value) => Some(at.value),
                Some(at) => {
                    let message = format!("`delay_pct` is {}, outside [0, 1)", at.value);
                    let help = "write the share of the conversation before the rise, such as 0.6";
                    problems.add(Problem::new(at.span.clone(), message).label("out of range").help(help));
                    None
                }
                None => None,
            };
            Some(Curve::DelayedRamp { start: start?, end: end?, delay: delay? })
        }
        CurveName::Step => {
            refuse_unused(&[end, midpoint, delay], "a step curve, which ends at its last threshold", problems);
            let list = needed(settings.thresholds, "thresholds", settings, problems)?;
            let thresholds = points(list, &list.span, "thresholds", bounds, problems);
            Some(Curve::Step { start: start?, thresholds: thresholds? })
        }
    }
}

/// Points that rise in `at`.
fn points(
    list: &[Located<Point>],
    span: &Span,
    name: &str,
    bounds: Option<(f64, f64)>,
    problems: &mut Problems,
) -> Option<Vec<(f64, f64)>> {
    if list.is_empty() {
        let help = "write at least one point, such as `- {at: 0.5, value: 0.4}`";
        problems.add(Problem::new(span.clone(), format!("`{name}` has no points")).help(help));
        return None;
    }
    let mut before = None;
    let mut lowered = Vec::with_capacity(list.len());
    let mut sound = true;
    for point in list {
        let at = point.at.as_ref().and_then(|at| super::within(at, 0.0..=1.0, "at", problems));
        let value = point.value().and_then(|at| value(at, "value", bounds, problems));
        if let (Some(at), Some(earlier), Some(raw)) = (at, before, point.at.as_ref())
            && at <= earlier
        {
            let message = format!("the point at {at} does not come after the one at {earlier}");
            problems.add(
                Problem::new(raw.span.clone(), message).label("not rising").help("put the points in order of `at`"),
            );
            sound = false;
        }
        before = at.or(before);
        match (at, value) {
            (Some(at), Some(value)) => lowered.push((at, value)),
            _ => sound = false,
        }
    }
    sound.then_some(lowered)
}

fn needed<'f, T>(
    raw: Option<&'f Located<T>>,
    key: &str,
    settings: &Settings<'_>,
    problems: &mut Problems,
) -> Option<&'f Located<T>> {
    let failed = [settings.record, settings.span].iter().any(|record| problems.failed(record, key));
    if raw.is_none() && !failed {
        let message = format!("a {} curve needs `{key}`", name(settings.name));
        let help = format!("add `{key}: …` next to `curve`");
        problems.add(Problem::new(settings.span.clone(), message).label(format!("needs `{key}`")).help(help));
    }
    raw
}

fn value(raw: &Located<f64>, key: &str, bounds: Option<(f64, f64)>, problems: &mut Problems) -> Option<f64> {
    let (min, max) = bounds?;
    if (min..=max).contains(&raw.value) {
        return Some(raw.value);
    }
    let message = format!("`{key}` is {}, outside the dimension's range [{min}, {max}]", raw.value);
    let help = if raw.value > max {
        format!("lower it to {max} or less, or raise `max_value` (at most `safety.intensity_ceiling`)")
    } else {
        format!("raise it to {min} or more, or lower `min_value`")
    };
    problems.add(Problem::new(raw.span.clone(), message).label("out of range").help(help));
    None
}

const fn name(name: CurveName) -> &'static str {
    match name {
        CurveName::Linear => "linear",
        CurveName::Sigmoid => "sigmoid",
        CurveName::DelayedRamp => "delayed_ramp",
        CurveName::Step => "step",
    }
}

fn span<T>(raw: Option<&Located<T>>) -> Option<&Span> {
    raw.map(|at| &at.span)
}
