//! Isotonic regression: the least-squares non-decreasing curve, by pooling adjacent violators (Ayer et al. 1955).

use serde::{Deserialize, Serialize};

/// A non-decreasing, piecewise linear curve; constant before its first point and after its last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Points", into = "Points")]
pub struct Isotonic {
    points: Vec<(f64, f64)>,
}

#[derive(Serialize, Deserialize)]
struct Points {
    x: Vec<f64>,
    y: Vec<f64>,
}

/// Why there is no curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IsotonicError {
    /// There are no points.
    #[error("an isotonic curve needs at least one point")]
    Empty,
    /// NaN or an infinity.
    #[error("an isotonic curve needs finite numbers: remove the points that are not finite")]
    NotFinite,
    /// A stored curve is damaged.
    #[error("a stored isotonic curve must have increasing x, non-decreasing y, and equally many of both")]
    NotRising,
}

/// Adjacent points that share one value.
struct Pool {
    first: f64,
    last: f64,
    /// The weighted sum of their x.
    moment: f64,
    sum: f64,
    weight: f64,
}

impl Pool {
    fn mean(&self) -> f64 {
        self.sum / self.weight
    }
}

impl Isotonic {
    /// Fits the non-decreasing curve with the least squared error to `(x, y)`; equal `x` are merged to their mean `y`.
    ///
    /// # Errors
    /// Without points, or when one is not finite.
    pub fn fit(data: &[(f64, f64)]) -> Result<Self, IsotonicError> {
        let mut points = Vec::new();
        for pool in pools(data)? {
            points.push((pool.first, pool.mean()));
            if pool.last > pool.first {
                points.push((pool.last, pool.mean()));
            }
        }
        Ok(Self { points })
    }

    /// Fits the centred curve (Oron and Flournoy 2017): each segment of equal values is one point at its mean x, connected
    /// by straight lines. So it rises strictly between the first and the last point, and hardly any two x get equal values.
    ///
    /// # Errors
    /// Without points, or when one is not finite.
    pub fn fit_centred(data: &[(f64, f64)]) -> Result<Self, IsotonicError> {
        Ok(Self { points: pools(data)?.iter().map(|pool| (pool.moment / pool.weight, pool.mean())).collect() })
    }

    /// The value at `x`; NaN only for NaN.
    pub fn at(&self, x: f64) -> f64 {
        let after = self.points.partition_point(|point| point.0 <= x);
        let left = after.checked_sub(1).and_then(|before| self.points.get(before));
        match (left, self.points.get(after)) {
            _ if x.is_nan() => f64::NAN,
            (Some(&(x0, y0)), Some(&(x1, y1))) => y0 + (y1 - y0) * ((x - x0) / (x1 - x0)),
            (Some(&(_, y)), None) | (None, Some(&(_, y))) => y,
            (None, None) => f64::NAN,
        }
    }
}

/// Pools adjacent violators.
fn pools(data: &[(f64, f64)]) -> Result<Vec<Pool>, IsotonicError> {
    if data.is_empty() {
        return Err(IsotonicError::Empty);
    }
    if data.iter().any(|(x, y)| !x.is_finite() || !y.is_finite()) {
        return Err(IsotonicError::NotFinite);
    }
    // Adding zero makes −0 the same as 0.
    let mut sorted: Vec<_> = data.iter().map(|&(x, y)| (x + 0.0, y)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut pools: Vec<Pool> = Vec::new();
    for group in sorted.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()) {
        let Some(&(x, _)) = group.first() else { continue };
        let sum = group.iter().map(|(_, y)| y).sum();
        let weight = group.len() as f64;
        let mut pool = Pool { first: x, last: x, moment: x * weight, sum, weight };
        while let Some(before) = pools.pop_if(|before| before.mean() >= pool.mean()) {
            pool.first = before.first;
            pool.moment += before.moment;
            pool.sum += before.sum;
            pool.weight += before.weight;
        }
        pools.push(pool);
    }
    Ok(pools)
}

impl TryFrom<Points> for Isotonic {
    type Error = IsotonicError;

    fn try_from(Points { x, y }: Points) -> Result<Self, IsotonicError> {
        let rising =
            x.iter().zip(x.iter().skip(1)).all(|(a, b)| a < b) && y.iter().zip(y.iter().skip(1)).all(|(a, b)| a <= b);
        match () {
            () if x.is_empty() => Err(IsotonicError::Empty),
            () if x.iter().chain(&y).any(|value| !value.is_finite()) => Err(IsotonicError::NotFinite),
            () if x.len() != y.len() || !rising => Err(IsotonicError::NotRising),
            () => Ok(Self { points: x.into_iter().zip(y).collect() }),
        }
    }
}

impl From<Isotonic> for Points {
    fn from(curve: Isotonic) -> Self {
        let (x, y) = curve.points.into_iter().unzip();
        Self { x, y }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Fixture {
        cases: Vec<Case>,
    }

    #[derive(Deserialize)]
    struct Case {
        name: String,
        x: Vec<f64>,
        y: Vec<f64>,
        ask: Vec<f64>,
        answer: Vec<f64>,
        auroc: Option<f64>,
    }

    #[test]
    fn curves_and_auroc_agree_with_scikit_learn() {
        let fixture: Fixture = serde_json::from_str(include_str!("../../../tests/data/isotonic.json")).unwrap();
        for case in fixture.cases {
            let data: Vec<_> = case.x.iter().copied().zip(case.y.iter().copied()).collect();
            let curve = Isotonic::fit(&data).unwrap();
            for (&x, &expected) in case.ask.iter().zip(&case.answer) {
                assert!((curve.at(x) - expected).abs() < 1e-12, "{}: at {x}", case.name);
            }
            if let Some(expected) = case.auroc {
                let labelled = case.x.iter().zip(&case.y).map(|(&x, &y)| (x, y > 0.5));
                let found = super::super::auroc(labelled).unwrap();
                assert!((found - expected).abs() < 1e-12, "{}: {found}", case.name);
            }
        }
    }

    #[test]
    fn a_centred_curve_passes_through_its_pools_and_rises_between_them() {
        // Pools: {0: 0}, {1, 2, 3: 1/3}, {4: 1}.
        let curve = Isotonic::fit_centred(&[(0.0, 0.0), (1.0, 1.0), (2.0, 0.0), (3.0, 0.0), (4.0, 1.0)]).unwrap();
        for (x, y) in [(-1.0, 0.0), (0.0, 0.0), (1.0, 1.0 / 6.0), (2.0, 1.0 / 3.0), (3.0, 2.0 / 3.0), (9.0, 1.0)] {
            assert!((curve.at(x) - y).abs() < 1e-12, "at {x}: {}", curve.at(x));
        }
        assert_eq!(Isotonic::fit_centred(&[]), Err(IsotonicError::Empty));
    }

    #[test]
    fn a_curve_is_stored_and_a_damaged_one_refused() {
        let curve = Isotonic::fit(&[(0.0, 0.0), (1.0, 1.0), (2.0, 0.5)]).unwrap();
        let json = serde_json::to_string(&curve).unwrap();
        assert_eq!(json, r#"{"x":[0.0,1.0,2.0],"y":[0.0,0.75,0.75]}"#);
        assert_eq!(serde_json::from_str::<Isotonic>(&json).unwrap(), curve);
        for damaged in
            [r#"{"x":[],"y":[]}"#, r#"{"x":[1,0],"y":[0,1]}"#, r#"{"x":[0,1],"y":[1,0]}"#, r#"{"x":[0],"y":[]}"#]
        {
            assert!(serde_json::from_str::<Isotonic>(damaged).is_err(), "{damaged}");
        }
        assert_eq!(Isotonic::fit(&[]), Err(IsotonicError::Empty));
        assert_eq!(Isotonic::fit(&[(f64::NAN, 0.0)]), Err(IsotonicError::NotFinite));
    }
}
