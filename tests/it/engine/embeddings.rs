//! The sentence embedder: parity with `transformers`, and independence of other texts and threads.

use std::path::Path;

use loom_agent::foundation::chat::{Embedder, ModelError};
use loom_agent::inference::engine::{EngineOptions, LocalEmbedder};
use loom_agent::inference::providers::{OpenOptions, open_embedder};
use serde::Deserialize;

use super::{block_on, fixture};

#[derive(Deserialize)]
struct Expected {
    texts: Vec<String>,
    embeddings: Vec<Vec<f32>>,
}

impl Expected {
    fn of(path: &Path) -> Self {
        serde_json::from_str(&std::fs::read_to_string(path.join("expected.json")).unwrap()).unwrap()
    }

    fn texts(&self) -> Vec<&str> {
        self.texts.iter().map(String::as_str).collect()
    }
}

fn open(path: &Path, threads: usize) -> LocalEmbedder {
    LocalEmbedder::from_dir(path, &EngineOptions { threads: Some(threads), ..EngineOptions::default() }).unwrap()
}

fn bits(vectors: &[Vec<f32>]) -> Vec<Vec<u32>> {
    vectors.iter().map(|vector| vector.iter().map(|x| x.to_bits()).collect()).collect()
}

pub(super) fn check(path: &Path) {
    let expected = Expected::of(path);
    let vectors = block_on(open(path, 2).embed(&expected.texts())).unwrap();
    assert_eq!(vectors.len(), expected.embeddings.len());
    let mut worst = 0f32;
    for (got, want) in vectors.iter().zip(&expected.embeddings) {
        assert_eq!(got.len(), want.len());
        got.iter().zip(want).for_each(|(got, want)| worst = worst.max((got - want).abs()));
        let length: f32 = got.iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
    }
    println!("{}: largest difference {worst:e}", path.file_name().unwrap().display());
    assert!(worst < 1e-5, "{worst}");
}

#[test]
fn a_small_bert_agrees_with_transformers() {
    check(&fixture("bert"));
}

#[test]
fn a_vector_depends_only_on_its_own_text() {
    let path = fixture("bert");
    let expected = Expected::of(&path);
    let texts = expected.texts();
    let together = block_on(open(&path, 1).embed(&texts)).unwrap();
    let model = open(&path, 2);
    let alone: Vec<_> = texts.iter().flat_map(|&text| block_on(model.embed(&[text])).unwrap()).collect();
    assert_eq!(bits(&together), bits(&alone));
    // More than fits into one pass.
    let many: Vec<_> = texts.iter().copied().cycle().take(40).collect();
    let many = block_on(model.embed(&many)).unwrap();
    assert!(bits(&many).iter().zip(bits(&together).iter().cycle()).all(|(a, b)| a == b));
    assert!(block_on(model.embed(&[])).unwrap().is_empty());
}

#[test]
fn a_text_is_truncated_to_the_number_of_positions() {
    let model = open(&fixture("bert"), 1);
    let long = "the cat ".repeat(50);
    let [a, b] = [long.clone(), long + "and a dog"].map(|text| block_on(model.embed(&[&text])).unwrap());
    assert_eq!(bits(&a), bits(&b));
}

#[test]
fn optional_config_files_are_used() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        std::fs::copy(fixture("bert").join(file), folder.path().join(file)).unwrap();
    }
    let put = |file: &str, text: &str| std::fs::write(folder.path().join(file), text).unwrap();
    let refusal = || LocalEmbedder::from_dir(folder.path(), &EngineOptions::default()).err().unwrap().to_string();
    put("sentence_bert_config.json", r#"{"max_seq_length": 4}"#);
    let model = open(folder.path(), 1);
    let [a, b] = ["the cat sat", "the cat"].map(|text| block_on(model.embed(&[text])).unwrap());
    assert_eq!(bits(&a), bits(&b));
    put("sentence_bert_config.json", r#"{"max_seq_length": 2}"#);
    assert!(refusal().contains("it adds 2 tokens to a text, but the model reads at most 2"), "{}", refusal());
    put("sentence_bert_config.json", r#"{"max_seq_length": null}"#);
    std::fs::create_dir(folder.path().join("1_Pooling")).unwrap();
    put("1_Pooling/config.json", r#"{"pooling_mode_cls_token": true}"#);
    assert!(
        refusal().contains("its pooling mode is not supported; supported: `pooling_mode_mean_tokens`"),
        "{}",
        refusal()
    );
}

#[test]
fn a_model_that_is_not_an_embedder_is_refused() {
    let open = |spec: &str| open_embedder(&spec.parse().unwrap(), &OpenOptions::default());
    let refusal = |spec: &str| open(spec).err().unwrap().to_string();
    assert!(refusal("bundled").contains("it is not a sentence embedder; name the folder of one"));
    let llama = refusal(&format!("local:{}", fixture("llama").display()));
    assert!(llama.contains("the architecture `llama` for a sentence embedder; supported: `bert`"), "{llama}");
    assert!(open(&format!("local:{}", fixture("bert").display())).is_ok());
    let error = super::LocalModel::from_dir(&fixture("bert"), &EngineOptions::default()).err().unwrap();
    assert!(matches!(error, ModelError::Unavailable { .. }));
    assert!(error.to_string().contains("`bert`, a sentence embedder that cannot generate text"), "{error}");
}
