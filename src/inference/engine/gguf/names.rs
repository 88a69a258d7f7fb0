//! Names of tensors in GGUF, from a network's list of tensors.

use std::collections::{BTreeMap, HashMap};

use super::super::error::LoadError;
use super::super::tensors::{Name, Nowhere, TensorSource, whole_norm};
use super::Gguf;
use super::header::Tensor;

/// Tensors with factors of rotary frequencies: settings, not weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum RopeFactors {
    Llama3,
    /// Of `LongRoPE`, for sequences within the trained window and beyond.
    Short,
    Long,
}

impl RopeFactors {
    pub(super) const ALL: [Self; 3] = [Self::Llama3, Self::Short, Self::Long];

    /// The tensor's name.
    pub(in super::super) fn name(self) -> &'static str {
        match self {
            Self::Llama3 => "rope_freqs.weight",
            Self::Short => "rope_factors_short.weight",
            Self::Long => "rope_factors_long.weight",
        }
    }
}

fn is_setting(tensor: &Tensor) -> bool {
    RopeFactors::ALL.iter().any(|factors| factors.name() == tensor.name)
}

/// Hugging Face's names and dims by the names in GGUF, for a network that lists its tensors. Layers are listed once per
/// kind; a name is that of the first layer that has it, with its number.
#[derive(Debug, Default)]
pub(in super::super) struct GgufNames {
    names: BTreeMap<String, (String, Vec<usize>)>,
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
    fn add(&mut self, gguf: &str, hf: &str, dims: &[usize]) {
        if !gguf.is_empty() {
            self.names.insert(pattern(gguf), (pattern(hf), dims.to_vec()));
        }
    }

    /// Hugging Face's name and dims of the tensor `gguf`, and its heads if they have rotary positions.
    fn find(&self, gguf: &str) -> Option<(String, &[usize], Option<usize>)> {
        // llama.cpp's converter writes a norm of Falcon-H1 without `.weight`.
        let named = |name: &str| self.names.get(&pattern(name));
        let (hf, dims) = named(gguf).or_else(|| named(&format!("{gguf}.weight")))?;
        let number = split_number(gguf).map_or("", |(_, number, _)| number);
        Some((hf.replacen('#', number, 1), dims, self.rotary.get(hf).copied()))
    }
}

impl TensorSource for GgufNames {
    type Storage = Nowhere;

    fn has(&self, _: &str) -> bool {
        false
    }

    fn vector(&mut self, name: Name<'_>, dims: &[usize]) -> Result<(), LoadError> {
        self.add(name.gguf, name.hf, dims);
        Ok(())
    }

    fn matrix(&mut self, name: Name<'_>, outputs: usize, inputs: usize) -> Result<(), LoadError> {
        self.add(name.gguf, name.hf, &[outputs, inputs]);
        Ok(())
    }

    fn split(&mut self, name: Name<'_>, dims: &[usize], parts: &[usize]) -> Result<Vec<()>, LoadError> {
        self.add(name.gguf, name.hf, dims);
        Ok(vec![(); parts.len()])
    }

    /// GGUF files contain the weight itself, not its difference from 1.
    fn centred_norm(&mut self, name: Name<'_>, dim: usize) -> Result<(), LoadError> {
        self.add(name.gguf, &whole_norm(name.hf), &[dim]);
        Ok(())
    }

    /// GGUF files contain the result, not the logarithm.
    fn decay(&mut self, name: Name<'_>, dims: &[usize]) -> Result<(), LoadError> {
        self.add(name.gguf, name.hf.strip_suffix("_log").unwrap_or(name.hf), dims);
        Ok(())
    }

    fn convolution(&mut self, name: Name<'_>, channels: usize, taps: usize) -> Result<(), LoadError> {
        self.add(name.gguf, name.hf, &[channels, 1, taps]);
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

/// Whether dims of more than 1 occur at most once.
fn is_vector(dims: &[usize]) -> bool {
    dims.iter().filter(|&&dim| dim > 1).count() <= 1
}

impl Gguf {
    /// The tensors under Hugging Face's names and dims. Unknown names are left unchanged. `interleaved`: the rows of
    /// rotary heads are in llama.cpp's interleaved order.
    pub(in super::super) fn tensors(&self, names: &GgufNames, interleaved: bool) -> Result<Vec<Tensor>, LoadError> {
        let tensors = self.tensors.iter().filter(|tensor| !is_setting(tensor)).cloned();
        let renamed = tensors.map(|mut tensor| {
            let Some((name, dims, heads)) = names.find(&tensor.name) else { return Ok(tensor) };
            tensor.name = name;
            // llama.cpp adds and drops dims of 1, and cuts some vectors into groups. The length of a row of a matrix is
            // kept: its blocks depend on it.
            let elements = |dims: &[usize]| dims.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim));
            if elements(dims) == elements(&tensor.dims) && (dims.last() == tensor.dims.last() || is_vector(dims)) {
                tensor.dims = dims.to_vec();
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
        for tensor in self.tensors.iter().filter(|tensor| !is_setting(tensor)) {
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
        names.add("blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight", &[8, 4]);
        names.add("output.weight", "lm_head.weight", &[9, 4]);
        names.rotary("model.layers.0.self_attn.q_proj.weight", 4);
        let found = |name: &str| names.find(name);
        assert_eq!(
            found("blk.12.attn_q.weight"),
            Some(("model.layers.12.self_attn.q_proj.weight".to_owned(), &[8, 4][..], Some(4)))
        );
        assert_eq!(found("output.weight"), Some(("lm_head.weight".to_owned(), &[9, 4][..], None)));
        assert_eq!(found("blk.12.attn_k.weight"), None);
    }
}
