//! GGUF files (github.com/ggml-org/ggml, docs/gguf.md): one file with weights, tokenizer, template and settings. It is
//! converted to the files of a folder in Hugging Face's layout, so that no other module depends on GGUF:
//!
//! | | |
//! |---|---|
//! | `header` | parses and checks keys and tensors, with limits; knows no model |
//! | `config` | keys → `config.json` (the families' own fields come from `models/`), `generation_config.json` |
//! | `vocabulary` | keys → `tokenizer.json`, `tokenizer_config.json` |
//! | `names` | tensors → Hugging Face's names and dims, which follow from a network's list of tensors |

pub(super) mod config;
mod header;
pub(super) mod names;
mod vocabulary;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

pub(super) use self::header::Tensor;
use self::header::Value;
use self::names::RopeFactors;
use super::error::LoadError;
use crate::foundation::store::open_regular;

/// A GGUF file's header.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Gguf {
    /// The file's name, for messages.
    file: String,
    keys: BTreeMap<String, Value>,
    tensors: Vec<Tensor>,
    /// Factors of rotary frequencies that the file has.
    rope_factors: BTreeMap<RopeFactors, Vec<f32>>,
}

impl Gguf {
    /// Reads the header of the file at `path`.
    pub(super) fn open(path: &Path) -> Result<(Self, File), LoadError> {
        let failed = |error: std::io::Error| LoadError::read(path.display(), error);
        let file = open_regular(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut gguf = Self::read(&name, BufReader::new(&file), length)?;
        gguf.read_rope_factors(&file)?;
        Ok((gguf, file))
    }

    /// Parses the header at the beginning of a file of `length` bytes.
    pub(super) fn read(name: &str, source: impl Read, length: u64) -> Result<Self, LoadError> {
        let (keys, tensors) =
            header::read(source, length).map_err(|why| LoadError::malformed(name, why.to_string()))?;
        Ok(Self { file: name.to_owned(), keys, tensors, rope_factors: BTreeMap::new() })
    }

    #[expect(clippy::needless_pass_by_value, reason = "callers hand over texts and other errors alike")]
    pub(super) fn malformed(&self, why: impl ToString) -> LoadError {
        LoadError::malformed(&self.file, why.to_string())
    }

    /// The string under `key`.
    pub(super) fn text(&self, key: &str) -> Result<Option<&str>, LoadError> {
        self.get(key, "a text", |value| match value {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The integer under `key`.
    pub(super) fn number(&self, key: &str) -> Result<Option<u64>, LoadError> {
        self.get(key, "a whole number", |value| match value {
            Value::Unsigned(number) => Some(*number),
            Value::Signed(number) => u64::try_from(*number).ok(),
            _ => None,
        })
    }

    /// The integers under `key`: a list, or one.
    pub(super) fn numbers(&self, key: &str) -> Result<Option<Vec<u64>>, LoadError> {
        let whole = |value: &Value| match value {
            Value::Unsigned(number) => Some(*number),
            Value::Signed(number) => u64::try_from(*number).ok(),
            _ => None,
        };
        self.get(key, "whole numbers", |value| match value {
            Value::List(values) => values.iter().map(whole).collect(),
            one => whole(one).map(|one| vec![one]),
        })
    }

    /// The number under `key`.
    pub(super) fn float(&self, key: &str) -> Result<Option<f64>, LoadError> {
        self.get(key, "a number", |value| match value {
            Value::Float(number) => Some(*number),
            _ => None,
        })
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, LoadError> {
        self.get(key, "true or false", |value| match value {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        })
    }

    /// Whether there is a tensor whose name ends with `suffix`.
    pub(super) fn has_tensor_ending(&self, suffix: &str) -> bool {
        self.tensors.iter().any(|tensor| tensor.name.ends_with(suffix))
    }

    /// Factors of rotary frequencies, if the file has them.
    pub(super) fn rope_factors(&self, kind: RopeFactors) -> Option<&[f32]> {
        self.rope_factors.get(&kind).map(Vec::as_slice)
    }

    fn list(&self, key: &str) -> Result<Option<&[Value]>, LoadError> {
        self.get(key, "a list", |value| match value {
            Value::List(values) => Some(values.as_slice()),
            _ => None,
        })
    }

    fn get<'a, T>(
        &'a self,
        key: &str,
        kind: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, LoadError> {
        match self.keys.get(key) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| self.malformed(format!("`{key}` is not {kind}"))),
        }
    }

    /// A required value.
    pub(super) fn need<T>(&self, key: &str, value: Option<T>) -> Result<T, LoadError> {
        value.ok_or_else(|| self.malformed(format!("`{key}` is missing")))
    }
}

#[cfg(test)]
mod tests;
