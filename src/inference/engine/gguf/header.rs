//! The header of a GGUF file: key-value pairs, and locations of tensors. All of it is untrusted: no allocation is sized
//! by a claimed length, and locations outside the file are refused.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use crate::foundation::base::limits::{
    GGUF_HEADER_BYTES_MAX, GGUF_KEYS_MAX, GGUF_TENSORS_MAX, GGUF_VALUES_MAX, MODEL_DIM_MAX,
};
use crate::inference::engine::stored_type::StoredType;

/// Maximum number of dimensions of a GGUF tensor.
const DIMS_MAX: u32 = 4;
/// Default alignment of tensors.
const ALIGNMENT: u64 = 32;
/// Largest accepted alignment.
const ALIGNMENT_MAX: u64 = 1 << 16;

/// A tensor as in the header, or under Hugging Face's name (from [`Gguf::tensors`]).
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct Tensor {
    pub(in super::super) name: String,
    /// Slowest dimension first.
    pub(in super::super) dims: Vec<usize>,
    pub(in super::super) stored: StoredType,
    /// Offset from the beginning of the file.
    pub(in super::super) begin: u64,
    pub(in super::super) bytes: usize,
    /// Number of heads, if the rows of each head are in llama.cpp's interleaved rotary order.
    pub(in super::super) interleaved: Option<usize>,
}

/// A value of the header.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    /// Elements have one type and are not lists.
    List(Vec<Value>),
}

/// Why a header cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub(super) enum HeaderError {
    #[error("it ends too early, within its header: fetch it again")]
    Short,
    #[error("its header cannot be read: {0}")]
    Io(std::io::Error),
    #[error("it does not begin with `GGUF`: this is not a GGUF file")]
    Magic,
    #[error("its version is {0}; supported are 2 and 3")]
    Version(u32),
    #[error("it is in big-endian order, which is not supported: convert it")]
    BigEndian,
    #[error("it claims {claimed} {what}, more than {most}")]
    TooMany { what: &'static str, claimed: u64, most: u64 },
    #[error("its header is longer than {GGUF_HEADER_BYTES_MAX} bytes")]
    TooLong,
    #[error("`{0}` occurs twice")]
    Twice(String),
    #[error("`{key}` has a value of unknown kind {kind}")]
    Kind { key: String, kind: u32 },
    #[error("a text in it is not UTF-8")]
    Utf8,
    #[error("`general.alignment` must be a power of two from 8 to {ALIGNMENT_MAX}")]
    Alignment,
    #[error("tensor `{name}` {why}")]
    Tensor { name: String, why: String },
}

type Parsed<T> = Result<T, HeaderError>;

/// Parses keys and tensors of a file of `length` bytes.
pub(super) fn read(source: impl Read, length: u64) -> Parsed<(BTreeMap<String, Value>, Vec<Tensor>)> {
    let mut header = Reader { source, read: 0, values: 0 };
    if header.bytes::<4>()? != *b"GGUF" {
        return Err(HeaderError::Magic);
    }
    match header.u32()? {
        2 | 3 => {}
        version if matches!(version.swap_bytes(), 1..=3) => return Err(HeaderError::BigEndian),
        version => return Err(HeaderError::Version(version)),
    }
    let tensor_count = header.count("tensors", GGUF_TENSORS_MAX as u64)?;
    let key_count = header.count("keys", GGUF_KEYS_MAX as u64)?;
    let mut keys = BTreeMap::new();
    for _ in 0..key_count {
        let key = header.text()?;
        let kind = header.u32()?;
        let value = header.value(&key, kind)?;
        if keys.insert(key.clone(), value).is_some() {
            return Err(HeaderError::Twice(key));
        }
    }
    let alignment = match keys.get("general.alignment") {
        None => ALIGNMENT,
        Some(Value::Unsigned(value)) if value.is_power_of_two() && (8..=ALIGNMENT_MAX).contains(value) => *value,
        Some(_) => return Err(HeaderError::Alignment),
    };
    let mut tensors = Vec::new();
    let mut names = BTreeSet::new();
    for _ in 0..tensor_count {
        let tensor = header.tensor(alignment)?;
        if !names.insert(tensor.name.clone()) {
            return Err(HeaderError::Twice(tensor.name));
        }
        tensors.push(tensor);
    }
    let data = header.read.next_multiple_of(alignment);
    for tensor in &mut tensors {
        tensor.begin = tensor.begin.saturating_add(data);
    }
    check(&tensors, length)?;
    Ok((keys, tensors))
}

/// Checks that every tensor is inside the file and none overlaps.
fn check(tensors: &[Tensor], length: u64) -> Parsed<()> {
    let mut order: Vec<_> = tensors.iter().collect();
    order.sort_by_key(|tensor| tensor.begin);
    let mut free = 0;
    for tensor in order {
        let wrong = |why: String| HeaderError::Tensor { name: tensor.name.clone(), why };
        if tensor.begin < free {
            return Err(wrong("overlaps another tensor".to_owned()));
        }
        free = tensor.begin.saturating_add(tensor.bytes as u64);
        if free > length {
            return Err(wrong(format!("ends at byte {free}, but the file has {length}: fetch it again")));
        }
    }
    Ok(())
}

struct Reader<R> {
    source: R,
    read: u64,
    values: u64,
}

impl<R: Read> Reader<R> {
    fn bytes<const N: usize>(&mut self) -> Parsed<[u8; N]> {
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes).map_err(HeaderError::of)?;
        self.advance(N as u64)?;
        Ok(bytes)
    }

    fn advance(&mut self, bytes: u64) -> Parsed<()> {
        self.read += bytes;
        if self.read > GGUF_HEADER_BYTES_MAX { Err(HeaderError::TooLong) } else { Ok(()) }
    }

    fn u32(&mut self) -> Parsed<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Parsed<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn count(&mut self, what: &'static str, most: u64) -> Parsed<u64> {
        match self.u64()? {
            claimed if claimed > most => Err(HeaderError::TooMany { what, claimed, most }),
            count => Ok(count),
        }
    }

    fn text(&mut self) -> Parsed<String> {
        let length = self.count("bytes of one text", GGUF_HEADER_BYTES_MAX)?;
        let mut text = Vec::new();
        // Grows with the bytes actually read.
        let read = self.source.by_ref().take(length).read_to_end(&mut text).map_err(HeaderError::of)? as u64;
        self.advance(read)?;
        if read < length {
            return Err(HeaderError::Short);
        }
        String::from_utf8(text).map_err(|_| HeaderError::Utf8)
    }

    /// A value of type `kind` (`gguf_metadata_value_type`).
    fn value(&mut self, key: &str, kind: u32) -> Parsed<Value> {
        const LIST: u32 = 9;
        if kind != LIST {
            return self.scalar(key, kind);
        }
        let kind = self.u32()?;
        let count = self.count("values in one list", GGUF_VALUES_MAX)?;
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(self.scalar(key, kind)?);
        }
        Ok(Value::List(values))
    }

    fn scalar(&mut self, key: &str, kind: u32) -> Parsed<Value> {
        self.values += 1;
        if self.values > GGUF_VALUES_MAX {
            return Err(HeaderError::TooMany { what: "values", claimed: self.values, most: GGUF_VALUES_MAX });
        }
        Ok(match kind {
            0 => Value::Unsigned(u64::from(u8::from_le_bytes(self.bytes()?))),
            1 => Value::Signed(i64::from(i8::from_le_bytes(self.bytes()?))),
            2 => Value::Unsigned(u64::from(u16::from_le_bytes(self.bytes()?))),
            3 => Value::Signed(i64::from(i16::from_le_bytes(self.bytes()?))),
            4 => Value::Unsigned(u64::from(self.u32()?)),
            5 => Value::Signed(i64::from(i32::from_le_bytes(self.bytes()?))),
            6 => Value::Float(f64::from(f32::from_le_bytes(self.bytes()?))),
            7 => Value::Bool(self.bytes::<1>()? != [0]),
            8 => Value::Text(self.text()?),
            10 => Value::Unsigned(self.u64()?),
            11 => Value::Signed(i64::from_le_bytes(self.bytes()?)),
            12 => Value::Float(f64::from_le_bytes(self.bytes()?)),
            _ => return Err(HeaderError::Kind { key: key.to_owned(), kind }),
        })
    }

    /// A tensor's entry; `begin` is still relative to the end of the header.
    fn tensor(&mut self, alignment: u64) -> Parsed<Tensor> {
        let name = self.text()?;
        let wrong = |why: String| HeaderError::Tensor { name: name.clone(), why };
        let count = self.u32()?;
        if !(1..=DIMS_MAX).contains(&count) {
            return Err(wrong(format!("has {count} dims; supported are 1 to {DIMS_MAX}")));
        }
        let mut dims = Vec::new();
        for _ in 0..count {
            match self.u64()? {
                dim if (1..=MODEL_DIM_MAX as u64).contains(&dim) => dims.push(dim as usize),
                dim => return Err(wrong(format!("has a dim of {dim}; it must be in 1..={MODEL_DIM_MAX}"))),
            }
        }
        let kind = self.u32()?;
        let begin = self.u64()?;
        let stored = StoredType::of_gguf(kind).ok_or_else(|| {
            wrong(format!("is of ggml type {kind}; supported are f32, f16, bf16, Q4_0 to Q8_0 and Q2_K to Q6_K"))
        })?;
        // The file stores the fastest dimension first.
        let row = dims.first().and_then(|&width| stored.row_bytes(width));
        let row = row.ok_or_else(|| {
            wrong(format!("has rows of {:?} numbers, which is not a multiple of the block size", dims.first()))
        })?;
        let rows = dims.iter().skip(1).try_fold(1usize, |rows, &dim| rows.checked_mul(dim));
        let bytes = rows.and_then(|rows| rows.checked_mul(row));
        let bytes = bytes.ok_or_else(|| wrong("has an impossible size".to_owned()))?;
        if !begin.is_multiple_of(alignment) {
            return Err(wrong(format!("begins at {begin}, which is not a multiple of {alignment}")));
        }
        dims.reverse();
        Ok(Tensor { name, dims, stored, begin, bytes, interleaved: None })
    }
}

impl HeaderError {
    fn of(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::UnexpectedEof { Self::Short } else { Self::Io(error) }
    }
}
