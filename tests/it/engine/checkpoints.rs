//! Checkpoints as they are published: end tokens in several places, files that are missing, older and newer keys.

use std::fs;
use std::path::Path;

use loom_agent::foundation::chat::{LanguageModel, Message, Prompt, Sampling};
use loom_agent::inference::engine::LocalModel;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{bits, complete, fixture, folder, request, score};

/// A copy of a fixture with `change` made to its `config.json`, and further files.
fn checkpoint(name: &str, change: impl FnOnce(&mut Value), files: &[(&str, &str)]) -> (TempDir, LocalModel) {
    let copy = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(fixture(name).join(file), copy.path().join(file)).unwrap();
    }
    edit(&copy.path().join("config.json"), change);
    for (file, text) in files {
        fs::write(copy.path().join(file), text).unwrap();
    }
    let model = folder(copy.path(), 1);
    (copy, model)
}

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut json: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    change(&mut json);
    fs::write(path, json.to_string()).unwrap();
}

fn ends(model: &LocalModel) -> Vec<u32> {
    model.vocabulary().unwrap().special().ends
}

#[test]
fn every_end_token_that_the_files_name_ends_a_reply() {
    let generation = ("generation_config.json", r#"{"eos_token_id": [9, 3]}"#);
    let tokenizer = ("tokenizer_config.json", r#"{"eos_token": {"content": "w7", "lstrip": false}}"#);
    let (_keep, model) = checkpoint("qwen3", |config| config["eos_token_id"] = json!([3, 5]), &[generation, tokenizer]);
    assert_eq!(ends(&model), [3, 5, 7, 9]);
    let sampling = || Sampling { temperature: 1.0, top_p: 1.0, max_tokens: 60, ..Sampling::default() };
    let mut seen = Vec::new();
    for seed in 0..40 {
        let mut request = request(Prompt::Ids(vec![1, 2]), sampling());
        request.stream = loom_agent::foundation::base::RngStream::root(seed);
        let reply = complete(&model, request).unwrap();
        assert!(reply.tokens.iter().all(|token| !ends(&model).contains(&token.id.unwrap())), "{reply:?}");
        seen.extend(reply.end.and_then(|end| end.id));
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [3, 5, 7, 9], "each of them ends a reply");
}

#[test]
fn files_of_generation_may_be_missing() {
    let (_keep, none) = checkpoint("qwen3", |_| (), &[]);
    assert!(ends(&none).is_empty());
    // Older checkpoints have everything in `config.json`.
    let (_keep, old) = checkpoint("qwen3", |config| config["eos_token_id"] = json!(4), &[]);
    assert_eq!(ends(&old), [4]);
    let (_keep, own) = checkpoint("qwen3", |_| (), &[("tokenizer_config.json", r#"{"eos_token": "w6"}"#)]);
    assert_eq!(ends(&own), [6]);
    let sampled = |model: &LocalModel| model.info().sampling.clone().unwrap().temperature;
    let (_keep, greedy) =
        checkpoint("qwen3", |_| (), &[("generation_config.json", r#"{"do_sample": false, "temperature": 0.5}"#)]);
    assert_eq!((sampled(&greedy), sampled(&old)), (0.0, Sampling::default().temperature));
}

#[test]
fn rotary_settings_are_read_under_their_old_and_new_names() {
    let logprobs = |model: &LocalModel| {
        bits(&score(model, request(Prompt::Ids(vec![1, 2, 3]), Sampling::greedy()), &[4, 5, 6, 7, 8, 9], 0).tokens)
    };
    for name in ["qwen3", "qwen3-yarn", "llama", "mistral"] {
        let (_keep, as_published) = checkpoint(name, |_| (), &[]);
        let (_keep, other) = checkpoint(
            name,
            |config| {
                let config = config.as_object_mut().unwrap();
                if let Some(Value::Object(mut rope)) = config.remove("rope_parameters") {
                    config.insert("rope_theta".to_owned(), rope.remove("rope_theta").unwrap());
                    if rope["rope_type"] != "default" {
                        config.insert("rope_scaling".to_owned(), Value::Object(rope));
                    }
                } else {
                    let theta = config.remove("rope_theta").unwrap_or(json!(10_000.0));
                    let mut rope = match config.remove("rope_scaling") {
                        Some(Value::Object(rope)) => rope,
                        _ => serde_json::from_str(r#"{"rope_type": "default"}"#).unwrap(),
                    };
                    rope.insert("rope_theta".to_owned(), theta);
                    config.insert("rope_parameters".to_owned(), Value::Object(rope));
                }
            },
            &[],
        );
        assert_eq!(logprobs(&as_published), logprobs(&other), "{name}");
    }
}

#[test]
fn a_template_is_read_from_whichever_file_has_it() {
    let template = "{% for m in messages %}{{ 'w9 ' ~ m.content ~ ' ' }}{% endfor %}";
    let json = json!({ "chat_template": template }).to_string();
    let named = json!({ "chat_template": [{ "name": "tool_use", "template": "w1" }, { "name": "default", "template": template }] });
    for (file, text) in [
        ("chat_template.jinja", template),
        ("chat_template.json", &json),
        ("tokenizer_config.json", &json),
        ("tokenizer_config.json", &named.to_string()),
    ] {
        let (_keep, model) = checkpoint("qwen3", |_| (), &[(file, text)]);
        assert_eq!(model.vocabulary().unwrap().chat(&[Message::user("w5")]).unwrap(), [9, 5], "{file}");
    }
}

#[test]
fn added_tokens_are_read_as_one_and_written_by_name() {
    let copy = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(fixture("qwen3").join(file), copy.path().join(file)).unwrap();
    }
    edit(&copy.path().join("tokenizer.json"), |tokenizer| {
        let added = |id: u32, content: &str, special: bool| {
            json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": special })
        };
        let vocabulary = tokenizer["model"]["vocab"].as_object_mut().unwrap();
        vocabulary.retain(|_, id| id.as_u64() != Some(38) && id.as_u64() != Some(39));
        tokenizer["added_tokens"] = json!([added(38, "<|turn|>", true), added(39, "<tool>", false)]);
    });
    let model = folder(copy.path(), 1);
    let known = model.vocabulary().unwrap();
    assert_eq!(known.encode("w5<|turn|>w6<tool>w7").unwrap(), [5, 38, 6, 39, 7]);
    let text = known.decode(&[5, 38, 6, 39]).unwrap();
    assert!(text.contains("<|turn|>") && text.contains("<tool>"), "{text}");
}
