//! Affine maps, and access to the weights under a common name prefix.

use loom_kernels::{Panels, matmul};

use super::LoadError;
use super::weights::Weights;

/// y = x·Wᵀ + b.
pub(super) struct Linear {
    pub(super) weight: Panels,
    pub(super) bias: Option<Vec<f32>>,
}

impl Linear {
    /// Computes y for `rows` contiguous rows of x.
    pub(super) fn apply(&self, x: &[f32], rows: usize, y: &mut [f32]) {
        matmul(x, rows, &self.weight, y);
        if let Some(bias) = &self.bias {
            y.chunks_exact_mut(bias.len()).for_each(|row| add(row, bias));
        }
    }
}

/// x += y.
pub(super) fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

/// The weights whose names begin with a prefix.
pub(super) struct ScopedWeights<'p, 'w> {
    weights: &'p mut Weights<'w>,
    prefix: String,
}

impl<'p, 'w> ScopedWeights<'p, 'w> {
    pub(super) fn new(weights: &'p mut Weights<'w>, prefix: impl Into<String>) -> Self {
        Self { weights, prefix: prefix.into() }
    }

    /// The tensor's full name.
    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// See [`Weights::take`].
    pub(super) fn take(&mut self, name: &str, dims: &[usize]) -> Result<Vec<f32>, LoadError> {
        self.weights.take(&self.name(name), dims)
    }

    /// A tensor that exists only if `wanted`.
    pub(super) fn take_if(&mut self, wanted: bool, name: &str, dims: &[usize]) -> Result<Option<Vec<f32>>, LoadError> {
        if wanted { self.take(name, dims).map(Some) } else { Ok(None) }
    }

    /// See [`Weights::decay`].
    pub(super) fn decay(&mut self, name: &str, dims: &[usize]) -> Result<Vec<f32>, LoadError> {
        self.weights.decay(&self.name(name), dims)
    }

    /// See [`Weights::panels`].
    pub(super) fn panels(&mut self, name: &str, outputs: usize, inputs: usize) -> Result<Panels, LoadError> {
        self.weights.panels(&self.name(name), outputs, inputs)
    }

    /// `{name}.weight`, and `{name}.bias` if `bias`.
    pub(super) fn linear(
        &mut self,
        name: &str,
        outputs: usize,
        inputs: usize,
        bias: bool,
    ) -> Result<Linear, LoadError> {
        Ok(Linear {
            weight: self.panels(&format!("{name}.weight"), outputs, inputs)?,
            bias: self.take_if(bias, &format!("{name}.bias"), &[outputs])?,
        })
    }
}
