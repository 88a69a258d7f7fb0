//! The tensors that a network of candle asks for. Candle's constructors ask for tensors by name and dims; a first call lists
//! them without any weights, and a second one gets them from the model's files.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{DType, Device, Result, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};

use super::super::error::LoadError;
use super::super::tensors::{Name, ParameterCount, TensorSource};
use super::super::weights::Weights;
use super::families::CandleFamily;
use super::fields::Fields;
use super::guarded;

/// A separate head.
const HEAD: &str = "lm_head.weight";

/// Names in the files and dims, by candle's names.
pub(super) struct Listed {
    tensors: BTreeMap<String, (String, Vec<usize>)>,
    /// The embedding table's name in the files.
    table: &'static str,
}

impl Listed {
    /// Calls candle's constructor with tensors of the wanted dims that share one zero.
    pub(super) fn new(family: &CandleFamily, fields: &Fields) -> std::result::Result<Self, LoadError> {
        let asked = Arc::new(Mutex::new(BTreeMap::new()));
        let listing = Listing { asked: Arc::clone(&asked), tied: fields.tied() };
        let builder = VarBuilder::from_backend(Box::new(listing), DType::F32, Device::Cpu);
        let built = guarded(|| (family.build)(fields, builder));
        built.map_err(|why| LoadError::malformed("config.json", why))?;
        let asked = std::mem::take(&mut *asked.lock().unwrap_or_else(PoisonError::into_inner));
        let named = |(name, dims): (String, Vec<usize>)| {
            let file = (family.name)(&name);
            (name, (file, dims))
        };
        Ok(Self { tensors: asked.into_iter().map(named).collect(), table: family.table })
    }

    /// The number of parameters; a head that is the table counts once.
    pub(super) fn count(&self) -> std::result::Result<ParameterCount, LoadError> {
        let mut count = ParameterCount::default();
        for (name, dims) in self.tensors.values() {
            let name = Name { hf: name, gguf: "" };
            match dims.as_slice() {
                [outputs, inputs] => count.matrix(name, *outputs, *inputs)?,
                dims => count.vector(name, dims)?,
            }
        }
        Ok(count)
    }
}

/// Records the names and dims.
struct Listing {
    asked: Arc<Mutex<BTreeMap<String, Vec<usize>>>>,
    tied: bool,
}

impl SimpleBackend for Listing {
    fn get(&self, shape: Shape, name: &str, _: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.insert(name.to_owned(), shape.dims().to_vec());
        Tensor::zeros((), dtype, device)?.broadcast_as(shape)
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> Result<Tensor> {
        candle_core::bail!("`{name}` is asked for without its dims")
    }

    fn contains_tensor(&self, name: &str) -> bool {
        !(self.tied && name == HEAD)
    }
}

/// The tensors in memory, by candle's names. Readers share them.
pub(super) struct Loaded(HashMap<String, Tensor>);

impl Loaded {
    pub(super) fn new(
        listed: &Listed,
        fields: &Fields,
        weights: &mut Weights<'_>,
    ) -> std::result::Result<Self, LoadError> {
        let dims = [fields.vocabulary(), fields.width()];
        let tied = fields.tied();
        if tied && weights.has(HEAD) {
            weights.tied_head(Name { hf: HEAD, gguf: "" }, Name { hf: listed.table, gguf: "" }, &dims)?;
        }
        let mut tensors = HashMap::new();
        for (name, (file, dims)) in &listed.tensors {
            if tied && file == HEAD {
                continue;
            }
            let broken = |error: candle_core::Error| LoadError::tensor(file, error);
            let tensor = Tensor::from_vec(weights.take(file, dims)?, dims.as_slice(), &Device::Cpu).map_err(broken)?;
            tensors.insert(name.clone(), tensor);
        }
        if let Some((head, _)) = listed.tensors.iter().find(|(_, (file, _))| tied && file == HEAD) {
            let table = listed.tensors.iter().find(|(_, (file, _))| file == listed.table);
            if let Some(table) = table.and_then(|(table, _)| tensors.get(table)).cloned() {
                tensors.insert(head.clone(), table);
            }
        }
        Ok(Self(tensors))
    }

    pub(super) fn builder(&self) -> VarBuilder<'static> {
        VarBuilder::from_tensors(self.0.clone(), DType::F32, &Device::Cpu)
    }
}
