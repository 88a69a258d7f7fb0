//! Damaged and malicious models: one clear error each.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use loom_agent::inference::engine::{EngineOptions, LocalModel};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use tempfile::TempDir;

use super::fixture;

type Tensors = BTreeMap<String, (Vec<usize>, Vec<u8>)>;

fn copy(name: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(fixture(name)).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    folder
}

fn check(folder: &Path, why: &str) {
    let error = LocalModel::from_dir(folder, &EngineOptions::default()).err().expect(why).to_string();
    assert!(error.contains(why), "expected {why:?}: {error}");
    assert!(error.starts_with(&format!("model `local:{}` is not available: ", folder.display())), "{error}");
}

/// Changes tensors of the model `plain`.
fn check_tensors(change: impl FnOnce(&mut Tensors), why: &str) {
    check_tensors_of("plain", change, why);
}

fn check_tensors_of(model: &str, change: impl FnOnce(&mut Tensors), why: &str) {
    let folder = copy(model);
    let path = folder.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Tensors =
        file.tensors().into_iter().map(|(name, view)| (name, (view.shape().to_vec(), view.data().to_vec()))).collect();
    change(&mut tensors);
    let views =
        tensors.iter().map(|(name, (shape, data))| (name, TensorView::new(Dtype::F32, shape.clone(), data).unwrap()));
    fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
    check(folder.path(), why);
}

/// Changes the header of the model `plain`.
fn check_header(change: impl FnOnce(String) -> String, why: &str) {
    let folder = copy("plain");
    let path = folder.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let (size, rest) = bytes.split_at(8);
    let (header, data) = rest.split_at(u64::from_le_bytes(size.try_into().unwrap()) as usize);
    let header = change(String::from_utf8(header.to_vec()).unwrap());
    let size = (header.len() as u64).to_le_bytes();
    fs::write(&path, [&size, header.as_bytes(), data].concat()).unwrap();
    check(folder.path(), why);
}

const NORM: &str = "backbone.norm_f.weight";

#[test]
fn a_duplicate_tensor_name() {
    let twice = |header: String| {
        let (_, entry) = header.split_once(&format!("\"{NORM}\":")).unwrap();
        let entry = entry.split_inclusive('}').next().unwrap().to_owned();
        header.replacen('{', &format!("{{\"{NORM}\":{entry},"), 1)
    };
    check_header(twice, "`backbone.norm_f.weight` occurs twice");
}

#[test]
fn tensors_that_do_not_fit_the_config() {
    check_tensors(|t| drop(t.remove(NORM)), "tensor `backbone.norm_f.weight` is missing");
    check_tensors(|t| t.get_mut(NORM).unwrap().0 = vec![2, 12], "has dims [2, 12] where [24] are needed");
    check_tensors(
        |t| {
            let norm = t[NORM].clone();
            t.insert("adapter.weight".into(), norm.clone());
            t.insert("extra".into(), norm);
        },
        "tensor `adapter.weight` and 1 more are not used by the architecture",
    );
    let put =
        |value: f32| move |t: &mut Tensors| t.get_mut(NORM).unwrap().1[8..12].copy_from_slice(&value.to_le_bytes());
    check_tensors(put(f32::NAN), "tensor `backbone.norm_f.weight` holds a NaN or an infinity (element 2)");
    check_tensors(put(f32::INFINITY), "holds a NaN or an infinity (element 2)");
    check_tensors(
        |t| {
            let mut head = t["backbone.embeddings.weight"].clone();
            head.1[0] ^= 1;
            t.insert("lm_head.weight".into(), head);
        },
        "differs from the embedding although `tie_word_embeddings` is set",
    );
}

#[test]
fn tensors_that_do_not_fit_a_decoder() {
    let layer = |name: &str| format!("model.layers.1.{name}");
    check_tensors_of(
        "qwen3",
        |t| drop(t.remove(&layer("self_attn.q_norm.weight"))),
        "tensor `model.layers.1.self_attn.q_norm.weight` is missing",
    );
    check_tensors_of(
        "qwen2",
        |t| drop(t.remove(&layer("self_attn.k_proj.bias"))),
        "tensor `model.layers.1.self_attn.k_proj.bias` is missing",
    );
    // A bias that the config does not declare.
    check_tensors_of(
        "llama",
        |t| drop(t.insert(layer("mlp.up_proj.bias"), (vec![48], vec![0; 192]))),
        "tensor `model.layers.1.mlp.up_proj.bias` and 0 more are not used by the architecture",
    );
    check_tensors_of("llama", |t| drop(t.remove("lm_head.weight")), "tensor `lm_head.weight` is missing");
    check_tensors_of("mamba2", |t| t.get_mut("backbone.layers.0.mixer.D").unwrap().0 = vec![4, 2], "has dims [4, 2]");
}

#[test]
fn rotary_frequencies_in_older_files_are_ignored() {
    let folder = copy("llama");
    let path = folder.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let frequencies = TensorView::new(Dtype::F32, vec![4], &[0; 16]).unwrap();
    let mut views = file.tensors();
    views.push(("model.layers.0.self_attn.rotary_emb.inv_freq".to_owned(), frequencies));
    fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
    LocalModel::from_dir(folder.path(), &EngineOptions::default()).unwrap();
}

#[test]
fn truncated_padded_and_foreign_files() {
    let folder = copy("plain");
    let path = folder.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let with = |bytes: &[u8], why: &str| {
        fs::write(&path, bytes).unwrap();
        check(folder.path(), why);
    };
    with(&[], "`model.safetensors` is not usable: it ends too early");
    with(&bytes[..4], "it ends too early");
    with(&bytes[..100], "its header claims");
    with(&bytes[..bytes.len() - 1], "fetch it again");
    with(&[bytes.as_slice(), b"more"].concat(), "its header describes");
    with(b"PK\x03\x04\xff\xff\xff\xff and so on", "this is not a safetensors file");
    let mut garbage = bytes.clone();
    garbage[9..40].fill(b'{');
    with(&garbage, "`model.safetensors` is not usable: header: ");
    fs::remove_file(&path).unwrap();
    check(folder.path(), "neither `model.safetensors` nor `model.safetensors.index.json` is there");
}

#[test]
fn a_shard_index_with_wrong_entries() {
    let folder = copy("shards");
    let path = folder.path().join("model.safetensors.index.json");
    let index = fs::read_to_string(&path).unwrap();
    let with = |from: &str, to: &str, why: &str| {
        fs::write(&path, index.replace(from, to)).unwrap();
        check(folder.path(), why);
    };
    let last = "model-00003-of-00003.safetensors";
    for shard in ["../model.safetensors", "/etc/passwd", "..", "a/b.safetensors", r"..\\x", "C:x", ""] {
        with(last, shard, "is not a plain file name in this folder");
    }
    with(last, "gone.safetensors", "gone.safetensors` cannot be read");
    with(last, "model-00001-of-00003.safetensors", "is not in `model-00001-of-00003.safetensors`, as the index claims");
    with("{", "[", "`model.safetensors.index.json` is not usable");
}

#[test]
fn other_files_that_are_missing_or_broken() {
    let folder = copy("plain");
    let with = |file: &str, text: &str, why: &str| {
        let path = folder.path().join(file);
        let old = fs::read(&path);
        fs::write(&path, text).unwrap();
        check(folder.path(), why);
        match old {
            Ok(old) => fs::write(&path, old).unwrap(),
            Err(_) => fs::remove_file(&path).unwrap(),
        }
    };
    with("config.json", r#"{"model_type": "gpt2"}"#, "requires the architecture `gpt2`; supported: `mamba`");
    with("tokenizer.json", "{}", "`tokenizer.json` is not usable");
    with("tokenizer_config.json", "[", "`tokenizer_config.json` is not usable");
    with("tokenizer_config.json", r#"{"chat_template": 7}"#, "`chat_template` must be a text, or a list of `name` and");
    with(
        "tokenizer_config.json",
        r#"{"eos_token": 7}"#,
        "a special token must be a text, or an object with its `content`",
    );
    with("generation_config.json", "nonsense", "`generation_config.json` is not usable");
    with(
        "generation_config.json",
        r#"{"eos_token_id": "x"}"#,
        "`eos_token_id` must be a token's id, or a list of them",
    );
    with("chat_template.jinja", "{{ 1 +", "`chat template` is not usable");
    fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
    check(folder.path(), "tokenizer.json` cannot be read");
}

/// A copy of fixture `name` as a model with images: its tensors with `prefix` in place of `model.`, and others beside them.
fn with_images(name: &str, kind: &str, prefix: &str) -> TempDir {
    let (from, copy) = (fixture(name), tempfile::tempdir().unwrap());
    let text: serde_json::Value = serde_json::from_slice(&fs::read(from.join("config.json")).unwrap()).unwrap();
    let config = serde_json::json!({ "model_type": kind, "text_config": text, "vision_config": { "hidden_size": 4 } });
    fs::write(copy.path().join("config.json"), config.to_string()).unwrap();
    fs::copy(from.join("tokenizer.json"), copy.path().join("tokenizer.json")).unwrap();
    let bytes = fs::read(from.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let image = TensorView::new(Dtype::F32, vec![2], &[0; 8]).unwrap();
    let renamed = |name: &str| match name {
        "lm_head.weight" if prefix.starts_with("language_model.") => format!("language_model.{name}"),
        _ => name.replacen("model.", prefix, 1),
    };
    let mut tensors: Vec<_> = file.iter().map(|(name, view)| (renamed(name), view)).collect();
    tensors.push(("vision_tower.blocks.0.weight".to_owned(), image.clone()));
    tensors.push(("multi_modal_projector.weight".to_owned(), image));
    fs::write(copy.path().join("model.safetensors"), safetensors::serialize(tensors, None).unwrap()).unwrap();
    copy
}

#[test]
fn the_language_model_of_a_model_with_images_is_read() {
    for (name, kind) in [("gemma3", "gemma3"), ("mistral", "mistral3")] {
        for prefix in ["language_model.model.", "model.language_model."] {
            let copy = with_images(name, kind, prefix);
            super::parity::check_model(&super::folder(copy.path(), 1), &fixture(name));
        }
    }
}
