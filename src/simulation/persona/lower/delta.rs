//! The Δ policy.

use super::{Names, check_reference, refuse_unused, within};
use crate::foundation::chat::{DeltaGains, LayerGains};
use crate::foundation::config::{At, Maybe, Problem, Problems};
use crate::simulation::persona::format::{Delta, DeltaPolicyName, Gains, GainsEntry};
use crate::simulation::persona::spec::DeltaPolicy;

/// The largest gain; past it a state overflows f32 within a few tokens.
const GAIN_MAX: f64 = 100.0;

pub(super) fn lower(raw: Option<&At<Delta>>, names: &Names<'_>, problems: &mut Problems) -> Option<DeltaPolicy> {
    let Some(raw) = raw else { return Some(DeltaPolicy::Off) };
    let of_fixed = [("gains", raw.gains.as_ref().map(|at| &at.span))];
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
            Some(DeltaPolicy::Off)
        }
        DeltaPolicyName::Regulator => {
            refuse_unused(&of_fixed, "`policy: regulator`", problems);
            refuse_unused(&of_trajectory, "`policy: regulator`", problems);
            Some(DeltaPolicy::Regulator)
        }
        DeltaPolicyName::Fixed => {
            refuse_unused(&of_trajectory, "`policy: fixed`", problems);
            fixed(needed(raw.gains.as_ref(), "gains", "fixed", raw, problems)?, problems)
        }
        DeltaPolicyName::Trajectory => {
            refuse_unused(&of_fixed, "`policy: trajectory`", problems);
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

fn fixed(raw: &At<GainsEntry>, problems: &mut Problems) -> Option<DeltaPolicy> {
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
    let mut gain = |raw: &Maybe<f64>, key| match raw {
        None => Some(1.0),
        Some(at) => within(at, 0.0..=GAIN_MAX, key, problems).map(|gain| gain as f32),
    };
    let (delta, decay, write) = (gain(&raw.delta, "delta"), gain(&raw.decay, "decay"), gain(&raw.write, "write"));
    Some(LayerGains { delta: delta?, decay: decay?, write: write? })
}

fn needed<'f, T>(
    raw: Option<&'f At<T>>,
    key: &str,
    policy: &str,
    delta: &At<Delta>,
    problems: &mut Problems,
) -> Option<&'f At<T>> {
    if raw.is_none() && !problems.failed(&delta.span, key) {
        let problem = Problem::new(delta.span.clone(), format!("`policy: {policy}` needs `{key}`"));
        problems.add(problem.label(format!("needs `{key}`")).help(format!("add `{key}: …` under `delta`")));
    }
    raw
}
