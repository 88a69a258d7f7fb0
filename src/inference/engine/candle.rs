//! The second provider: networks of candle-transformers (<https://github.com/huggingface/candle>) behind the contract of
//! [`Architecture`], for families that have no native implementation, and to compare native ones with. It is used only
//! where the user names it (`candle:local:DIR`).
//!
//! | Part | Here |
//! |---|---|
//! | log-probabilities | log-softmax of candle's logits in f32, as natively |
//! | rows | most of candle's networks return the last row only: rows that are needed are read token by token |
//! | forks | a copy where candle's cache is a value; where copies would share it, the ids are read again |
//! | batches | sequences are read one after another |
//! | bits | depend on how a sequence was read (at once, token by token); natively they do not |
//! | window | at most the sliding window, because candle's masks ignore it for cached tokens |
//! | weights | f32; from safetensors |
//!
//! Families are a table in `candle/families.rs`; `candle/fields.rs` converts a `config.json` to the fields that candle
//! expects; `candle/tensors.rs` lists and loads the tensors that a network asks for.

mod families;
mod fields;
mod tensors;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use candle_core::{Device as CandleDevice, Tensor};
use serde::Deserialize;

use self::families::{CandleFamily, find};
use self::fields::Fields;
use self::tensors::{Listed, Loaded};
use super::architecture::{Architecture, Segment};
use super::error::LoadError;
use super::family::ModelDescription;
use super::gguf::names::GgufNames;
use super::launch::Launch;
use super::logit_query::Scratch;
use super::network::{HasSize, ModelSize, SequenceMemory};
use super::shared::Shared;
use super::weights::Weights;
use crate::foundation::chat::TokenId;

pub(super) use self::families::has;

/// The name of the provider, with what does not hold there, for transcripts.
pub(super) const DESCRIPTION: &str =
    "candle-transformers 0.11; bits depend on how a sequence is read, and there are no gains on Δ";

/// A network of candle with its cache for one sequence.
trait Reader: Send + Sync {
    /// Reads `ids`, `[1, tokens]`, after `position` tokens. Returns the logits after the last one.
    fn read(&mut self, ids: &Tensor, position: usize) -> candle_core::Result<Tensor>;

    /// A copy that shares no cache with this one; `None` if there is none.
    fn copy(&self) -> Option<Box<dyn Reader>>;
}

/// A model that candle implements, by its configuration.
pub(super) struct CandleDescription {
    family: &'static CandleFamily,
    fields: Fields,
    /// The tensors that candle asks for.
    listed: Listed,
}

#[derive(Deserialize)]
struct Header {
    model_type: Option<String>,
}

/// The model that a `config.json` describes.
pub(super) fn parse(json: &str) -> Result<CandleDescription, LoadError> {
    let kind: Header = serde_json::from_str(json).map_err(|error| LoadError::malformed("config.json", error))?;
    let family = find(&kind.model_type.unwrap_or_default())?;
    let fields = Fields::parse(json, &family.expected)?;
    let listed = Listed::new(family, &fields)?;
    Ok(CandleDescription { family, fields, listed })
}

impl HasSize for CandleDescription {
    fn size(&self) -> Result<ModelSize, LoadError> {
        Ok(ModelSize {
            layers: self.fields.layers(),
            vocabulary: self.fields.vocabulary(),
            window: self.window(),
            memory: self.memory(),
            parameters: self.listed.count()?,
        })
    }
}

impl CandleDescription {
    fn window(&self) -> Option<usize> {
        self.fields.window()
    }

    fn memory(&self) -> SequenceMemory {
        (self.family.memory)(&self.fields)
    }

    /// The network with the tensors of `weights`.
    fn network(self, weights: &mut Weights<'_>) -> Result<CandleNetwork, LoadError> {
        let loaded = Loaded::new(&self.listed, &self.fields, weights)?;
        let first = build(self.family, &self.fields, &loaded)?;
        Ok(CandleNetwork { description: self, loaded, first, fault: Mutex::new(None) })
    }
}

impl ModelDescription for CandleDescription {
    fn gguf_names(&self) -> Result<GgufNames, LoadError> {
        Ok(GgufNames::default())
    }

    fn launch(self: Box<Self>, launch: Launch<'_, '_>) -> Result<Shared, LoadError> {
        launch.run_candle(|weights| self.network(weights))
    }
}

fn build(family: &CandleFamily, fields: &Fields, loaded: &Loaded) -> Result<Box<dyn Reader>, LoadError> {
    guarded(|| (family.build)(fields, loaded.builder())).map_err(|why| LoadError::malformed("config.json", why))
}

/// Calls candle. A panic there is an error here: its constructors and kernels panic on some dims.
fn guarded<T>(call: impl FnOnce() -> candle_core::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(done) => done.map_err(|error| format!("candle: {}", error.to_string().lines().next().unwrap_or_default())),
        Err(_) => Err("candle panicked; its message is above".to_owned()),
    }
}

/// A network of candle on the CPU.
pub(super) struct CandleNetwork {
    description: CandleDescription,
    loaded: Loaded,
    /// A reader that has read nothing.
    first: Box<dyn Reader>,
    fault: Mutex<Option<String>>,
}

/// State of a sequence.
pub(super) struct CandleState {
    /// `None` before the first token, and in a fork that has to read its ids again.
    reader: Option<Box<dyn Reader>>,
    /// The tokens read.
    ids: Vec<TokenId>,
    /// The logits after the last one.
    last: Vec<f32>,
}

impl Clone for CandleState {
    fn clone(&self) -> Self {
        let reader = self.reader.as_ref().and_then(|reader| reader.copy());
        Self { reader, ids: self.ids.clone(), last: self.last.clone() }
    }
}

impl CandleNetwork {
    /// A reader that has read `ids`.
    fn reader(&self, ids: &[TokenId]) -> Result<Box<dyn Reader>, String> {
        let mut reader = match self.first.copy() {
            Some(reader) => reader,
            None => build(self.description.family, &self.description.fields, &self.loaded)
                .map_err(|error| error.to_string())?,
        };
        if !ids.is_empty() {
            self.read_piece(reader.as_mut(), ids, 0)?;
        }
        Ok(reader)
    }

    /// Reads `ids` after `position` tokens: at once if candle's mask allows it, else one by one. Returns the logits after
    /// the last one.
    fn read_piece(&self, reader: &mut dyn Reader, ids: &[TokenId], position: usize) -> Result<Vec<f32>, String> {
        let at_once = position == 0 || self.description.family.reads_on;
        let mut logits = Err("there is nothing to read".to_owned());
        let mut position = position;
        for piece in ids.chunks(if at_once { ids.len().max(1) } else { 1 }) {
            logits = guarded(|| {
                let piece = Tensor::new(piece, &CandleDevice::Cpu)?.unsqueeze(0)?;
                reader.read(&piece, position)?.flatten_all()?.to_vec1::<f32>()
            });
            if logits.is_err() {
                break;
            }
            position += piece.len();
        }
        logits
    }

    /// Reads a segment and appends its requested rows to `logits`.
    fn read_segment(&self, segment: &mut Segment<'_, CandleState>, logits: &mut Vec<f32>) -> Result<(), String> {
        let state = &mut *segment.state;
        let mut reader = match state.reader.take() {
            Some(reader) => reader,
            None => self.reader(&state.ids)?,
        };
        let mut rest = segment.ids;
        while !rest.is_empty() {
            let read = segment.ids.len() - rest.len();
            // Up to the next row that is needed.
            let next = segment.logits.clone().find(|&row| row >= read);
            let len = next.map_or(rest.len(), |row| row + 1 - read);
            let piece = rest.split_off(..len).unwrap_or_default();
            state.last = self.read_piece(reader.as_mut(), piece, state.ids.len())?;
            state.ids.extend_from_slice(piece);
            if next.is_some() {
                logits.extend_from_slice(&state.last);
            }
        }
        state.reader = Some(reader);
        Ok(())
    }
}

impl Architecture for CandleNetwork {
    type State = CandleState;

    fn layers(&self) -> usize {
        self.description.fields.layers()
    }

    fn has_delta(&self) -> bool {
        false
    }

    fn vocabulary(&self) -> usize {
        self.description.fields.vocabulary()
    }

    fn window(&self) -> Option<usize> {
        self.description.window()
    }

    fn state_bytes(&self, tokens: usize) -> usize {
        let SequenceMemory { state, cache_per_token } = self.description.memory();
        let numbers = (state as usize).saturating_add((cache_per_token as usize).saturating_mul(tokens));
        size_of::<f32>() * numbers.saturating_add(self.vocabulary()) + size_of::<TokenId>() * tokens
    }

    fn start(&self) -> CandleState {
        CandleState { reader: None, ids: Vec::new(), last: Vec::new() }
    }

    fn forward(&self, batch: &mut [Segment<'_, CandleState>], scratch: &mut Scratch) {
        scratch.logits.clear();
        let mut end = 0;
        for segment in batch {
            end += segment.logits.len() * self.vocabulary();
            if let Err(why) = self.read_segment(segment, &mut scratch.logits) {
                self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
            }
            // A row that could not be read is not a distribution.
            scratch.logits.resize(end, f32::NAN);
        }
    }

    fn next(&self, state: &CandleState, logits: &mut Vec<f32>) {
        logits.clone_from(&state.last);
    }

    fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn provider(&self) -> Option<&'static str> {
        Some(DESCRIPTION)
    }
}
