//! Logistic regression with an L2 penalty, for a few dozen features: Newton's method with step halving.

use serde::{Deserialize, Serialize};

/// Most steps of Newton's method; where it converges, it needs fewer than ten.
const STEPS_MAX: usize = 100;
/// Converged when no component of the gradient exceeds this times the number of rows.
const GRADIENT: f64 = 1e-10;

/// A fitted model: the log-odds are `intercept + weights · x`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Logistic {
    /// The log-odds at the origin.
    pub intercept: f64,
    /// Log-odds per unit of each feature.
    pub weights: Vec<f64>,
}

/// Why there is no model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LogisticError {
    /// Only one class, or no rows.
    #[error("a logistic regression needs rows of both classes")]
    OneClass,
    /// NaN, an infinity, or rows of different lengths.
    #[error("a logistic regression needs rows of finite numbers and equal length")]
    Rows,
    /// For example for separable classes without a penalty.
    #[error("the logistic regression did not converge: use a larger penalty")]
    Diverged,
}

impl Logistic {
    /// The weights that minimise `Σ log(1 + exp(−yᵢ·log-odds(xᵢ))) + penalty/2 · |weights|²`, with y = ±1; the intercept is
    /// not penalised. This is scikit-learn's `LogisticRegression` with `C = 1 / penalty`.
    ///
    /// # Errors
    /// See [`LogisticError`].
    pub fn fit(rows: &[(Vec<f64>, bool)], penalty: f64) -> Result<Self, LogisticError> {
        let width = rows.first().map_or(0, |(row, _)| row.len());
        if rows.iter().any(|(row, _)| row.len() != width || row.iter().any(|x| !x.is_finite())) {
            return Err(LogisticError::Rows);
        }
        if rows.iter().all(|(_, label)| *label) || rows.iter().all(|(_, label)| !label) {
            return Err(LogisticError::OneClass);
        }
        let mut model = Self { intercept: 0.0, weights: vec![0.0; width] };
        let mut loss = model.loss(rows, penalty);
        for _ in 0..STEPS_MAX {
            let (gradient, hessian) = model.slopes(rows, penalty);
            if gradient.iter().all(|slope| slope.abs() <= GRADIENT * rows.len() as f64) {
                return Ok(model);
            }
            let step = solve(&hessian, &gradient).ok_or(LogisticError::Diverged)?;
            let mut share = 1.0;
            loop {
                let next = model.moved(&step, -share);
                let next_loss = next.loss(rows, penalty);
                // Near the minimum the decrease of the loss is below the rounding error.
                if next_loss <= loss + 1e-13 * loss.abs() {
                    (model, loss) = (next, next_loss);
                    break;
                }
                share /= 2.0;
                if share < 1e-10 {
                    return Err(LogisticError::Diverged);
                }
            }
        }
        Err(LogisticError::Diverged)
    }

    /// The log-odds at `row`; missing features count as 0.
    pub fn log_odds(&self, row: &[f64]) -> f64 {
        self.intercept + self.weights.iter().zip(row).map(|(weight, x)| weight * x).sum::<f64>()
    }

    fn moved(&self, step: &[f64], share: f64) -> Self {
        let weights = self.weights.iter().zip(step).map(|(weight, step)| weight + share * step).collect();
        Self { intercept: self.intercept + share * step.last().copied().unwrap_or(0.0), weights }
    }

    fn loss(&self, rows: &[(Vec<f64>, bool)], penalty: f64) -> f64 {
        let loss = |(row, label): &(Vec<f64>, bool)| {
            let towards = if *label { self.log_odds(row) } else { -self.log_odds(row) };
            // log(1 + exp(−z)) without overflow.
            libm::log1p(libm::exp(-towards.abs())) + (-towards).max(0.0)
        };
        let size: f64 = self.weights.iter().map(|weight| weight * weight).sum();
        rows.iter().map(loss).sum::<f64>() + penalty / 2.0 * size
    }

    /// Gradient and Hessian; the intercept is last.
    fn slopes(&self, rows: &[(Vec<f64>, bool)], penalty: f64) -> (Vec<f64>, Vec<Vec<f64>>) {
        let n = self.weights.len() + 1;
        let mut gradient: Vec<f64> = self.weights.iter().map(|weight| penalty * weight).chain([0.0]).collect();
        let mut hessian = vec![vec![0.0; n]; n];
        for (at, row) in hessian.iter_mut().enumerate().take(n - 1) {
            row.iter_mut().skip(at).take(1).for_each(|diagonal| *diagonal = penalty);
        }
        for (row, label) in rows {
            let p = 1.0 / (1.0 + libm::exp(-self.log_odds(row)));
            let (off, weight) = (p - f64::from(*label), p * (1.0 - p));
            let x = || row.iter().copied().chain([1.0]);
            gradient.iter_mut().zip(x()).for_each(|(slope, x)| *slope += off * x);
            for (into, a) in hessian.iter_mut().zip(x()) {
                into.iter_mut().zip(x()).for_each(|(sum, b)| *sum += weight * a * b);
            }
        }
        (gradient, hessian)
    }
}

/// The solution of `matrix · x = right` for a positive definite matrix, by Cholesky decomposition; otherwise `None`.
fn solve(matrix: &[Vec<f64>], right: &[f64]) -> Option<Vec<f64>> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut lower: Vec<Vec<f64>> = Vec::with_capacity(matrix.len());
    let mut x: Vec<f64> = Vec::with_capacity(matrix.len());
    for (row, value) in matrix.iter().zip(right) {
        let mut current: Vec<f64> = Vec::with_capacity(lower.len() + 1);
        for (above, entry) in lower.iter().zip(row) {
            // `current` is one shorter than `above`, whose last entry is the diagonal.
            let entry = (entry - dot(&current, above)) / above.last()?;
            current.push(entry);
        }
        let diagonal = row.get(current.len())? - dot(&current, &current);
        if diagonal.is_nan() || diagonal <= 0.0 {
            return None;
        }
        let diagonal = diagonal.sqrt();
        x.push((value - dot(&current, &x)) / diagonal);
        current.push(diagonal);
        lower.push(current);
    }
    let mut solved = Vec::with_capacity(x.len());
    while let (Some(value), Some(row)) = (x.pop(), lower.pop()) {
        let value = value / row.last()?;
        x.iter_mut().zip(&row).for_each(|(rest, entry)| *rest -= entry * value);
        solved.push(value);
    }
    solved.reverse();
    Some(solved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foundation::stats::tests::{confidence_fixture, numbers};

    /// The references are scikit-learn's; `scripts/confidence_fixture.py` made them.
    #[test]
    fn agrees_with_scikit_learn() {
        for case in confidence_fixture()["logistic"].as_array().unwrap() {
            let labels = numbers(&case["y"]);
            let rows: Vec<_> =
                case["x"].as_array().unwrap().iter().zip(labels).map(|(x, y)| (numbers(x), y > 0.5)).collect();
            let model = Logistic::fit(&rows, case["penalty"].as_f64().unwrap()).unwrap();
            let near = |found: f64, expected: f64| {
                assert!(
                    (found - expected).abs() < 1e-6 * expected.abs().max(1.0),
                    "{}: {found} {expected}",
                    case["name"]
                );
            };
            near(model.intercept, case["intercept"].as_f64().unwrap());
            for (found, expected) in model.weights.iter().zip(numbers(&case["weights"])) {
                near(*found, expected);
            }
        }
    }

    #[test]
    fn fitting_errors_state_the_cause() {
        let row = |x: f64, label| (vec![x], label);
        assert_eq!(Logistic::fit(&[], 1.0), Err(LogisticError::OneClass));
        assert_eq!(Logistic::fit(&[row(1.0, true), row(2.0, true)], 1.0), Err(LogisticError::OneClass));
        assert_eq!(Logistic::fit(&[row(f64::NAN, true), row(2.0, false)], 1.0), Err(LogisticError::Rows));
        assert_eq!(Logistic::fit(&[row(1.0, true), (vec![], false)], 1.0), Err(LogisticError::Rows));
        // Two identical features: without a penalty the solution is not unique.
        let twice = [(vec![1.0, 1.0], true), (vec![2.0, 2.0], false), (vec![1.5, 1.5], true)];
        assert_eq!(Logistic::fit(&twice, 0.0), Err(LogisticError::Diverged));
    }
}
