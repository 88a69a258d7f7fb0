//! Converts a GGUF file's keys to `config.json` and `generation_config.json`.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use serde_json::{Map, Value as Json, json};

use super::super::error::LoadError;
use super::Gguf;
use super::names::RopeFactors;
use super::vocabulary::NO_TOKEN;

/// The fields of a `config.json` that is being made.
#[derive(Default)]
pub(in super::super) struct ConfigFields(Map<String, Json>);

impl ConfigFields {
    /// Sets the field `name`, if there is a value.
    pub(in super::super) fn set(&mut self, name: &str, value: Option<impl Into<Json>>) {
        if let Some(value) = value {
            self.0.insert(name.to_owned(), value.into());
        }
    }
}

impl Gguf {
    /// `general.architecture`.
    pub(in super::super) fn architecture(&self) -> Result<&str, LoadError> {
        let key = "general.architecture";
        self.need(key, self.text(key)?)
    }

    /// The architecture and its dimensions, as the `config.json` of `model_type`; `family` sets the fields that are the
    /// family's own.
    pub(in super::super) fn config(
        &self,
        model_type: &str,
        family: fn(&Self, &mut ConfigFields) -> Result<(), LoadError>,
    ) -> Result<String, LoadError> {
        let architecture = self.architecture()?;
        let mut config = ConfigFields::default();
        config.set("model_type", Some(model_type));
        let embedding = self.tensors.iter().find(|tensor| tensor.name == "token_embd.weight");
        let vocabulary = embedding.and_then(|tensor| tensor.dims.first().copied());
        config.set("vocab_size", Some(self.need("token_embd.weight", vocabulary)?));
        config.set("hidden_size", self.number(&format!("{architecture}.embedding_length"))?);
        config.set("num_hidden_layers", self.number(&format!("{architecture}.block_count"))?);
        config.set("tie_word_embeddings", Some(!self.tensors.iter().any(|tensor| tensor.name == "output.weight")));
        config.set("bos_token_id", self.number("tokenizer.ggml.bos_token_id")?);
        config.set("eos_token_id", self.number("tokenizer.ggml.eos_token_id")?);
        family(self, &mut config)?;
        Ok(Json::Object(config.0).to_string())
    }

    /// The end tokens, as `generation_config.json`.
    pub(in super::super) fn generation_config(&self) -> Result<String, LoadError> {
        let mut ends = Vec::new();
        for key in ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"] {
            ends.extend(self.number(key)?.filter(|&id| id != NO_TOKEN));
        }
        ends.sort_unstable();
        ends.dedup();
        Ok(if ends.is_empty() { json!({}) } else { json!({ "eos_token_id": ends }) }.to_string())
    }

    /// Reads the frequency factors, if the file has them.
    pub(super) fn read_rope_factors(&mut self, mut file: &File) -> Result<(), LoadError> {
        for kind in RopeFactors::ALL {
            let Some(tensor) = self.tensors.iter().find(|tensor| tensor.name == kind.name()) else { continue };
            let mut bytes = Vec::new();
            let read = file.seek(SeekFrom::Start(tensor.begin));
            let read = read.and_then(|_| file.take(tensor.bytes as u64).read_to_end(&mut bytes));
            read.map_err(|error| LoadError::read(&self.file, error))?;
            let factors = tensor.stored.widen(&bytes, &tensor.dims).map_err(|error| self.malformed(error))?;
            self.rope_factors.insert(kind, factors);
        }
        Ok(())
    }
}
