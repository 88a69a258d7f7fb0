//! Falcon Mamba (Zuo et al. 2024, arXiv:2410.05355): a Mamba-1 that normalises the low rank of Δ, B and C.

use super::super::family::{Family, boxed};
use super::mamba::parse_config;

/// Falcon Mamba. In GGUF it is a `mamba` with a flag (`mamba.rs`).
pub(super) const FAMILY: Family =
    Family { model_type: "falcon_mamba", parse: |json| parse_config(json, Some(1e-6)).map(boxed), gguf: None };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explicit_width_overrides_the_computed_one() {
        let json = r#"{"model_type": "falcon_mamba", "vocab_size": 65024, "hidden_size": 4096, "num_hidden_layers": 64,
            "expand": 16, "intermediate_size": 8192}"#;
        let config = parse_config(json, Some(1e-6)).unwrap();
        assert_eq!((config.d_inner, config.mixer_norms), (8192, Some(1e-6)));
    }
}
