//! How intense each dimension is at a given progress. Pure `f64` arithmetic; phases are computed in [`super::phases`].

use super::{Curve, Dimension, Level, Strength};

/// Slope of the logistic curve, per unit of progress.
const SLOPE: f64 = 12.0;

impl Curve {
    /// The value at `progress` in `[0, 1]`; exactly the curve's end values at 0 and 1. Values outside `[0, 1]` are clamped.
    pub fn value(&self, progress: f64) -> f64 {
        match self {
            Self::Linear { start, end } => between(*start, *end, progress),
            Self::Sigmoid { start, end, midpoint } => between(*start, *end, normalised_logistic(progress, *midpoint)),
            Self::DelayedRamp { start, end, delay } => between(*start, *end, share(*delay, 1.0, progress)),
            Self::Step { start, thresholds } => {
                thresholds.iter().take_while(|(at, _)| *at <= progress).last().map_or(*start, |(_, value)| *value)
            }
            Self::Points(points) => along(points, progress),
        }
    }
}

impl Dimension {
    /// The value at `progress`, inside the dimension's bounds and never above `ceiling`. The loader has checked that the
    /// curve respects both, so clamping only removes rounding errors.
    pub fn intensity(&self, progress: f64, ceiling: f64) -> f64 {
        self.curve.value(progress).max(self.min).min(self.max).min(ceiling)
    }

    /// The description of the value's level. If that level has none: the nearest lower level's description, and if there is
    /// no lower one, the lowest there is.
    pub fn behaviour(&self, value: f64) -> Option<&str> {
        let weaker = self.levels.range(..=Level::of(value)).next_back();
        weaker.or_else(|| self.levels.first_key_value()).map(|(_, behaviour)| behaviour.as_str())
    }
}

impl Level {
    /// The level of a value: low below .3, medium below .7, high from there.
    pub fn of(value: f64) -> Self {
        if value < 0.3 {
            Self::Low
        } else if value < 0.7 {
            Self::Medium
        } else {
            Self::High
        }
    }

    /// Its name in configs and prompts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

impl Strength {
    /// The strength that fits an intensity: split like [`Level::of`].
    pub fn of(value: f64) -> Self {
        match Level::of(value) {
            Level::Low => Self::Subtle,
            Level::Medium => Self::Moderate,
            Level::High => Self::Direct,
        }
    }
}

/// Progress over a span of `turns`: t / (N − 1), 0 when there is one turn, 1 from the last turn on.
pub(super) fn progress(turn: usize, turns: usize) -> f64 {
    match turns.saturating_sub(1) {
        0 => 0.0,
        last => (turn as f64 / last as f64).min(1.0),
    }
}

/// The point at `share` of the way from `start` to `end`: exact at both ends, never outside, monotone in `share`.
fn between(start: f64, end: f64, share: f64) -> f64 {
    if share >= 1.0 {
        return end;
    }
    (start + (end - start) * share.max(0.0)).max(start.min(end)).min(start.max(end))
}

/// How far `progress` is on the way from `from` to `to`, in `[0, 1]`.
fn share(from: f64, to: f64, progress: f64) -> f64 {
    if progress >= to {
        1.0
    } else if progress <= from {
        0.0
    } else {
        (progress - from) / (to - from)
    }
}

/// The logistic function of slope 12 around `midpoint`, stretched to be exactly 0 at progress 0 and 1 at progress 1.
fn normalised_logistic(progress: f64, midpoint: f64) -> f64 {
    if progress <= 0.0 {
        return 0.0;
    }
    if progress >= 1.0 {
        return 1.0;
    }
    // `libm` rather than the platform's exponential: the same bits everywhere.
    let logistic = |at: f64| 1.0 / (1.0 + libm::exp(-SLOPE * (at - midpoint)));
    let (low, high) = (logistic(0.0), logistic(1.0));
    (logistic(progress) - low) / (high - low)
}

/// Straight lines between points that rise in `at`; flat before the first and after the last.
fn along(points: &[(f64, f64)], progress: f64) -> f64 {
    let mut before: Option<(f64, f64)> = None;
    for &(at, value) in points {
        if progress < at {
            return before.map_or(value, |(from, start)| between(start, value, share(from, at, progress)));
        }
        before = Some((at, value));
    }
    before.map_or(0.0, |(_, value)| value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(curve: &Curve, progress: f64, expected: f64) {
        let value = curve.value(progress);
        assert!((value - expected).abs() < 1e-12, "{curve:?} at {progress}: {value}, expected {expected}");
    }

    #[test]
    fn sigmoid_is_the_mean_at_its_midpoint_and_exact_at_its_ends() {
        let curve = Curve::Sigmoid { start: 0.1, end: 0.85, midpoint: 0.5 };
        check(&curve, 0.5, 0.475);
        assert_eq!(curve.value(0.0).to_bits(), 0.1_f64.to_bits());
        assert_eq!(curve.value(1.0).to_bits(), 0.85_f64.to_bits());
    }

    #[test]
    fn sigmoid_agrees_with_the_hyperbolic_tangent() {
        // 1 / (1 + e^-x) = (1 + tanh(x / 2)) / 2, with the standard library's tanh.
        for midpoint in [0.2, 0.5, 0.7] {
            let logistic = |at: f64| f64::midpoint(1.0, (6.0 * (at - midpoint)).tanh());
            for progress in [0.1, 0.25, 0.6, 0.95] {
                let expected = (logistic(progress) - logistic(0.0)) / (logistic(1.0) - logistic(0.0));
                check(&Curve::Sigmoid { start: 0.0, end: 1.0, midpoint }, progress, expected);
            }
        }
    }

    #[test]
    fn linear_is_half_way_at_half_time() {
        check(&Curve::Linear { start: 0.15, end: 0.75 }, 0.5, 0.45);
        check(&Curve::Linear { start: 0.75, end: 0.15 }, 0.25, 0.6);
    }

    #[test]
    fn delayed_ramp_is_flat_then_straight() {
        let curve = Curve::DelayedRamp { start: 0.0, end: 0.7, delay: 0.6 };
        check(&curve, 0.59, 0.0);
        check(&curve, 0.6, 0.0);
        check(&curve, 0.8, 0.35);
        check(&curve, 1.0, 0.7);
        // A delay of zero is a straight line, not an unset delay.
        check(&Curve::DelayedRamp { start: 0.0, end: 0.8, delay: 0.0 }, 0.25, 0.2);
    }

    #[test]
    fn step_jumps_at_its_thresholds() {
        let curve = Curve::Step { start: 0.1, thresholds: vec![(0.3, 0.4), (0.7, 0.9)] };
        for (progress, expected) in [(0.0, 0.1), (0.299, 0.1), (0.3, 0.4), (0.699, 0.4), (0.7, 0.9), (1.0, 0.9)] {
            check(&curve, progress, expected);
        }
    }

    #[test]
    fn control_points_are_joined_by_straight_lines() {
        let curve = Curve::Points(vec![(0.2, 0.1), (0.6, 0.5), (0.8, 0.3)]);
        for (progress, expected) in [(0.0, 0.1), (0.2, 0.1), (0.4, 0.3), (0.6, 0.5), (0.7, 0.4), (0.8, 0.3), (1.0, 0.3)]
        {
            check(&curve, progress, expected);
        }
    }

    #[test]
    fn no_dimension_leaves_its_bounds_or_exceeds_the_ceiling() {
        let dimension = Dimension {
            name: "distress".into(),
            description: String::new(),
            levels: std::collections::BTreeMap::new(),
            curve: Curve::Linear { start: 0.0, end: 1.0 },
            min: 0.2,
            max: 0.8,
            restarts: false,
        };
        let values = [0.0, 0.5, 1.0].map(|progress| dimension.intensity(progress, 0.9));
        assert_eq!(values.map(f64::to_bits), [0.2, 0.5, 0.8].map(f64::to_bits));
        assert_eq!(dimension.intensity(1.0, 0.7).to_bits(), 0.7_f64.to_bits());
    }

    #[test]
    fn levels_split_at_three_and_seven_tenths() {
        let cases =
            [(0.0, Level::Low), (0.299, Level::Low), (0.3, Level::Medium), (0.699, Level::Medium), (0.7, Level::High)];
        for (value, expected) in cases {
            assert_eq!(Level::of(value), expected, "{value}");
        }
    }

    #[test]
    fn progress_runs_from_the_first_turn_to_the_last() {
        for (turn, turns, expected) in
            [(0, 1, 0.0), (0, 0, 0.0), (0, 50, 0.0), (49, 50, 1.0), (7, 15, 0.5), (60, 50, 1.0)]
        {
            assert_eq!(progress(turn, turns).to_bits(), f64::to_bits(expected), "turn {turn} of {turns}");
        }
    }

    fn smooth_curves() -> impl Strategy<Value = (Curve, f64, f64)> {
        (0.0..1.0f64, 0.0..1.0f64, 0.01..0.99f64).prop_flat_map(|(start, end, knee)| {
            prop_oneof![
                Just((Curve::Linear { start, end }, start, end)),
                Just((Curve::Sigmoid { start, end, midpoint: knee }, start, end)),
                Just((Curve::DelayedRamp { start, end, delay: knee }, start, end)),
                Just((Curve::Step { start, thresholds: vec![(knee, end)] }, start, end)),
                Just((Curve::Points(vec![(0.0, start), (knee, f64::midpoint(start, end)), (1.0, end)]), start, end)),
            ]
        })
    }

    proptest! {
        #[test]
        fn curves_are_exact_at_their_ends((curve, start, end) in smooth_curves()) {
            prop_assert_eq!(curve.value(0.0).to_bits(), start.to_bits());
            prop_assert_eq!(curve.value(1.0).to_bits(), end.to_bits());
        }

        #[test]
        fn curves_stay_between_their_ends((curve, start, end) in smooth_curves(), at in -0.5..1.5f64) {
            let value = curve.value(at);
            prop_assert!(start.min(end) <= value && value <= start.max(end), "{} at {}", value, at);
        }

        #[test]
        fn curves_never_turn_back((curve, start, end) in smooth_curves(), a in 0.0..1.0f64, b in 0.0..1.0f64) {
            let rise = (curve.value(a.max(b)) - curve.value(a.min(b))) * if end >= start { 1.0 } else { -1.0 };
            // One unit in the last place: the exponential itself is rounded.
            prop_assert!(rise >= -1e-15, "{}", rise);
        }
    }
}
