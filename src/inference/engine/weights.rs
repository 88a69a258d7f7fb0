//! Tensors by name (Hugging Face's names and dims) from safetensors, in one file or several, or from GGUF: as f32, or
//! packed for matrix products in the requested type. Only requested tensors are read, each once; the architecture
//! determines names and dims.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::path::{Component, Path};

use loom_kernels::{Dtype, Panels};
use safetensors::tensor::Metadata;
use serde::Deserialize;

use super::error::LoadError;
use super::gguf::Tensor;
use super::matrix_role::MatrixRole;
use super::stored_type::{StoredType, largest};
use super::tensors::{Name, OnCpu, TensorSource, whole_norm};
use super::unique_keys::UniqueKeys;
use crate::foundation::base::Digest;
use crate::foundation::base::limits::{MODEL_JSON_BYTES_MAX, SAFETENSORS_HEADER_BYTES_MAX, SAFETENSORS_SHARDS_MAX};
use crate::foundation::store::{self, open_regular};

/// The file of a model that is not sharded.
const SINGLE: &str = "model.safetensors";
/// The index of a sharded model.
const INDEX: &str = "model.safetensors.index.json";

trait Source: Read + Seek {}
impl<T: Read + Seek> Source for T {}

struct Shard<'a> {
    name: String,
    source: Box<dyn Source + 'a>,
}

/// Location of a tensor.
#[derive(Debug, Clone)]
struct TensorEntry {
    shard: usize,
    dims: Vec<usize>,
    /// `Err` names an unsupported type.
    stored: Result<StoredType, String>,
    begin: u64,
    bytes: usize,
    /// Number of heads, if the rows are in llama.cpp's interleaved rotary order.
    interleaved: Option<usize>,
}

/// Weights not yet taken.
pub(super) struct Weights<'a> {
    shards: Vec<Shard<'a>>,
    tensors: BTreeMap<String, TensorEntry>,
    /// Digest of each tensor taken so far, and how it was packed.
    digests: Vec<String>,
    requested_dtype: Option<Dtype>,
    /// Number of elements packed as each type.
    packed: BTreeMap<Dtype, usize>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl<'a> Weights<'a> {
    /// Opens the weights in a model's folder.
    pub(super) fn from_dir(dir: &Path) -> Result<Self, LoadError> {
        let open = |name: &str| {
            let path = dir.join(name);
            open_regular(&path).map_err(|error| LoadError::read(path.display(), error))
        };
        let mut weights = Self::empty();
        if dir.join(SINGLE).is_file() {
            weights.add(SINGLE, Box::new(open(SINGLE)?))?;
        } else if dir.join(INDEX).is_file() {
            let index = Index::parse(&read_text(&dir.join(INDEX))?)?;
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

    /// Opens the weights in a safetensors file held in memory.
    pub(super) fn from_bytes(bytes: &'a [u8]) -> Result<Self, LoadError> {
        let mut weights = Self::empty();
        weights.add(SINGLE, Box::new(Cursor::new(bytes)))?;
        Ok(weights)
    }

    /// Opens the weights in a GGUF file, whose `tensors` have Hugging Face's names.
    pub(super) fn from_gguf(name: &str, file: File, tensors: Vec<Tensor>) -> Result<Self, LoadError> {
        let mut weights = Self::empty();
        for tensor in tensors {
            let entry = TensorEntry {
                shard: 0,
                dims: tensor.dims,
                stored: Ok(tensor.stored),
                begin: tensor.begin,
                bytes: tensor.bytes,
                interleaved: tensor.interleaved,
            };
            // Two names in the file may map to the same name.
            if weights.tensors.insert(tensor.name.clone(), entry).is_some() {
                return Err(LoadError::tensor(&tensor.name, "occurs twice"));
            }
        }
        weights.shards.push(Shard { name: name.to_owned(), source: Box::new(file) });
        Ok(weights)
    }

    fn empty() -> Self {
        let (tensors, packed) = (BTreeMap::new(), BTreeMap::new());
        Self { shards: Vec::new(), tensors, digests: Vec::new(), requested_dtype: None, packed }
    }

    /// Packs matrices as `dtype`, or as stored in the file if `None`.
    pub(super) fn set_dtype(&mut self, dtype: Option<Dtype>) {
        self.requested_dtype = dtype;
    }

    /// Reads a safetensors file's header and checks it against the file's length.
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
                "its header claims {size} bytes, more than {SAFETENSORS_HEADER_BYTES_MAX}: this is not a safetensors file"
            )));
        }
        if size > length {
            return Err(malformed(format!(
                "its header claims {size} bytes, but the file has {length}: fetch it again"
            )));
        }
        let mut header = vec![0; size as usize];
        source.read_exact(&mut header).map_err(broken)?;
        serde_json::from_slice(&header).map(|UniqueKeys| ()).map_err(|error| malformed(format!("header: {error}")))?;
        let header: Metadata =
            serde_json::from_slice(&header).map_err(|error| malformed(format!("header: {error}")))?;
        let data = 8 + size;
        let expected = data.saturating_add(header.data_len() as u64);
        if length != expected {
            return Err(malformed(format!("it has {length} bytes, its header describes {expected}: fetch it again")));
        }
        let shard = self.shards.len();
        for (tensor, info) in header.tensors() {
            let (begin, end) = info.data_offsets;
            let entry = TensorEntry {
                shard,
                dims: info.shape.clone(),
                stored: StoredType::of_safetensors(info.dtype).ok_or_else(|| format!("{:?}", info.dtype)),
                begin: data + begin as u64,
                bytes: end - begin,
                interleaved: None,
            };
            if self.tensors.insert(tensor.clone(), entry).is_some() {
                return Err(LoadError::tensor(tensor, "is in two shards"));
            }
        }
        self.shards.push(Shard { name: name.to_owned(), source });
        Ok(())
    }

    /// Takes the tensor `name`, which must have `dims`, as row-major f32. All elements are finite.
    pub(super) fn take(&mut self, name: &str, dims: &[usize]) -> Result<Vec<f32>, LoadError> {
        let (stored, bytes) = self.read(name, dims)?;
        self.digests.push(format!("{name} {}\n", Digest::of(&bytes)));
        widen(name, stored, &bytes, dims)
    }

    /// Takes the matrix `name`, which must have dims `[outputs, inputs]`, packed for matrix products as the requested
    /// type or the file's own. Blocks already in that type are used unchanged. All elements are finite.
    pub(super) fn panels(&mut self, name: &str, outputs: usize, inputs: usize) -> Result<Panels, LoadError> {
        let panels = self.split_panels(name, &[outputs, inputs], &[outputs])?.pop();
        panels.ok_or_else(|| LoadError::tensor(name, "is missing"))
    }

    /// Takes the tensor `name`, which must have `dims` and whose last dim is the length of a row, as several matrices:
    /// `parts` are their numbers of rows.
    fn split_panels(&mut self, name: &str, dims: &[usize], parts: &[usize]) -> Result<Vec<Panels>, LoadError> {
        let (stored, bytes) = self.read(name, dims)?;
        let inputs = dims.last().copied().unwrap_or_default();
        let dtype = self.dtype_of(name, stored, inputs);
        let row = bytes.len() / parts.iter().sum::<usize>().max(1);
        let mut rest = bytes.as_slice();
        let mut each = Vec::with_capacity(parts.len());
        for &outputs in parts {
            let part = rest.split_off(..outputs * row).unwrap_or_default();
            each.push(self.pack(name, stored, dtype, part, [outputs, inputs])?);
        }
        // f32 is the default and not mentioned in the digest.
        let packed = each.first().map_or(Dtype::F32, Panels::dtype);
        let how = if packed == Dtype::F32 { String::new() } else { format!(" as {packed}") };
        self.digests.push(format!("{name} {}{how}\n", Digest::of(&bytes)));
        Ok(each)
    }

    /// Packs rows that are stored in `bytes` as `dtype`.
    fn pack(
        &mut self,
        name: &str,
        stored: StoredType,
        dtype: Dtype,
        bytes: &[u8],
        [outputs, inputs]: [usize; 2],
    ) -> Result<Panels, LoadError> {
        let panels = if stored.block_dtype() == Some(dtype) {
            if !stored.scales_are_finite(bytes) {
                return Err(LoadError::tensor(name, "holds a NaN or an infinity"));
            }
            Panels::from_blocks(dtype, bytes, outputs, inputs)
        } else {
            let numbers = widen(name, stored, bytes, &[outputs, inputs])?;
            let largest = largest(dtype);
            if let Some(number) = numbers.iter().find(|number| number.abs() > largest) {
                let why = format!("holds {number:e}, but the largest {dtype} is {largest:e}: load the model as f32");
                return Err(LoadError::tensor(name, why));
            }
            Panels::pack_as(dtype, &numbers, outputs, inputs)
        };
        *self.packed.entry(panels.dtype()).or_default() += outputs * inputs;
        Ok(panels)
    }

    fn dtype_of(&self, name: &str, stored: StoredType, inputs: usize) -> Dtype {
        let requested_dtype = self.requested_dtype.unwrap_or(stored.kernel_dtype());
        if stored.block_dtype() == Some(requested_dtype) {
            requested_dtype.for_inputs(inputs)
        } else {
            MatrixRole::of(name).stored_dtype(requested_dtype, inputs)
        }
    }

    fn peek(&mut self, name: &str, dims: &[usize]) -> Result<(StoredType, Vec<u8>), LoadError> {
        let entry = self.tensors.get(name).cloned();
        let read = self.read(name, dims);
        if let Some(entry) = entry {
            self.tensors.insert(name.to_owned(), entry);
        }
        read
    }

    /// The bytes of the tensor `name`, in row-major order.
    fn read(&mut self, name: &str, dims: &[usize]) -> Result<(StoredType, Vec<u8>), LoadError> {
        let entry = self.tensors.remove(name).ok_or_else(|| LoadError::tensor(name, "is missing"))?;
        if entry.dims != dims {
            return Err(LoadError::tensor(name, format!("has dims {:?} where {dims:?} are needed", entry.dims)));
        }
        let stored = entry.stored.map_err(|other| {
            LoadError::tensor(
                name,
                format!("is {other}; f32, bf16 and f16 are read, and from GGUF also Q4_0 to Q8_0 and Q2_K to Q6_K"),
            )
        })?;
        let shard = self.shards.get_mut(entry.shard).ok_or_else(|| LoadError::tensor(name, "is in no shard"))?;
        let mut bytes = vec![0; entry.bytes];
        let read = shard.source.seek(SeekFrom::Start(entry.begin));
        read.and_then(|_| shard.source.read_exact(&mut bytes)).map_err(|error| LoadError::read(&shard.name, error))?;
        if let (Some(heads), Some(rows)) = (entry.interleaved, dims.first().filter(|&&rows| rows > 0)) {
            bytes = in_halves(&bytes, heads, bytes.len() / rows);
        }
        Ok((stored, bytes))
    }

    /// The type that most elements were packed in.
    pub(super) fn dtype(&self) -> Option<Dtype> {
        self.packed.iter().max_by_key(|(_, count)| **count).map(|(dtype, _)| *dtype)
    }

    /// A digest of everything that was taken. A tensor that is left over is an error: the model would differ from its
    /// files.
    pub(super) fn finish(self) -> Result<Digest, LoadError> {
        if let Some(name) = self.tensors.keys().next() {
            return Err(LoadError::tensor(
                name,
                format!("and {} more are not used by the architecture", self.tensors.len() - 1),
            ));
        }
        Ok(Digest::of(self.digests.concat()))
    }
}

impl TensorSource for Weights<'_> {
    type Storage = OnCpu;

    fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    fn vector(&mut self, name: Name<'_>, dims: &[usize]) -> Result<Vec<f32>, LoadError> {
        self.take(name.hf, dims)
    }

    fn matrix(&mut self, name: Name<'_>, outputs: usize, inputs: usize) -> Result<Panels, LoadError> {
        self.panels(name.hf, outputs, inputs)
    }

    fn split(&mut self, name: Name<'_>, dims: &[usize], parts: &[usize]) -> Result<Vec<Panels>, LoadError> {
        self.split_panels(name.hf, dims, parts)
    }

    /// GGUF files contain the weight itself, under a name of its own.
    fn centred_norm(&mut self, name: Name<'_>, dim: usize) -> Result<Vec<f32>, LoadError> {
        let whole = whole_norm(name.hf);
        if self.has(&whole) {
            return self.take(&whole, &[dim]);
        }
        Ok(self.take(name.hf, &[dim])?.into_iter().map(|weight| 1.0 + weight).collect())
    }

    /// GGUF files contain the result, under the name without `_log`.
    fn decay(&mut self, name: Name<'_>, dims: &[usize]) -> Result<Vec<f32>, LoadError> {
        let ready = name.hf.strip_suffix("_log").unwrap_or(name.hf);
        let a = if ready != name.hf && self.has(ready) {
            self.take(ready, dims)?
        } else {
            // `libm`: the same bits on every platform.
            self.take(name.hf, dims)?.into_iter().map(|a| -libm::expf(a)).collect()
        };
        if a.iter().all(|a| a.is_finite()) {
            Ok(a)
        } else {
            Err(LoadError::tensor(name.hf, "is too large for an exponent"))
        }
    }

    fn convolution(&mut self, name: Name<'_>, channels: usize, taps: usize) -> Result<Vec<f32>, LoadError> {
        let weight = self.take(name.hf, &[channels, 1, taps])?;
        Ok((0..taps).flat_map(|tap| weight.iter().skip(tap).step_by(taps)).copied().collect())
    }

    fn tied_head(&mut self, head: Name<'_>, table: Name<'_>, dims: &[usize]) -> Result<(), LoadError> {
        let (stored, bytes) = self.peek(table.hf, dims)?;
        let first = widen(table.hf, stored, &bytes, dims)?;
        if self.take(head.hf, dims)? == first {
            Ok(())
        } else {
            Err(LoadError::tensor(head.hf, "differs from the embedding although `tie_word_embeddings` is set"))
        }
    }

    fn leave(&mut self, prefix: &str) {
        self.tensors.retain(|name, _| !name.starts_with(prefix));
    }

    fn unused(&mut self, name: Name<'_>, dims: &[usize]) -> Result<(), LoadError> {
        self.take(name.hf, dims).map(drop)
    }
}

/// The file names in a sharded model's index; never a path outside the model's folder.
pub(in crate::inference) fn shard_names(json: &str) -> Result<Vec<String>, LoadError> {
    Ok(Index::parse(json)?.shards()?.into_iter().map(str::to_owned).collect())
}

fn widen(name: &str, stored: StoredType, bytes: &[u8], dims: &[usize]) -> Result<Vec<f32>, LoadError> {
    let values =
        stored.widen(bytes, dims).map_err(|error| LoadError::tensor(name, format!("cannot be converted: {error}")))?;
    match values.iter().position(|value| !value.is_finite()) {
        Some(at) => Err(LoadError::tensor(name, format!("holds a NaN or an infinity (element {at})"))),
        None => Ok(values),
    }
}

/// Reorders the rows of each head from llama.cpp's order, in which the two elements of a rotation are adjacent, to
/// Hugging Face's, in which they are half a head apart.
fn in_halves(bytes: &[u8], heads: usize, row: usize) -> Vec<u8> {
    let head = bytes.len() / heads.max(1);
    let mut halves = Vec::with_capacity(bytes.len());
    for head in bytes.chunks(head.max(1)) {
        for half in 0..2 {
            halves.extend(head.chunks(row.max(1)).skip(half).step_by(2).flatten());
        }
    }
    halves
}

impl Index {
    fn parse(json: &str) -> Result<Self, LoadError> {
        #[derive(Deserialize)]
        struct Unique {
            #[serde(rename = "weight_map")]
            _weight_map: UniqueKeys,
        }
        let index = serde_json::from_str::<Unique>(json).and_then(|_| serde_json::from_str(json));
        index.map_err(|error| LoadError::malformed(INDEX, error))
    }

    /// The shards' names. Each must be a plain file name: a path could lead out of the model's folder.
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
            let real = weights.tensors.get(tensor).and_then(|entry| weights.shards.get(entry.shard));
            if real.is_none_or(|real| real.name != *shard) {
                return Err(LoadError::tensor(tensor, format!("is not in `{shard}`, as the index claims")));
            }
        }
        Ok(())
    }
}

/// Reads one of a model's JSON files, at most [`MODEL_JSON_BYTES_MAX`] bytes.
pub(super) fn read_text(path: &Path) -> Result<String, LoadError> {
    store::read_text(path, MODEL_JSON_BYTES_MAX).map_err(|error| LoadError::read(path.display(), error))
}

#[cfg(test)]
mod tests {
    use candle_core::quantized::GgmlDType;

    use super::*;

    #[test]
    fn rows_are_deinterleaved() {
        // One byte per row; two heads of six rows.
        assert_eq!(in_halves(&[0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11], 2, 1), (0..12).collect::<Vec<_>>());
    }

    /// A safetensors file with one matrix of one row.
    fn file(numbers: &[f32; 32]) -> Vec<u8> {
        let header = r#"{"w": {"dtype": "F32", "shape": [1, 32], "data_offsets": [0, 128]}}"#;
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        (header.len() as u64).to_le_bytes().into_iter().chain(header.bytes()).chain(bytes).collect()
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let check = |number: f32, dtype: Dtype, stored_dtype: bool| {
            let mut numbers = [1.0; 32];
            numbers[7] = -number;
            let bytes = file(&numbers);
            let mut weights = Weights::from_bytes(&bytes).unwrap();
            weights.set_dtype(Some(dtype));
            match weights.panels("w", 1, 32) {
                Ok(panels) => {
                    let mut row = [0.0; 32];
                    panels.unpack_row(0, &mut row);
                    assert!(stored_dtype && row[7].is_finite() && (row[7] + number).abs() <= number / 100.0, "{row:?}");
                }
                Err(error) => {
                    assert!(
                        !stored_dtype && error.to_string().contains("load the model as f32"),
                        "{number:e}: {error}"
                    );
                }
            }
        };
        check(8e6, Dtype::Q8_0, true);
        check(9e6, Dtype::Q8_0, false);
        check(3.38e38, Dtype::Bf16, true);
        check(3.4e38, Dtype::Bf16, false);
        check(f32::MAX, Dtype::F32, true);
    }

    #[test]
    fn the_type_that_each_matrix_is_stored_in() {
        let check = |requested_dtype: Option<Dtype>, name: &str, stored, inputs, stored_dtype| {
            let mut weights = Weights::empty();
            weights.set_dtype(requested_dtype);
            assert_eq!(
                weights.dtype_of(name, stored, inputs),
                stored_dtype,
                "{name}: {stored:?} as {requested_dtype:?}"
            );
        };
        let (q8, q4) = (Some(Dtype::Q8_0), Some(Dtype::Q4K));
        let [q8_0, q4_k, q6_k] = [GgmlDType::Q8_0, GgmlDType::Q4K, GgmlDType::Q6K].map(StoredType::Blocks);
        check(None, "a.in_proj.weight", StoredType::F16, 768, Dtype::F32);
        check(None, "a.in_proj.weight", StoredType::Bf16, 768, Dtype::Bf16);
        check(None, "a.in_proj.weight", q4_k, 768, Dtype::Q4K);
        check(None, "lm_head.weight", q6_k, 768, Dtype::Q8_0);
        check(q8, "a.in_proj.weight", StoredType::F32, 768, Dtype::Q8_0);
        check(q8, "a.mixer.x_proj.weight", StoredType::F32, 768, Dtype::F32);
        check(q8, "a.mixer.x_proj.weight", q8_0, 768, Dtype::Q8_0);
        check(q8, "a.mixer.dt_proj.weight", StoredType::F32, 48, Dtype::F32);
        check(q4, "a.in_proj.weight", StoredType::F32, 768, Dtype::Q4K);
        check(q4, "a.in_proj.weight", StoredType::F32, 896, Dtype::Q8_0);
        check(q4, "backbone.embeddings.weight", StoredType::F32, 768, Dtype::Q8_0);
        check(q4, "lm_head.weight", q4_k, 768, Dtype::Q4K);
        check(Some(Dtype::F32), "lm_head.weight", q4_k, 768, Dtype::F32);
    }
}
