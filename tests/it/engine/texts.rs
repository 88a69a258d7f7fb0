//! Prompts that are texts: BOS, and spaces in front of words.

use std::fs;

use loom_agent::foundation::chat::{LanguageModel, Message, Prompt, Sampling};
use loom_agent::inference::engine::LocalModel;
use tempfile::TempDir;

use super::{bits, complete, fixture, folder, request};

/// A fixture whose tokenizer puts `w0` before a text, with `tokenizer_config.json`.
pub(crate) fn with_bos(tokenizer_config: &str) -> (TempDir, LocalModel) {
    let copy = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(fixture("llama").join(file), copy.path().join(file)).unwrap();
    }
    let path = copy.path().join("tokenizer.json");
    let mut json: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let (bos, text) = (r#"{"SpecialToken": {"id": "w0", "type_id": 0}}"#, r#"{"Sequence": {"id": "A", "type_id": 0}}"#);
    json["post_processor"] = serde_json::from_str(&format!(
        r#"{{"type": "TemplateProcessing", "single": [{bos}, {text}], "pair": [{text}, {{"Sequence": {{"id": "B",
        "type_id": 0}}}}], "special_tokens": {{"w0": {{"id": "w0", "ids": [0], "tokens": ["w0"]}}}}}}"#
    ))
    .unwrap();
    fs::write(path, json.to_string()).unwrap();
    fs::write(copy.path().join("tokenizer_config.json"), tokenizer_config).unwrap();
    let model = folder(copy.path(), 1);
    (copy, model)
}

#[test]
fn a_text_begins_with_bos_and_ids_are_read_as_they_are() {
    let reply = |model: &LocalModel, prompt: Prompt| {
        let reply = complete(model, request(prompt, Sampling { max_tokens: 5, ..Sampling::greedy() })).unwrap();
        (reply.usage.tokens_in, bits(&reply.tokens))
    };
    let (_keep, model) = with_bos("{}");
    let text = reply(&model, Prompt::Text("w5 w6 w7".to_owned()));
    assert_eq!(text, reply(&model, Prompt::Ids(vec![0, 5, 6, 7])));
    assert_ne!(text, reply(&model, Prompt::Ids(vec![5, 6, 7])));
    let chat = |model: &LocalModel| model.vocabulary().unwrap().chat(&[Message::user("w5")]).unwrap();
    let (_keep, without) = with_bos(r#"{"add_bos_token": false}"#);
    assert_eq!(reply(&without, Prompt::Text("w5 w6 w7".to_owned())), reply(&model, Prompt::Ids(vec![5, 6, 7])));
    // Without a template a conversation is such a text as well.
    assert_eq!(chat(&model), [&[0], chat(&without).as_slice()].concat());
    let known = model.vocabulary().unwrap();
    assert_eq!(known.encode_text("w5").unwrap(), [0, 5]);
    assert_eq!((known.encode("w5").unwrap(), known.encode_text("w0 w5").unwrap()), (vec![5], vec![0, 5]));
    let (_keep, template) = with_bos(r#"{"chat_template": "{{ messages[0].content }}"}"#);
    assert_eq!(chat(&template), [5]);
}
