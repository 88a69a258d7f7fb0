//! The tensors of a network. A network lists its tensors once, as calls of a [`TensorSource`]; each source does something
//! else with the list: [`Weights`](super::weights::Weights) reads them, `GpuUpload` moves them to a GPU,
//! [`ParameterCount`] counts them, [`GgufNames`](super::gguf::names::GgufNames) maps their names.

use loom_kernels::Panels;

use super::error::LoadError;
use super::matrix_role::MatrixRole;

/// How the tensors of a network are stored.
pub(super) trait Storage: Send + Sync + 'static {
    /// A vector, or another small tensor.
    type Vector: Send + Sync + 'static;
    /// A matrix to multiply with.
    type Matrix: Send + Sync + 'static;
}

/// In this machine's memory.
pub(super) struct OnCpu;

impl Storage for OnCpu {
    type Vector = Vec<f32>;
    type Matrix = Panels;
}

/// Not at all.
pub(super) struct Nowhere;

impl Storage for Nowhere {
    type Vector = ();
    type Matrix = ();
}

/// The name of a tensor, in safetensors (Hugging Face's) and in GGUF (llama.cpp's).
#[derive(Debug, Clone, Copy)]
pub(super) struct Name<'a> {
    pub(super) hf: &'a str,
    /// Empty if there is no name in GGUF.
    pub(super) gguf: &'a str,
}

impl<'a> From<(&'a str, &'a str)> for Name<'a> {
    fn from((hf, gguf): (&'a str, &'a str)) -> Self {
        Self { hf, gguf }
    }
}

/// The name under which a norm that safetensors store as its difference from 1 is stored without that.
pub(super) fn whole_norm(name: &str) -> String {
    format!("{name}.whole")
}

/// The vector type of a source.
pub(super) type Vector<T> = <<T as TensorSource>::Storage as Storage>::Vector;
/// The matrix type of a source.
pub(super) type Matrix<T> = <<T as TensorSource>::Storage as Storage>::Matrix;

/// Receives the list of a network's tensors. Dims are those in safetensors, slowest first.
pub(super) trait TensorSource: Sized {
    type Storage: Storage;

    /// Whether a tensor with this name in safetensors is there and not taken yet.
    fn has(&self, name: &str) -> bool;

    /// A tensor as f32.
    fn vector(&mut self, name: Name<'_>, dims: &[usize]) -> Result<Vector<Self>, LoadError>;

    /// A matrix packed for products.
    fn matrix(&mut self, name: Name<'_>, outputs: usize, inputs: usize) -> Result<Matrix<Self>, LoadError>;

    /// A tensor that stores several matrices with rows of the same length one after the other: `parts` are their outputs.
    fn split(&mut self, name: Name<'_>, dims: &[usize], parts: &[usize]) -> Result<Vec<Matrix<Self>>, LoadError>;

    /// The weight of a norm that is stored as its difference from 1.
    fn centred_norm(&mut self, name: Name<'_>, dim: usize) -> Result<Vector<Self>, LoadError>;

    /// −exp of a tensor: Mamba's A from its logarithm.
    fn decay(&mut self, name: Name<'_>, dims: &[usize]) -> Result<Vector<Self>, LoadError>;

    /// The weight of a depthwise convolution, stored as `[channels, 1, taps]`, as `[taps, channels]`.
    fn convolution(&mut self, name: Name<'_>, channels: usize, taps: usize) -> Result<Vector<Self>, LoadError>;

    /// A matrix whose first `rank` outputs are a vector of low rank, followed by `others`. A GPU pads that vector.
    fn low_rank_outputs(
        &mut self,
        name: Name<'_>,
        [rank, others]: [usize; 2],
        inputs: usize,
    ) -> Result<Matrix<Self>, LoadError> {
        self.matrix(name, rank.saturating_add(others), inputs)
    }

    /// A matrix whose inputs are a vector of low rank. A GPU pads that vector.
    fn low_rank_inputs(&mut self, name: Name<'_>, outputs: usize, rank: usize) -> Result<Matrix<Self>, LoadError> {
        self.matrix(name, outputs, rank)
    }

    /// Says that the outputs of tensor `name` are `heads` heads with rotary positions.
    fn rotary(&mut self, _name: &str, _heads: usize) {}

    /// A head that is stored although it is the table `table`.
    fn tied_head(&mut self, head: Name<'_>, table: Name<'_>, dims: &[usize]) -> Result<(), LoadError>;

    /// Leaves the tensors whose names in safetensors begin with `prefix`: they belong to another network.
    fn leave(&mut self, _prefix: &str) {}

    /// A tensor of the file that is not needed.
    fn unused(&mut self, name: Name<'_>, dims: &[usize]) -> Result<(), LoadError>;
}

/// The tensors whose names begin with a prefix.
pub(super) struct Scope<'s, T: TensorSource> {
    source: &'s mut T,
    hf: String,
    gguf: String,
}

impl<'s, T: TensorSource> Scope<'s, T> {
    /// `prefix` in safetensors and in GGUF.
    pub(super) fn new(source: &'s mut T, hf: impl Into<String>, gguf: impl Into<String>) -> Self {
        Self { source, hf: hf.into(), gguf: gguf.into() }
    }

    /// Calls the source with the tensor's full name.
    fn call<R>(&mut self, name: (&str, &str), call: impl FnOnce(&mut T, Name<'_>) -> R) -> R {
        let hf = format!("{}{}", self.hf, name.0);
        let gguf = if name.1.is_empty() { String::new() } else { format!("{}{}", self.gguf, name.1) };
        call(self.source, Name { hf: &hf, gguf: &gguf })
    }

    /// Whether a tensor with this name in safetensors is there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.source.has(&format!("{}{name}", self.hf))
    }

    /// See [`TensorSource::vector`].
    pub(super) fn vector(&mut self, name: (&str, &str), dims: &[usize]) -> Result<Vector<T>, LoadError> {
        self.call(name, |source, name| source.vector(name, dims))
    }

    /// A tensor that exists only if `wanted`.
    pub(super) fn vector_if(
        &mut self,
        wanted: bool,
        name: (&str, &str),
        dims: &[usize],
    ) -> Result<Option<Vector<T>>, LoadError> {
        if wanted { self.vector(name, dims).map(Some) } else { Ok(None) }
    }

    /// See [`TensorSource::decay`].
    pub(super) fn decay(&mut self, name: (&str, &str), dims: &[usize]) -> Result<Vector<T>, LoadError> {
        self.call(name, |source, name| source.decay(name, dims))
    }

    /// See [`TensorSource::convolution`].
    pub(super) fn convolution(
        &mut self,
        name: (&str, &str),
        channels: usize,
        taps: usize,
    ) -> Result<Vector<T>, LoadError> {
        self.call(name, |source, name| source.convolution(name, channels, taps))
    }

    /// See [`TensorSource::matrix`].
    pub(super) fn matrix(&mut self, name: (&str, &str), outputs: usize, inputs: usize) -> Result<Matrix<T>, LoadError> {
        self.call(name, |source, name| source.matrix(name, outputs, inputs))
    }

    /// See [`TensorSource::low_rank_outputs`].
    pub(super) fn low_rank_outputs(
        &mut self,
        name: (&str, &str),
        outputs: [usize; 2],
        inputs: usize,
    ) -> Result<Matrix<T>, LoadError> {
        self.call(name, |source, name| source.low_rank_outputs(name, outputs, inputs))
    }

    /// See [`TensorSource::low_rank_inputs`].
    pub(super) fn low_rank_inputs(
        &mut self,
        name: (&str, &str),
        outputs: usize,
        rank: usize,
    ) -> Result<Matrix<T>, LoadError> {
        self.call(name, |source, name| source.low_rank_inputs(name, outputs, rank))
    }

    /// See [`TensorSource::unused`].
    pub(super) fn unused(&mut self, name: (&str, &str), dims: &[usize]) -> Result<(), LoadError> {
        self.call(name, |source, name| source.unused(name, dims))
    }

    /// `{name}.weight` of a norm.
    pub(super) fn norm(&mut self, name: (&str, &str), dim: usize) -> Result<Vector<T>, LoadError> {
        let gguf = if name.1.is_empty() { String::new() } else { format!("{}.weight", name.1) };
        self.vector((&format!("{}.weight", name.0), &gguf), &[dim])
    }

    /// `{name}.weight` of a norm that is stored as its difference from 1.
    pub(super) fn centred_norm(&mut self, name: (&str, &str), dim: usize) -> Result<Vector<T>, LoadError> {
        let gguf = if name.1.is_empty() { String::new() } else { format!("{}.weight", name.1) };
        self.call((&format!("{}.weight", name.0), &gguf), |source, name| source.centred_norm(name, dim))
    }

    /// Maps whose matrices are stored one after the other in `{name}.weight`, with `outputs` each, without biases.
    pub(super) fn split<const N: usize>(
        &mut self,
        name: (&str, &str),
        outputs: [usize; N],
        inputs: usize,
    ) -> Result<[Linear<T::Storage>; N], LoadError> {
        let hf = format!("{}.weight", name.0);
        let gguf = if name.1.is_empty() { String::new() } else { format!("{}.weight", name.1) };
        let total = outputs.iter().fold(0usize, |total, part| total.saturating_add(*part));
        let parts = self.call((&hf, &gguf), |source, name| source.split(name, &[total, inputs], &outputs))?;
        let maps: Vec<_> = parts.into_iter().map(|weight| Linear { weight, bias: None }).collect();
        maps.try_into().map_err(|_| LoadError::tensor(&hf, format!("is not {N} matrices")))
    }

    /// `parts` maps of the same size whose matrices are stored one after the other, without biases.
    pub(super) fn split_each(
        &mut self,
        name: (&str, &str),
        dims: [usize; 3],
        parts: usize,
    ) -> Result<Vec<Linear<T::Storage>>, LoadError> {
        let [count, outputs, _] = dims;
        let outputs = vec![count.saturating_mul(outputs) / parts.max(1); parts];
        let parts = self.call(name, |source, name| source.split(name, &dims, &outputs))?;
        Ok(parts.into_iter().map(|weight| Linear { weight, bias: None }).collect())
    }

    /// `{name}.weight`, and `{name}.bias` if `bias`.
    pub(super) fn linear(
        &mut self,
        name: (&str, &str),
        outputs: usize,
        inputs: usize,
        bias: bool,
    ) -> Result<Linear<T::Storage>, LoadError> {
        let part = |suffix: &str| {
            let gguf = if name.1.is_empty() { String::new() } else { format!("{}.{suffix}", name.1) };
            (format!("{}.{suffix}", name.0), gguf)
        };
        let ((weight, gguf_weight), (bias_name, gguf_bias)) = (part("weight"), part("bias"));
        Ok(Linear {
            weight: self.matrix((&weight, &gguf_weight), outputs, inputs)?,
            bias: self.vector_if(bias, (&bias_name, &gguf_bias), &[outputs])?,
        })
    }

    /// A [`linear`](Self::linear) whose outputs are `heads` heads with rotary positions.
    pub(super) fn rotary_linear(
        &mut self,
        name: (&str, &str),
        heads: usize,
        [outputs, inputs]: [usize; 2],
        bias: bool,
    ) -> Result<Linear<T::Storage>, LoadError> {
        for suffix in ["weight", "bias"] {
            self.source.rotary(&format!("{}{}.{suffix}", self.hf, name.0), heads);
        }
        self.linear(name, outputs, inputs, bias)
    }
}

/// An affine map, y = x·Wᵀ + b.
pub(super) struct Linear<S: Storage> {
    pub(super) weight: S::Matrix,
    pub(super) bias: Option<S::Vector>,
}

/// The number of parameters of a network, by kind of tensor.
#[derive(Debug, Clone, Default)]
pub(super) struct ParameterCount {
    pub(super) matrices: Vec<MatrixCount>,
    pub(super) vectors: u64,
}

/// Parameters in matrices of one role and row length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MatrixCount {
    pub(super) role: MatrixRole,
    pub(super) inputs: u64,
    pub(super) parameters: u64,
}

impl ParameterCount {
    /// Adds `times` times the parameters of `part`.
    pub(super) fn add(&mut self, part: Self, times: u64) {
        for mut matrix in part.matrices {
            matrix.parameters = matrix.parameters.saturating_mul(times);
            self.matrices.push(matrix);
        }
        self.vectors = self.vectors.saturating_add(part.vectors.saturating_mul(times));
    }

    fn add_vector(&mut self, dims: &[usize]) {
        self.vectors = self.vectors.saturating_add(elements(dims));
    }
}

fn elements(dims: &[usize]) -> u64 {
    dims.iter().fold(1u64, |product, &dim| product.saturating_mul(dim as u64))
}

impl TensorSource for ParameterCount {
    type Storage = Nowhere;

    fn has(&self, _: &str) -> bool {
        false
    }

    fn vector(&mut self, _: Name<'_>, dims: &[usize]) -> Result<(), LoadError> {
        self.add_vector(dims);
        Ok(())
    }

    fn matrix(&mut self, name: Name<'_>, outputs: usize, inputs: usize) -> Result<(), LoadError> {
        let (role, inputs) = (MatrixRole::of(name.hf), inputs as u64);
        self.matrices.push(MatrixCount { role, inputs, parameters: inputs.saturating_mul(outputs as u64) });
        Ok(())
    }

    fn split(&mut self, name: Name<'_>, dims: &[usize], parts: &[usize]) -> Result<Vec<()>, LoadError> {
        let inputs = dims.last().copied().unwrap_or_default() as u64;
        self.matrices.push(MatrixCount { role: MatrixRole::of(name.hf), inputs, parameters: elements(dims) });
        Ok(vec![(); parts.len()])
    }

    fn centred_norm(&mut self, _: Name<'_>, dim: usize) -> Result<(), LoadError> {
        self.add_vector(&[dim]);
        Ok(())
    }

    fn decay(&mut self, _: Name<'_>, dims: &[usize]) -> Result<(), LoadError> {
        self.add_vector(dims);
        Ok(())
    }

    fn convolution(&mut self, _: Name<'_>, channels: usize, taps: usize) -> Result<(), LoadError> {
        self.add_vector(&[channels, taps]);
        Ok(())
    }

    fn tied_head(&mut self, _: Name<'_>, _: Name<'_>, _: &[usize]) -> Result<(), LoadError> {
        Ok(())
    }

    fn unused(&mut self, _: Name<'_>, dims: &[usize]) -> Result<(), LoadError> {
        self.add_vector(dims);
        Ok(())
    }
}
