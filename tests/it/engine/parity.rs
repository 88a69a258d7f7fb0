//! Parity with `transformers`. The expected values were computed by `scripts/make-mamba-fixtures.py` and
//! `scripts/make-model-fixtures.py`.

use std::path::{Path, PathBuf};

use loom_agent::foundation::chat::{LanguageModel, Prompt, Sampling, Scored, TokenLogprob};
use loom_agent::inference::engine::{Dtype, EngineOptions, LocalModel};
use serde::Deserialize;

use super::{MODELS, bundled, complete, fixture, folder, request, score};

const TOLERANCE: f32 = 1e-4;

#[derive(Deserialize)]
struct Expected {
    ids: Vec<u32>,
    logprobs: Vec<Vec<f32>>,
    /// `greedy` continues the first `prompt` of `ids`.
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

/// Compares `model` with the expected values in `path`.
pub(super) fn check_model(model: &LocalModel, path: &Path) {
    check_within(TOLERANCE, model, path);
}

/// Like [`check_model`], with a tolerance for log-probabilities.
pub(super) fn check_within(tolerance: f32, model: &LocalModel, path: &Path) {
    let name = path.file_name().unwrap().display();
    let expected = expected(path);
    let Expected { ids, logprobs, prompt, greedy } = &expected;
    if !greedy.is_empty() {
        let sampling = Sampling { max_tokens: greedy.len(), ..Sampling::greedy() };
        let written = complete(model, request(Prompt::Ids(ids[..*prompt].to_vec()), sampling)).unwrap();
        assert_eq!(written.message.ids.as_deref(), Some(greedy.as_slice()), "{name}");
    }
    let scored = every_row(model, &expected);
    for (token, row) in scored.tokens.iter().zip(logprobs) {
        let likelier = |&x: &f32| x > row[token.id.unwrap() as usize];
        assert_eq!(token.rank.unwrap() as usize, row.iter().copied().filter(likelier).count());
    }
    let worst = furthest(&scored, logprobs);
    println!("{name}: largest difference {worst:e}");
    assert!(worst < tolerance, "{name}: {worst}");
}

fn expected(path: &Path) -> Expected {
    serde_json::from_str(&std::fs::read_to_string(path.join("expected.json")).unwrap()).unwrap()
}

/// Scores all ids but the first, with the whole vocabulary as alternatives.
fn every_row(model: &LocalModel, expected: &Expected) -> Scored {
    let mut ids = expected.ids.clone();
    // One more, so that the last row is included.
    ids.push(0);
    let vocabulary = expected.logprobs[0].len();
    let scored = score(model, request(Prompt::Ids(ids[..1].to_vec()), Sampling::greedy()), &ids[1..], vocabulary);
    assert_eq!(scored.tokens.len(), expected.logprobs.len());
    scored
}

/// The largest difference of a log-probability.
fn furthest(scored: &Scored, rows: &[Vec<f32>]) -> f32 {
    of_each_row(scored, rows).into_iter().fold(0.0, f32::max)
}

/// The largest difference of a log-probability in each row.
fn of_each_row(scored: &Scored, rows: &[Vec<f32>]) -> Vec<f32> {
    let worst = |(token, row): (&TokenLogprob, &Vec<f32>)| {
        assert_eq!(token.top.len(), row.len());
        token.top.iter().map(|&(id, logprob)| (logprob - row[id as usize]).abs()).fold(0.0, f32::max)
    };
    scored.tokens.iter().zip(rows).map(worst).collect()
}

/// Distance from transformers in f32 for each narrower type; `bounds` for bf16, `q8_0` and `q4_k`.
fn check_narrow(path: &Path, bounds: [f32; 3]) {
    let expected = expected(path);
    for (dtype, bound) in [Dtype::Bf16, Dtype::Q8_0, Dtype::Q4K].into_iter().zip(bounds) {
        let options = EngineOptions { threads: Some(2), dtype: Some(dtype), ..EngineOptions::default() };
        let model = LocalModel::from_dir(path, &options).unwrap();
        let mut each = of_each_row(&every_row(&model, &expected), &expected.logprobs);
        each.sort_by(f32::total_cmp);
        // A router whose input is rounded may choose other experts: in some rows, another network computes the result.
        let routed = path.file_name().unwrap().to_string_lossy().contains("moe");
        let worst = if routed { each[each.len() / 2] } else { each[each.len() - 1] };
        let (name, stored) = (path.file_name().unwrap().display(), model.info().dtype.clone().unwrap());
        println!("{name} as {dtype}, most of it {stored}: largest difference {worst:.1e}");
        assert!(worst < bound, "{name} as {dtype}: {worst}");
    }
}

#[test]
fn tiny_models_agree_with_transformers() {
    for name in ["plain", "odd", "shards"].iter().chain(&MODELS) {
        check(&fixture(name));
    }
}

#[test]
fn narrower_weights_are_close_to_transformers_in_f32() {
    for name in ["plain", "odd"].iter().chain(&MODELS) {
        check_narrow(&fixture(name), [0.3, 1.0, 1.0]);
    }
}

#[test]
#[ignore = "scripts/check-peers.sh makes these models and sets LOOM_WIDE_MODELS"]
fn models_of_published_widths_agree_with_transformers() {
    let wide = PathBuf::from(std::env::var_os("LOOM_WIDE_MODELS").expect("LOOM_WIDE_MODELS names their folder"));
    let mut compared = 0;
    for entry in std::fs::read_dir(wide).unwrap() {
        let path = entry.unwrap().path();
        if path.join("1_Pooling").is_dir() {
            super::embeddings::check(&path);
        } else {
            check(&path);
            check_narrow(&path, [0.5, 1.0, 5.0]);
        }
        compared += 1;
    }
    assert_eq!(compared, 15);
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
