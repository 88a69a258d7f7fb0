//! The Δ policy.

use super::{Names, check_reference, refuse_unused, within};
use crate::foundation::chat::{DeltaGains, LayerGains};
use crate::foundation::config::{Located, Optional, Problem, Problems};
use crate::governance::regulator::DeltaSettings;
use crate::simulation::persona::format::{Bounds, Delta, DeltaPolicyName, Gains, GainsEntry, Strengths};
use crate::simulation::persona::spec::DeltaPolicy;

/// The largest gain; beyond it a state overflows f32 within a few tokens.
const GAIN_MAX: f64 = 100.0;
/// The strongest effect of a signal, in ln g: a factor of 20.
const STRENGTH_MAX: f64 = 3.0;

pub(super) fn lower(raw: Option<&Located<Delta>>, names: &Names<'_>, problems: &mut Problems) -> Option<DeltaPolicy> {
    let Some(raw) = raw else { return Some(DeltaPolicy::Off) };
    let listed = ("gains", raw.gains.as_ref().map(|at| &at.span));
    let of_fixed = [listed, ("file", raw.file.as_ref().map(|at| &at.span))];
    let of_regulator =
        [("strengths", raw.strengths.as_ref().map(|at| &at.span)), ("bounds", raw.bounds.as_ref().map(|at| &at.span))];
    let of_trajectory = [
        ("dimension", raw.dimension.as_ref().map(|at| &at.span)),
        ("low", raw.low.as_ref().map(|at| &at.span)),
        ("high", raw.high.as_ref().map(|at| &at.span)),
        ("layers", raw.layers.as_ref().map(|at| &at.span)),
    ];
    match raw.policy.as_ref()?.value {
        DeltaPolicyName::Off => {
            refuse_unused(&of_fixed, "`policy: off`", problems);
            refuse_unused(&of_trajectory, "`policy: off`", problems);
            refuse_unused(&of_regulator, "`policy: off`", problems);
            Some(DeltaPolicy::Off)
        }
        DeltaPolicyName::Regulator => {
            refuse_unused(&of_fixed, "`policy: regulator`", problems);
            refuse_unused(&of_trajectory, "`policy: regulator`", problems);
            regulator(raw, problems).map(DeltaPolicy::Regulator)
        }
        DeltaPolicyName::Fixed => {
            refuse_unused(&of_trajectory, "`policy: fixed`", problems);
            refuse_unused(&of_regulator, "`policy: fixed`", problems);
            if let Some(file) = &raw.file {
                refuse_unused(&[listed], "`file`", problems);
                return Some(DeltaPolicy::Fitted(file.value.clone().into()));
            }
            fixed(needed(raw.gains.as_ref(), "gains", "fixed", raw, problems)?, problems)
        }
        DeltaPolicyName::Trajectory => {
            refuse_unused(&of_fixed, "`policy: trajectory`", problems);
            refuse_unused(&of_regulator, "`policy: trajectory`", problems);
            let dimension = needed(raw.dimension.as_ref(), "dimension", "trajectory", raw, problems);
            if let Some(dimension) = dimension {
                check_reference("dimension", dimension, &dimension.span, &names.dimensions, problems);
            }
            let low = needed(raw.low.as_ref(), "low", "trajectory", raw, problems).and_then(|raw| gains(raw, problems));
            let high =
                needed(raw.high.as_ref(), "high", "trajectory", raw, problems).and_then(|raw| gains(raw, problems));
            let layers = raw.layers.as_ref().map(|list| list.iter().map(|layer| layer.value).collect());
            Some(DeltaPolicy::Trajectory { dimension: dimension?.value.clone(), low: low?, high: high?, layers })
        }
    }
}

fn regulator(raw: &Delta, problems: &mut Problems) -> Option<DeltaSettings> {
    let default = DeltaSettings::default();
    let mut number = |raw: Option<&Located<f64>>, range, key, default| match raw {
        None => Some(default),
        Some(at) => within(at, range, key, problems).map(|value| value as f32),
    };
    let strength = -STRENGTH_MAX..=STRENGTH_MAX;
    let strengths = raw.strengths.as_ref().map(|at| &at.value);
    let bounds = raw.bounds.as_ref().map(|at| &at.value);
    let trajectory_write = number(
        strengths.and_then(|s: &Strengths| s.trajectory_write.as_ref()),
        strength.clone(),
        "trajectory_write",
        default.trajectory_write,
    );
    let trajectory_decay = number(
        strengths.and_then(|s| s.trajectory_decay.as_ref()),
        strength.clone(),
        "trajectory_decay",
        default.trajectory_decay,
    );
    let budget_write =
        number(strengths.and_then(|s| s.budget_write.as_ref()), strength.clone(), "budget_write", default.budget_write);
    let doubt_decay =
        number(strengths.and_then(|s| s.doubt_decay.as_ref()), strength, "doubt_decay", default.doubt_decay);
    // 1 must lie between the two, so that zero signals mean no modulation.
    let min = number(bounds.and_then(|b: &Bounds| b.min.as_ref()), 0.0..=1.0, "min", default.min);
    let max = number(bounds.and_then(|b| b.max.as_ref()), 1.0..=GAIN_MAX, "max", default.max);
    Some(DeltaSettings {
        trajectory_write: trajectory_write?,
        trajectory_decay: trajectory_decay?,
        budget_write: budget_write?,
        doubt_decay: doubt_decay?,
        min: min?,
        max: max?,
    })
}

fn fixed(raw: &Located<GainsEntry>, problems: &mut Problems) -> Option<DeltaPolicy> {
    let gains = match &raw.value {
        GainsEntry::Uniform(uniform) => DeltaGains::Uniform(gains(uniform, problems)?),
        GainsEntry::PerLayer(list) if list.is_empty() => {
            let problem = Problem::new(raw.span.clone(), "`gains` names no layer");
            problems.add(problem.help("write one entry per layer, or one mapping for all"));
            return None;
        }
        GainsEntry::PerLayer(list) => {
            let layers: Vec<_> = list.iter().map(|layer| gains(layer, problems)).collect();
            DeltaGains::PerLayer(layers.into_iter().collect::<Option<_>>()?)
        }
    };
    Some(DeltaPolicy::Fixed(gains))
}

fn gains(raw: &Gains, problems: &mut Problems) -> Option<LayerGains> {
    let mut gain = |raw: &Optional<f64>, key| match raw {
        None => Some(1.0),
        Some(at) => within(at, 0.0..=GAIN_MAX, key, problems).map(|gain| gain as f32),
    };
    let (delta, decay, write) = (gain(&raw.delta, "delta"), gain(&raw.decay, "decay"), gain(&raw.write, "write"));
    Some(LayerGains { delta: delta?, decay: decay?, write: write? })
}

fn needed<'f, T>(
    raw: Option<&'f Located<T>>,
    key: &str,
    policy: &str,
    delta: &Located<Delta>,
    problems: &mut Problems,
) -> Option<&'f Located<T>> {
    if raw.is_none() && !problems.failed(&delta.span, key) {
        let problem = Problem::new(delta.span.clone(), format!("`policy: {policy}` needs `{key}`"));
        problems.add(problem.label(format!("needs `{key}`")).help(format!("add `{key}: …` under `delta`")));
    }
    raw
}
