//! Names of tensors in GGUF, from a network's list of tensors.

use std::collections::{BTreeMap, HashMap};

use super::super::error::LoadError;
use super::super::tensors::{Name, Nowhere, TensorSource};
use super::Gguf;
use super::header::Tensor;

/// `RoPE` frequency factors of Llama 3: a setting, not a weight.
pub(in super::super) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Hugging Face's names by those in GGUF, for a network that lists its tensors. Layers are listed once per kind; a name
/// is that of the first layer that has it, with its number.
#[derive(Debug, Default)]
pub(in super::super) struct GgufNames {
    names: BTreeMap<String, String>,
    /// Heads with rotary positions, by Hugging Face's name.
    rotary: HashMap<String, usize>,
}

/// A number in a name: everything before it, the number, everything after it.
fn split_number(name: &str) -> Option<(&str, &str, &str)> {
    let at = name.find(|c: char| c.is_ascii_digit()).filter(|at| name.get(..*at).is_some_and(|s| s.ends_with('.')))?;
    let (before, rest) = name.split_at(at);
    let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
    Some((before, number, after))
}

/// The name with `#` for the number of its layer.
fn pattern(name: &str) -> String {
    split_number(name).map_or_else(|| name.to_owned(), |(before, _, after)| format!("{before}#{after}"))
}

impl GgufNames {
    fn add(&mut self, gguf: &str, hf: &str) {
        if !gguf.is_empty() {
            self.names.insert(pattern(gguf), pattern(hf));
        }
    }

    /// Hugging Face's name of the tensor `gguf`, and its heads if they have rotary positions.
    fn find(&self, gguf: &str) -> Option<(String, Option<usize>)> {
        let hf = self.names.get(&pattern(gguf))?;
        let number = split_number(gguf).map_or("", |(_, number, _)| number);
        Some((hf.replacen('#', number, 1), self.rotary.get(hf).copied()))
    }
}

impl TensorSource for GgufNames {
    type Storage = Nowhere;

    fn has(&self, _: &str) -> bool {
        false
    }

    fn vector(&mut self, name: Name<'_>, _: &[usize]) -> Result<(), LoadError> {
        self.add(name.gguf, name.hf);
        Ok(())
    }

    fn matrix(&mut self, name: Name<'_>, _: usize, _: usize) -> Result<(), LoadError> {
        self.add(name.gguf, name.hf);
        Ok(())
    }

    /// GGUF files contain the result, not the logarithm.
    fn decay(&mut self, name: Name<'_>, _: &[usize]) -> Result<(), LoadError> {
        self.add(name.gguf, name.hf.strip_suffix("_log").unwrap_or(name.hf));
        Ok(())
    }

    fn convolution(&mut self, name: Name<'_>, _: usize, _: usize) -> Result<(), LoadError> {
        self.add(name.gguf, name.hf);
        Ok(())
    }

    fn rotary(&mut self, name: &str, heads: usize) {
        self.rotary.insert(pattern(name), heads);
    }

    fn tied_head(&mut self, _: Name<'_>, _: Name<'_>, _: &[usize]) -> Result<(), LoadError> {
        Ok(())
    }

    fn unused(&mut self, _: Name<'_>, _: &[usize]) -> Result<(), LoadError> {
        Ok(())
    }
}

impl Gguf {
    /// The tensors under Hugging Face's names and dims. Unknown names are left unchanged. `interleaved`: the rows of
    /// rotary heads are in llama.cpp's interleaved order.
    pub(in super::super) fn tensors(&self, names: &GgufNames, interleaved: bool) -> Result<Vec<Tensor>, LoadError> {
        let tensors = self.tensors.iter().filter(|tensor| tensor.name != ROPE_FACTORS).cloned();
        let renamed = tensors.map(|mut tensor| {
            let Some((name, heads)) = names.find(&tensor.name) else { return Ok(tensor) };
            tensor.name = name;
            if let ([channels, taps], true) = (tensor.dims.as_slice(), tensor.name.ends_with("conv1d.weight")) {
                tensor.dims = vec![*channels, 1, *taps];
            }
            if let Some(heads) = heads.filter(|_| interleaved) {
                let rows = tensor.dims.first().copied().unwrap_or(0);
                if heads == 0 || !rows.is_multiple_of(2 * heads) {
                    let why = format!("has {rows} rows, which is not a multiple of twice its {heads} heads");
                    return Err(LoadError::tensor(&tensor.name, why));
                }
                tensor.interleaved = Some(heads);
            }
            Ok(tensor)
        });
        renamed.collect()
    }

    /// The type that matrices would be packed as if none is requested: the one that most bytes are stored in.
    pub(in super::super) fn stored_dtype(&self) -> Option<loom_kernels::Dtype> {
        let mut bytes = BTreeMap::<_, usize>::new();
        for tensor in self.tensors.iter().filter(|tensor| tensor.name != ROPE_FACTORS) {
            *bytes.entry(tensor.stored.kernel_dtype()).or_default() += tensor.bytes;
        }
        bytes.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(dtype, _)| dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_layers_are_carried_over() {
        let mut names = GgufNames::default();
        names.add("blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight");
        names.add("output.weight", "lm_head.weight");
        names.rotary("model.layers.0.self_attn.q_proj.weight", 4);
        let found = |name: &str| names.find(name);
        assert_eq!(
            found("blk.12.attn_q.weight"),
            Some(("model.layers.12.self_attn.q_proj.weight".to_owned(), Some(4)))
        );
        assert_eq!(found("output.weight"), Some(("lm_head.weight".to_owned(), None)));
        assert_eq!(found("blk.12.attn_k.weight"), None);
    }
}
