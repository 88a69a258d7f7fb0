//! Tensors by name from safetensors, one file or many, as f32. Only what is asked for is read, each tensor once; the
//! architecture says which names and dims there must be.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::path::{Component, Path};

use candle_core::{DType, Device, Tensor};
use loom_kernels::Panels;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::Deserialize;

use super::LoadError;
use crate::foundation::base::Digest;
use crate::foundation::base::limits::{MODEL_JSON_BYTES_MAX, SAFETENSORS_HEADER_BYTES_MAX, SAFETENSORS_SHARDS_MAX};

/// The one file of a model that is not sharded.
const SINGLE: &str = "model.safetensors";
/// The table of a sharded model.
const INDEX: &str = "model.safetensors.index.json";

trait Source: Read + Seek {}
impl<T: Read + Seek> Source for T {}

struct Shard<'a> {
    name: String,
    source: Box<dyn Source + 'a>,
    /// Where the tensors' bytes begin.
    data: u64,
}

/// Weights not yet taken.
pub(super) struct Weights<'a> {
    shards: Vec<Shard<'a>>,
    tensors: BTreeMap<String, (usize, TensorInfo)>,
    /// What each tensor taken so far held.
    digests: Vec<(String, Digest)>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl<'a> Weights<'a> {
    /// The weights in a model's folder.
    pub(super) fn from_dir(dir: &Path) -> Result<Self, LoadError> {
        let open = |name: &str| {
            let path = dir.join(name);
            File::open(&path).map_err(|error| LoadError::read(path.display(), error))
        };
        let mut weights = Self::empty();
        if dir.join(SINGLE).is_file() {
            weights.add(SINGLE, Box::new(open(SINGLE)?))?;
        } else if dir.join(INDEX).is_file() {
            let index: Index = serde_json::from_str(&read_text(&dir.join(INDEX))?)
                .map_err(|error| LoadError::malformed(INDEX, error))?;
            for name in index.shards()? {
                weights.add(name, Box::new(open(name)?))?;
            }
            index.agrees(&weights)?;
        } else {
            let why = format!("neither `{SINGLE}` nor `{INDEX}` is there; give a folder in Hugging Face's layout");
            return Err(LoadError::read(dir.display(), why));
        }
        Ok(weights)
    }

    /// The weights in one safetensors file held in memory.
    pub(super) fn from_bytes(bytes: &'a [u8]) -> Result<Self, LoadError> {
        let mut weights = Self::empty();
        weights.add(SINGLE, Box::new(Cursor::new(bytes)))?;
        Ok(weights)
    }

    fn empty() -> Self {
        Self { shards: Vec::new(), tensors: BTreeMap::new(), digests: Vec::new() }
    }

    /// Reads a file's header and checks it against the file's length.
    fn add(&mut self, name: &str, mut source: Box<dyn Source + 'a>) -> Result<(), LoadError> {
        let malformed = |why: String| LoadError::malformed(name, why);
        let broken =
            |error: std::io::Error| LoadError::malformed(name, format!("it ends too early ({error}): fetch it again"));
        let length = source.seek(SeekFrom::End(0)).map_err(broken)?;
        source.rewind().map_err(broken)?;
        let mut size = [0; 8];
        source.read_exact(&mut size).map_err(broken)?;
        let size = u64::from_le_bytes(size);
        if size > SAFETENSORS_HEADER_BYTES_MAX {
            return Err(malformed(format!(
                "its header claims {size} bytes, more than {SAFETENSORS_HEADER_BYTES_MAX}: this is no safetensors file"
            )));
        }
        if size > length {
            return Err(malformed(format!(
                "its header claims {size} bytes, but the file has {length}: fetch it again"
            )));
        }
        let mut header = vec![0; size as usize];
        source.read_exact(&mut header).map_err(broken)?;
        let header: Metadata =
            serde_json::from_slice(&header).map_err(|error| malformed(format!("header: {error}")))?;
        let data = 8 + size;
        let expected = data.saturating_add(header.data_len() as u64);
        if length != expected {
            return Err(malformed(format!("it has {length} bytes, its header speaks of {expected}: fetch it again")));
        }
        let shard = self.shards.len();
        for (tensor, info) in header.tensors() {
            if self.tensors.insert(tensor.clone(), (shard, info.clone())).is_some() {
                return Err(LoadError::tensor(tensor, "is in two shards"));
            }
        }
        self.shards.push(Shard { name: name.to_owned(), source, data });
        Ok(())
    }

    /// Whether there is a tensor called `name` that was not taken.
    pub(super) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Takes the tensor `name`, which must have `dims`, row-major, as f32. Every element is finite.
    pub(super) fn take(&mut self, name: &str, dims: &[usize]) -> Result<Vec<f32>, LoadError> {
        let (shard, info) = self.tensors.remove(name).ok_or_else(|| LoadError::tensor(name, "is missing"))?;
        if info.shape != dims {
            return Err(LoadError::tensor(name, format!("has dims {:?} where {dims:?} are needed", info.shape)));
        }
        let dtype = DType::try_from(info.dtype).ok().filter(|d| matches!(d, DType::F32 | DType::BF16 | DType::F16));
        let dtype =
            dtype.ok_or_else(|| LoadError::tensor(name, format!("is {:?}; f32, bf16 and f16 are read", info.dtype)))?;
        let shard = self.shards.get_mut(shard).ok_or_else(|| LoadError::tensor(name, "is in no shard"))?;
        let (begin, end) = info.data_offsets;
        let mut bytes = vec![0; end - begin];
        let read = shard.source.seek(SeekFrom::Start(shard.data + begin as u64));
        read.and_then(|_| shard.source.read_exact(&mut bytes)).map_err(|error| LoadError::read(&shard.name, error))?;
        self.digests.push((name.to_owned(), Digest::of(&bytes)));
        let values = Tensor::from_raw_buffer(&bytes, dtype, dims, &Device::Cpu)
            .and_then(|tensor| tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>())
            .map_err(|error| LoadError::tensor(name, format!("cannot be converted: {error}")))?;
        match values.iter().position(|value| !value.is_finite()) {
            Some(at) => Err(LoadError::tensor(name, format!("holds a NaN or an infinity (element {at})"))),
            None => Ok(values),
        }
    }

    /// Takes the matrix `name`, `[outputs, inputs]`, packed for products. Every element is finite.
    pub(super) fn panels(&mut self, name: &str, outputs: usize, inputs: usize) -> Result<Panels, LoadError> {
        self.take(name, &[outputs, inputs]).map(|weight| Panels::pack(&weight, outputs, inputs))
    }

    /// A digest of everything that was taken. A tensor left over is an error: the model would not be what the file says.
    pub(super) fn finish(self) -> Result<Digest, LoadError> {
        if let Some(name) = self.tensors.keys().next() {
            return Err(LoadError::tensor(name, format!("and {} more belong to no layer", self.tensors.len() - 1)));
        }
        let lines: Vec<_> = self.digests.iter().map(|(name, digest)| format!("{name} {digest}\n")).collect();
        Ok(Digest::of(lines.concat()))
    }
}

impl Index {
    /// The shards' names, each a plain file name: a path would lead out of the model's folder.
    fn shards(&self) -> Result<Vec<&str>, LoadError> {
        let mut names: Vec<_> = self.weight_map.values().map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() > SAFETENSORS_SHARDS_MAX {
            let why = format!("it names {} shards, at most {SAFETENSORS_SHARDS_MAX} are read", names.len());
            return Err(LoadError::malformed(INDEX, why));
        }
        for name in &names {
            let mut parts = Path::new(name).components();
            let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
            if !plain || name.contains(['/', '\\', ':']) {
                return Err(LoadError::malformed(
                    INDEX,
                    format!("the shard `{name}` is not a plain file name in this folder"),
                ));
            }
        }
        Ok(names)
    }

    fn agrees(&self, weights: &Weights<'_>) -> Result<(), LoadError> {
        for (tensor, shard) in &self.weight_map {
            let real = weights.tensors.get(tensor).and_then(|(shard, _)| weights.shards.get(*shard));
            if real.is_none_or(|real| real.name != *shard) {
                return Err(LoadError::tensor(tensor, format!("is not in `{shard}`, where the index has it")));
            }
        }
        Ok(())
    }
}

/// The text of one of a model's JSON files, within [`MODEL_JSON_BYTES_MAX`].
pub(super) fn read_text(path: &Path) -> Result<String, LoadError> {
    let file = File::open(path).map_err(|error| LoadError::read(path.display(), error))?;
    let mut text = String::new();
    let read = file.take(MODEL_JSON_BYTES_MAX + 1).read_to_string(&mut text);
    match read.map_err(|error| LoadError::read(path.display(), error))? as u64 {
        bytes if bytes > MODEL_JSON_BYTES_MAX => {
            Err(LoadError::read(path.display(), format!("it is larger than {MODEL_JSON_BYTES_MAX} bytes")))
        }
        _ => Ok(text),
    }
}
