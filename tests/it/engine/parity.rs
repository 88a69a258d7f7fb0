//! Against `transformers`: `scripts/make-mamba-fixtures.py` made the numbers.

use loom_agent::foundation::chat::{Prompt, Sampling};
use loom_agent::inference::engine::LocalModel;
use serde::Deserialize;

use super::{bundled, fixture, request, score, tiny};

const TOLERANCE: f32 = 1e-4;

#[derive(Deserialize)]
struct Expected {
    ids: Vec<u32>,
    logprobs: Vec<Vec<f32>>,
}

#[derive(Deserialize)]
struct Golden {
    ids: Vec<u32>,
    next_token_logprob: Vec<f32>,
    entropy: Vec<f32>,
    greedy: Vec<u32>,
}

pub(super) fn check(model: &LocalModel, name: &str) {
    let text = std::fs::read_to_string(fixture(name).join("expected.json")).unwrap();
    let Expected { mut ids, logprobs } = serde_json::from_str(&text).unwrap();
    // One more, so that the last row is read as well.
    ids.push(0);
    let scored = score(model, request(Prompt::Ids(ids[..1].to_vec()), Sampling::greedy()), &ids[1..], 40);
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
    assert!(worst < TOLERANCE, "{name}: {worst}");
}

#[test]
fn tiny_models_agree_with_transformers() {
    for name in ["plain", "odd", "shards"] {
        check(&tiny(name), name);
    }
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
