//! What a kind of network must define: its list of tensors, its memory, and its forward pass. Loading, parameter counts,
//! memory estimates and names in GGUF follow from that.

use super::architecture::Architecture;
use super::embedding_and_head::{EmbeddingAndHead, EmbeddingDims, EmbeddingNames};
use super::error::LoadError;
use super::tensors::{OnCpu, ParameterCount, Storage, TensorSource};

/// The dimensions of a network with everything that depends on them alone.
pub(super) trait NetworkConfig: Send + Sync + 'static {
    /// The tensors of one layer.
    type Layer<S: Storage>: Send + Sync + 'static;

    /// The network on the CPU.
    type Network: Architecture;

    /// Number of layers.
    fn layers(&self) -> usize;

    /// Names of the embedding table and the final norm.
    fn embedding_names(&self) -> EmbeddingNames;

    /// Dimensions of the embedding and the head.
    fn embedding_dims(&self) -> EmbeddingDims;

    /// Memory of a sequence.
    fn sequence_memory(&self) -> SequenceMemory;

    /// Longest sequence in tokens, or `None` if there is no limit.
    fn window(&self) -> Option<usize> {
        None
    }

    /// The tensors of layer `index`, taken from `source`.
    fn layer<T: TensorSource>(&self, index: usize, source: &mut T) -> Result<Self::Layer<T::Storage>, LoadError>;

    /// Layers with different lists of tensors: the index of one layer of each kind, and how many there are of it.
    fn layer_kinds(&self) -> Vec<(usize, usize)> {
        vec![(0, self.layers())]
    }

    /// Prefixes of tensors of the file that belong to other networks, such as one for images.
    fn others(&self) -> &'static [&'static str] {
        &[]
    }

    /// Refuses dimensions that the kernels do not support.
    fn check(&self) -> Result<(), LoadError> {
        Ok(())
    }

    /// The network with its tensors in memory.
    fn network(self, embedding_and_head: EmbeddingAndHead<OnCpu>, layers: Vec<Self::Layer<OnCpu>>) -> Self::Network;

    /// Takes all tensors from `source`.
    fn load<T: TensorSource>(&self, source: &mut T) -> Result<Tensors<Self, T::Storage>, LoadError>
    where
        Self: Sized,
    {
        self.check()?;
        self.others().iter().for_each(|prefix| source.leave(prefix));
        let embedding_and_head = EmbeddingAndHead::load(self.embedding_names(), self.embedding_dims(), source)?;
        let layers = (0..self.layers()).map(|index| self.layer(index, source)).collect::<Result<_, _>>()?;
        Ok(Tensors { embedding_and_head, layers })
    }

    /// Calls `source` for the embedding, the head, and one layer of each kind.
    fn list<T: TensorSource>(&self, source: &mut T) -> Result<(), LoadError> {
        EmbeddingAndHead::load(self.embedding_names(), self.embedding_dims(), source)?;
        self.layer_kinds().into_iter().try_for_each(|(index, _)| self.layer(index, source).map(drop))
    }

    /// The number of parameters.
    fn count(&self) -> Result<ParameterCount, LoadError> {
        let mut count = ParameterCount::default();
        for (index, times) in self.layer_kinds() {
            let mut layer = ParameterCount::default();
            self.layer(index, &mut layer)?;
            count.add(layer, times as u64);
        }
        EmbeddingAndHead::load(self.embedding_names(), self.embedding_dims(), &mut count)?;
        Ok(count)
    }
}

/// All tensors of a network.
pub(super) struct Tensors<N: NetworkConfig, S: Storage> {
    pub(super) embedding_and_head: EmbeddingAndHead<S>,
    pub(super) layers: Vec<N::Layer<S>>,
}

/// The size of a model, known without its weights.
pub(super) struct ModelSize {
    pub(super) layers: usize,
    pub(super) vocabulary: usize,
    pub(super) window: Option<usize>,
    pub(super) memory: SequenceMemory,
    pub(super) parameters: ParameterCount,
}

/// A configuration with a size.
pub(super) trait HasSize {
    fn size(&self) -> Result<ModelSize, LoadError>;
}

impl<N: NetworkConfig> HasSize for N {
    fn size(&self) -> Result<ModelSize, LoadError> {
        Ok(ModelSize {
            layers: self.layers(),
            vocabulary: self.embedding_dims().vocabulary,
            window: self.window(),
            memory: self.sequence_memory(),
            parameters: self.count()?,
        })
    }
}

/// Memory that one sequence takes, in numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SequenceMemory {
    /// A recurrent state, whatever its length.
    pub(super) state: u64,
    /// Keys and values per token.
    pub(super) cache_per_token: u64,
}
