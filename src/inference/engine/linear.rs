//! Affine maps, and taking the weights of one part of a network by short names.

use loom_kernels::{Panels, matmul};

use super::LoadError;
use super::weights::Weights;

/// y = x·Wᵀ + b.
pub(super) struct Linear {
    weight: Panels,
    bias: Option<Vec<f32>>,
}

impl Linear {
    /// y for `rows` contiguous rows of x.
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

/// The weights whose names begin with one prefix.
pub(super) struct Part<'p, 'w> {
    weights: &'p mut Weights<'w>,
    prefix: String,
}

impl<'p, 'w> Part<'p, 'w> {
    pub(super) fn new(weights: &'p mut Weights<'w>, prefix: impl Into<String>) -> Self {
        Self { weights, prefix: prefix.into() }
    }

    /// The tensor's whole name.
    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// See [`Weights::take`].
    pub(super) fn take(&mut self, name: &str, dims: &[usize]) -> Result<Vec<f32>, LoadError> {
        self.weights.take(&self.name(name), dims)
    }

    /// A tensor that not every model has.
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

    /// `{name}.weight`, and `{name}.bias` where there is to be one.
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
