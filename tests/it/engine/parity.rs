//! Against `transformers`: `scripts/make-mamba-fixtures.py` and `scripts/make-model-fixtures.py` made the numbers.

use std::path::{Path, PathBuf};

use loom_agent::foundation::chat::{Prompt, Sampling};
use loom_agent::inference::engine::LocalModel;
use serde::Deserialize;

use super::{MODELS, bundled, complete, fixture, folder, request, score};

const TOLERANCE: f32 = 1e-4;

#[derive(Deserialize)]
struct Expected {
    ids: Vec<u32>,
    logprobs: Vec<Vec<f32>>,
    /// How many of `ids` `greedy` continues.
    #[serde(default)]
    prompt: usize,
    #[serde(default)]
    greedy: Vec<u32>,
}

#[derive(Deserialize)]
struct Golden {
    ids: Vec<u32>,
    next_token_logprob: Vec<f32>,
    entropy: Vec<f32>,
    greedy: Vec<u32>,
}

fn check(path: &Path) {
    check_model(&folder(path, 2), path);
}

/// Compares `model` with what stands in `path`.
pub(super) fn check_model(model: &LocalModel, path: &Path) {
    check_within(TOLERANCE, model, path);
}

/// The same for log-probabilities no further off than `tolerance`.
pub(super) fn check_within(tolerance: f32, model: &LocalModel, path: &Path) {
    let name = path.file_name().unwrap().display();
    let text = std::fs::read_to_string(path.join("expected.json")).unwrap();
    let Expected { mut ids, logprobs, prompt, greedy } = serde_json::from_str(&text).unwrap();
    if !greedy.is_empty() {
        let sampling = Sampling { max_tokens: greedy.len(), ..Sampling::greedy() };
        let written = complete(model, request(Prompt::Ids(ids[..prompt].to_vec()), sampling)).unwrap();
        assert_eq!(written.message.ids.as_deref(), Some(greedy.as_slice()), "{name}");
    }
    // One more, so that the last row is read as well.
    ids.push(0);
    let vocabulary = logprobs[0].len();
    let scored = score(model, request(Prompt::Ids(ids[..1].to_vec()), Sampling::greedy()), &ids[1..], vocabulary);
    assert_eq!(scored.tokens.len(), logprobs.len());
    let mut worst = 0f32;
    for (token, row) in scored.tokens.iter().zip(&logprobs) {
        assert_eq!(token.top.len(), row.len());
        for &(id, logprob) in &token.top {
            worst = worst.max((logprob - row[id as usize]).abs());
        }
        let likelier = |&x: &f32| x > row[token.id.unwrap() as usize];
        assert_eq!(token.rank.unwrap() as usize, row.iter().copied().filter(likelier).count());
    }
    println!("{name}: largest difference {worst:e}");
    assert!(worst < tolerance, "{name}: {worst}");
}

#[test]
fn tiny_models_agree_with_transformers() {
    for name in ["plain", "odd", "shards"].iter().chain(&MODELS) {
        check(&fixture(name));
    }
}

#[test]
#[ignore = "scripts/check-peers.sh makes these models and says where they are"]
fn models_of_published_widths_agree_with_transformers() {
    let wide = PathBuf::from(std::env::var_os("LOOM_WIDE_MODELS").expect("LOOM_WIDE_MODELS names their folder"));
    let mut compared = 0;
    for entry in std::fs::read_dir(wide).unwrap() {
        let path = entry.unwrap().path();
        if path.join("1_Pooling").is_dir() {
            super::embeddings::check(&path);
        } else {
            check(&path);
        }
        compared += 1;
    }
    assert_eq!(compared, 7);
}

#[test]
fn the_bundled_model_agrees_with_transformers() {
    let text = std::fs::read_to_string(fixture("bundled.json")).unwrap();
    let golden: Golden = serde_json::from_str(&text).unwrap();
    let (first, rest) = golden.ids.split_at(1);
    let scored = score(&bundled(1), request(Prompt::Ids(first.to_vec()), Sampling::greedy()), rest, 1);
    assert_eq!(scored.tokens.len(), golden.greedy.len());
    for (at, token) in scored.tokens.iter().enumerate() {
        assert!((token.logprob.unwrap() - golden.next_token_logprob[at]).abs() < TOLERANCE, "token {at}: {token:?}");
        assert!((token.entropy.unwrap() - golden.entropy[at]).abs() < TOLERANCE, "token {at}: {token:?}");
        assert_eq!(token.top[0].0, golden.greedy[at], "token {at}");
    }
}
