use std::path::PathBuf;

use loom_kernels::{Dtype, Panels};
use proptest::prelude::*;

use super::*;
use crate::inference::engine::open::convert;
use crate::inference::engine::tokenizer::Tokenizer;
use crate::inference::engine::weights::Weights;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/gguf").join(name)
}

fn bytes_of(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap()
}

fn gguf(name: &str) -> Gguf {
    Gguf::open(&path(name)).unwrap().0
}

#[test]
fn every_type_is_widened_as_the_gguf_package_does() {
    let (gguf, bytes) = (gguf("types.gguf"), bytes_of("types.gguf"));
    let data = |name: &str| {
        let tensor = gguf.tensors.iter().find(|tensor| tensor.name == name).unwrap();
        (tensor, &bytes[tensor.begin as usize..][..tensor.bytes])
    };
    for name in ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"] {
        let (tensor, raw) = data(name);
        let (_, want) = data(&format!("{name}.f32"));
        let want: Vec<_> = want.chunks(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect();
        let near = |got: &[f32]| {
            let off = got.iter().zip(&want).map(|(got, want)| (got - want).abs()).fold(0.0, f32::max);
            assert!(off <= 1e-6, "{name}: {off}");
        };
        near(&tensor.stored.widen(raw, &tensor.dims).unwrap());
        if let Some(dtype) = tensor.stored.block_dtype() {
            let panels = Panels::from_blocks(dtype, raw, 3, 512);
            let mut rows = vec![0.0; 3 * 512];
            rows.chunks_mut(512).enumerate().for_each(|(output, row)| panels.unpack_row(output, row));
            near(&rows);
        }
    }
}

/// Quantisation error on ordinary weights, compared with candle (llama.cpp's method).
#[test]
fn our_quantisation_error_is_that_of_candle() {
    use candle_core::quantized::{GgmlDType, QTensor};
    use candle_core::{Device, Tensor};
    let stream = crate::foundation::base::RngStream::root(4);
    // About normal: sums of four uniform draws.
    let draw = |at: u64| (0..4).map(|i| stream.uniform(4 * at + i) - 0.5).sum::<f64>() as f32;
    let weight: Vec<_> = (0..16 * 1024).map(draw).collect();
    let error = |rows: &[f32]| rows.iter().zip(&weight).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
    let tensor = Tensor::from_slice(&weight, (16, 1024), &Device::Cpu).unwrap();
    for (ours, theirs) in [(Dtype::Q4K, GgmlDType::Q4K), (Dtype::Q8_0, GgmlDType::Q8_0)] {
        let panels = Panels::pack_as(ours, &weight, 16, 1024);
        let mut rows = vec![0.0; weight.len()];
        rows.chunks_mut(1024).enumerate().for_each(|(output, row)| panels.unpack_row(output, row));
        let theirs = QTensor::quantize(&tensor, theirs).unwrap().dequantize(&Device::Cpu).unwrap();
        let theirs = error(&theirs.flatten_all().unwrap().to_vec1().unwrap());
        let ratio = error(&rows) / theirs;
        println!("{ours}: squared error {ratio:.3} of candle's");
        assert!(ratio < 1.05, "{ours}: {ratio}");
    }
}

#[test]
fn a_llama_header_is_converted_to_config_files() {
    let gguf = gguf("pieces.gguf");
    let config: serde_json::Value = serde_json::from_str(&convert(&gguf).unwrap().config).unwrap();
    let expected = serde_json::json!({
        "model_type": "llama", "vocab_size": 270, "hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 64,
        "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 64,
        "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 9.999_999_747_378_752e-6,
        "hidden_act": "silu", "attention_bias": false,
    });
    assert_eq!(config, expected);
    assert_eq!(gguf.generation_config().unwrap(), r#"{"eos_token_id":[2]}"#);
    let special: serde_json::Value = serde_json::from_str(&gguf.tokenizer_config().unwrap()).unwrap();
    assert_eq!(
        special,
        serde_json::json!({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": true})
    );
    let tensors = convert(&gguf).unwrap().tensors;
    let heads = |name: &str| tensors.iter().find(|tensor| tensor.name.ends_with(name)).unwrap().interleaved;
    assert_eq!((heads("0.self_attn.q_proj.weight"), heads("0.self_attn.k_proj.weight")), (Some(2), Some(1)));
    assert_eq!(heads("model.layers.0.mlp.down_proj.weight"), None);
}

#[test]
fn keys_that_mean_none_or_are_absent_are_read_as_llama_cpp_reads_them() {
    let mut gguf = gguf("pieces.gguf");
    assert!(!gguf.keys.contains_key("llama.rope.freq_base"));
    convert(&gguf).unwrap();
    let mut config = |key: &str, value| {
        gguf.keys.insert(format!("tokenizer.ggml.{key}"), value);
        gguf.tokenizer_config()
    };
    let without_padding = config("padding_token_id", Value::Unsigned(4_294_967_295)).unwrap();
    assert!(!without_padding.contains("pad_token"), "{without_padding}");
    let error = config("padding_token_id", Value::Unsigned(4_294_967_294)).unwrap_err().to_string();
    assert!(error.contains("outside the vocabulary"), "{error}");
    assert!(config("padding_token_id", Value::Unsigned(2)).unwrap().contains(r#""pad_token":"</s>""#));
    assert!(config("add_bos_token", Value::Bool(false)).unwrap().contains(r#""add_bos_token":false"#));
}

#[test]
fn all_end_tokens_of_a_file_are_found() {
    let mut gguf = gguf("pieces.gguf");
    for (key, id) in [("eom_token_id", 9), ("eot_token_id", 7), ("padding_token_id", 4)] {
        gguf.keys.insert(format!("tokenizer.ggml.{key}"), Value::Unsigned(id));
    }
    assert_eq!(gguf.generation_config().unwrap(), r#"{"eos_token_id":[2,7,9]}"#);
    // An end that means none.
    gguf.keys.insert("tokenizer.ggml.eot_token_id".to_owned(), Value::Unsigned(4_294_967_295));
    assert_eq!(gguf.generation_config().unwrap(), r#"{"eos_token_id":[2,9]}"#);
}

#[test]
fn sentencepiece_merges_by_score_and_falls_back_to_bytes() {
    let tokenizer = Tokenizer::parse(&gguf("pieces.gguf").tokenizer().unwrap()).unwrap();
    let check = |text: &str, pieces: &[&str]| {
        let ids = tokenizer.encode(text).unwrap();
        let named: Vec<_> = pieces.iter().map(|piece| tokenizer.id_of(piece).unwrap()).collect();
        assert_eq!(ids, named, "{text}");
        assert_eq!(tokenizer.decode(&ids), text);
    };
    // `▁t` (−10) is merged before `he` (−11), and `▁the` (−12) takes both.
    check("the the", &["▁the", "▁the"]);
    check("thes", &["▁the", "s"]);
    check("hes", &["▁he", "s"]);
    check("é", &["▁", "<0xC3>", "<0xA9>"]);
    check("th", &["▁th"]);
}

#[test]
fn byte_level_merges_and_digits() {
    let plain = Tokenizer::parse(&gguf("plain.gguf").tokenizer().unwrap()).unwrap();
    let named = |tokenizer: &Tokenizer, tokens: &[&str]| {
        tokens.iter().map(|token| tokenizer.id_of(token).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(plain.encode("ring the<|end|>").unwrap(), named(&plain, &["r", "ing", "Ġthe", "<|end|>"]));
    assert_eq!(plain.decode(&plain.encode("king there").unwrap()), "king there");
    assert_eq!(plain.encode("12").unwrap(), named(&plain, &["1", "2"]));
    let config = gguf("plain.gguf").tokenizer_config().unwrap();
    assert!(config.contains("<|user|>{{ m.content }}"), "{config}");
}

/// A header with one key and one tensor, built by hand.
struct Header(Vec<u8>);

impl Header {
    fn new(version: u32, tensors: u64, keys: u64) -> Self {
        Self([b"GGUF".as_slice(), &version.to_le_bytes(), &tensors.to_le_bytes(), &keys.to_le_bytes()].concat())
    }
    fn text(mut self, text: &str) -> Self {
        self.0.extend((text.len() as u64).to_le_bytes());
        self.0.extend(text.bytes());
        self
    }
    fn u32(mut self, number: u32) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }
    fn u64(mut self, number: u64) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }
    fn tensor(self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Self {
        let header = self.text(name).u32(dims.len() as u32);
        dims.iter().fold(header, |header, &dim| header.u64(dim)).u32(kind).u64(offset)
    }
    fn check(self, length: u64, why: &str) {
        let error = Gguf::read("x.gguf", self.0.as_slice(), length).unwrap_err().to_string();
        assert!(error.starts_with("`x.gguf` is not usable: ") && error.contains(why), "expected {why:?}: {error}");
    }
}

#[test]
fn malformed_headers_are_refused() {
    let one = |tensors, keys| Header::new(3, tensors, keys);
    Header(b"GGML....".to_vec()).check(8, "does not begin with `GGUF`");
    Header(b"GG".to_vec()).check(2, "ends too early");
    Header::new(1, 0, 0).check(99, "its version is 1; supported are 2 and 3");
    Header::new(3u32.swap_bytes(), 0, 0).check(99, "big-endian");
    one(u64::MAX, 0).check(99, "it claims 18446744073709551615 tensors, more than");
    one(0, 1 << 40).check(99, "keys, more than");
    one(0, 1).u64(1 << 60).check(99, "bytes of one text, more than");
    one(0, 1).u64(1 << 20).check(99, "ends too early");
    one(0, 1).text("k").u32(9).u32(8).u64(u64::MAX).check(99, "values in one list, more than");
    one(0, 1).text("k").u32(9).u32(9).u64(1).check(99, "`k` has a value of unknown kind 9");
    one(0, 1).text("k").u32(77).check(99, "`k` has a value of unknown kind 77");
    one(0, 2).text("k").u32(4).u32(1).text("k").u32(4).u32(1).check(99, "`k` occurs twice");
    one(0, 1).text("general.alignment").u32(4).u32(12).check(99, "must be a power of two");
    one(1, 0).tensor("w", &[], 0, 0).check(99, "`w` has 0 dims");
    one(1, 0).tensor("w", &[0], 0, 0).check(99, "`w` has a dim of 0");
    one(1, 0).tensor("w", &[1 << 24; 4], 0, 0).check(99, "has an impossible size");
    one(1, 0)
        .tensor("w", &[33, 2], 8, 0)
        .check(999, "rows of Some(33) numbers, which is not a multiple of the block size");
    one(1, 0).tensor("w", &[32], 16, 0).check(999, "`w` is of ggml type 16; supported are f32, f16");
    one(1, 0).tensor("w", &[32], 0, 5).check(999, "begins at 5, which is not a multiple of 32");
    one(1, 0).tensor("w", &[32], 0, 0).check(100, "`w` ends at byte 192, but the file has 100: fetch it again");
    let two = one(2, 0).tensor("v", &[32], 0, 0).tensor("w", &[8], 0, 96);
    two.check(9999, "`w` overlaps another tensor");
    one(2, 0).tensor("w", &[32], 0, 0).tensor("w", &[32], 0, 128).check(9999, "`w` occurs twice");
}

/// Everything that reads a header, on `bytes`: an error or not, but no panic.
fn read_all(bytes: &[u8]) {
    if let Ok(gguf) = Gguf::read("x.gguf", bytes, bytes.len() as u64) {
        let tokenizer = gguf.tokenizer();
        drop((gguf.generation_config(), gguf.tokenizer_config(), convert(&gguf).ok()));
        if let Ok(tokenizer) = tokenizer {
            drop(Tokenizer::parse(&tokenizer));
        }
    }
}

/// `bytes` with some of the first `among` changed, perhaps cut.
fn damaged(bytes: Vec<u8>, among: usize) -> impl Strategy<Value = Vec<u8>> {
    let edits = proptest::collection::vec((0..among, prop_oneof![any::<u8>(), Just(0), Just(255)]), 1..6);
    (edits, proptest::option::of(0..among)).prop_map(move |(edits, cut)| {
        let mut bytes = bytes.clone();
        for (at, byte) in edits {
            bytes[at] = byte;
        }
        bytes.truncate(cut.unwrap_or(bytes.len()));
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_gguf_header_never_panics(
        plain in damaged(bytes_of("plain.gguf"), 2500), pieces in damaged(bytes_of("pieces.gguf"), 9000),
    ) {
        read_all(&plain);
        read_all(&pieces);
    }

    #[test]
    fn a_damaged_safetensors_header_never_panics(
        bytes in damaged(std::fs::read(path("../mamba/plain/model.safetensors")).unwrap(), 2200),
    ) {
        if let Ok(mut weights) = Weights::from_bytes(&bytes) {
            drop(weights.take("backbone.norm_f.weight", &[24]));
            drop(weights.panels("backbone.layers.0.mixer.in_proj.weight", 96, 24));
        }
    }
}
